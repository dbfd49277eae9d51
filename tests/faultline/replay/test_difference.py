from dataclasses import replace
from datetime import UTC, datetime, timedelta

from faultline.replay.decisions import DecidedStep, Decision
from faultline.replay.difference import Aspect, Pair, differences
from faultline.replay.due_pages import Page, grouped
from streams.model.signal import Severity

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
CORDON = DecidedStep(
    "gpu", "cordon", "cordon_node", "Node a", destructive=True, verdict="would", reason="keep pods off"
)
TICKET = DecidedStep(
    "gpu", "ticket", "open_ticket", "Incident inc-1", destructive=False, verdict="would", reason="look at it"
)
DECISION = Decision(
    incident="inc-1", cluster="c", family="gpu_off_bus", root="GPU 0 on a", root_key="c/a/0", certainty="decisive",
    severity="critical", state="open", merged_into="", title="GPU fell off the bus on a", reason="XID 79",
    rule="hardware evidence", rule_means="a code of the device", fault_at=NOON, opened_at=NOON, jobs=("Job ml/x",),
    nodes=("a",), evidence=frozenset({"raw.node-logs:0:1"}), runbooks=("gpu",), runbook_why="gpu matches",
    mode="auto", steps=(CORDON, TICKET), page=None, gpu_hours=2.0, replayed=None,
)  # fmt: skip


def aspects(pairs: tuple[Pair, ...]) -> list[list[tuple[str, str]]]:
    return [[(one.aspect.value, one.what) for one in pair.differences] for pair in pairs]


def test_the_same_decisions_differ_in_nothing() -> None:
    assert aspects(differences([DECISION], [DECISION])) == [[]]


def test_other_words_and_ticks_of_the_same_decision_are_no_difference() -> None:
    other = replace(DECISION, reason="XID 79 and 3 more", gpu_hours=2.01)
    assert aspects(differences([DECISION], [other])) == [[]]


def test_a_changed_culprit_is_one_difference_and_no_incident_lost_and_found() -> None:
    other = replace(
        DECISION, incident="inc-2", root="node b", root_key="c/b", family="node_down", reason="b is gone"
    )
    (pair,) = differences(
        [DECISION], [replace(other, steps=(CORDON, replace(TICKET, target="Incident inc-2")))]
    )
    (one,) = pair.differences
    assert (one.aspect, one.before, one.after) == (
        Aspect.CULPRIT, "gpu_off_bus of GPU 0 on a", "node_down of node b",
    )  # fmt: skip
    assert one.why_before == "XID 79 (rule `hardware evidence`: a code of the device)"
    assert one.why_after.startswith("b is gone")


def test_without_a_common_record_time_and_nodes_decide_which_incident_it_is() -> None:
    moved = replace(
        DECISION, incident="inc-2", root_key="c/b", evidence=frozenset(), fault_at=NOON + timedelta(minutes=9),
        steps=(CORDON, replace(TICKET, target="Incident inc-2")),
    )  # fmt: skip
    assert aspects(differences([DECISION], [moved])) == [[("culprit", "culprit")]]
    late = replace(moved, fault_at=NOON + timedelta(minutes=11))
    assert len(differences([DECISION], [late])) == 2


def test_of_two_that_fit_the_one_with_more_in_common_is_it() -> None:
    evidence = frozenset({"r:0:1", "r:0:2"})
    one = replace(DECISION, evidence=evidence)
    near = replace(one, incident="inc-2", root_key="b", evidence=frozenset({"r:0:1"}))
    nearer = replace(one, incident="inc-3", root_key="c")
    pairs = differences([one], [near, nearer])
    assert {(p.before.incident if p.before else None, p.after.incident if p.after else None) for p in pairs} == {
        ("inc-1", "inc-3"), (None, "inc-2"),
    }  # fmt: skip


def test_a_victim_that_becomes_the_culprit_is_matched_with_the_culprit_that_was() -> None:
    victim = replace(DECISION, incident="inc-2", root_key="c/b", state="suppressed")
    (pair,) = differences([DECISION, victim], [replace(victim, state="open")])
    assert pair.before == DECISION
    assert pair.after is not None
    assert pair.after.incident == "inc-2"


def test_an_incident_that_became_part_of_another_says_of_which() -> None:
    (pair,) = differences([DECISION], [replace(DECISION, state="merged", merged_into="inc-9")])
    assert (pair.differences[0].aspect, pair.differences[0].after) == (Aspect.INCIDENT, "part of inc-9")


def test_incidents_of_which_nobody_is_told_are_left_out() -> None:
    assert differences([replace(DECISION, state="suppressed")], []) == ()


def test_a_lost_incident_takes_its_actions_ticket_and_page_with_it() -> None:
    page = Page(NOON, "approval", "the mitigation waits")
    (pair,) = differences([replace(DECISION, page=page)], [])
    assert [(one.aspect, one.what, one.before, one.after) for one in pair.differences] == [
        (Aspect.INCIDENT, "incident", DECISION.title, ""),
        (Aspect.ACTION, "cordon_node Node a", "would", ""),
        (Aspect.TICKET, "open_ticket Incident inc-1", "would", ""),
        (Aspect.PAGE, "page", "approval", ""),
    ]


def test_another_verdict_has_the_reasons_of_both_sides() -> None:
    held = replace(CORDON, verdict="refused", reason="blast radius: 3 of 3 nodes; clears when one is back")
    (pair,) = differences([replace(DECISION, steps=(held, TICKET))], [DECISION])
    (one,) = pair.differences
    assert (one.aspect, one.before, one.after) == (Aspect.VERDICT, "refused", "would")
    assert one.why_before.startswith("blast radius: 3 of 3")
    assert held.guardrail == "blast radius"


def test_another_runbook_with_the_same_steps_is_told_as_that_alone() -> None:
    steps = tuple(replace(step, runbook="mine", step=f"my-{step.step}") for step in DECISION.steps)
    (pair,) = differences(
        [DECISION], [replace(DECISION, runbooks=("mine",), runbook_why="mine wins", steps=steps)]
    )
    (one,) = pair.differences
    assert (one.aspect, one.before, one.after, one.why_after) == (Aspect.RUNBOOK, "gpu", "mine", "mine wins")


def test_a_step_done_otherwise_says_in_what() -> None:
    slow = replace(CORDON, details=(("deadline", "60 s"),))
    slower = replace(CORDON, details=(("deadline", "90 s"),))
    (pair,) = differences([replace(DECISION, steps=(slow,))], [replace(DECISION, steps=(slower,))])
    assert [(one.aspect, one.what, one.before, one.after) for one in pair.differences] == [
        (Aspect.STEP, "cordon_node Node a: deadline", "60 s", "90 s")
    ]


def test_unknown_hours_are_no_zero() -> None:
    (pair,) = differences([DECISION], [replace(DECISION, gpu_hours=None)])
    assert [(one.what, one.before, one.after) for one in pair.differences] == [
        ("GPU-hours lost", "2.0", "not known")
    ]


def test_pages_for_one_cause_within_the_window_are_one_and_a_worse_one_is_its_own() -> None:
    pages = [
        ("c", Page(NOON, "approval", "", Severity.ERROR)),
        ("c", Page(NOON + timedelta(seconds=200), "approval", "", Severity.ERROR)),
        ("c", Page(NOON + timedelta(seconds=210), "approval", "", Severity.CRITICAL)),
        ("c", Page(NOON + timedelta(seconds=220), "held", "", Severity.ERROR)),
        ("d", Page(NOON, "approval", "", Severity.ERROR)),
    ]
    assert grouped(pages, timedelta(minutes=5)) == 4
