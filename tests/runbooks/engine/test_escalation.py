"""The ladder: which rung, counted for whom, over what time; and what begins when a run fails or its incident comes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from connectors.base import Absent, AlreadyDone, Done, Effect, Outcome, Refused
from runbooks.engine.escalation import counted_name, due_step, entity_names, faulty_entity, is_above, offered
from runbooks.engine.partition_state import PartitionState
from runbooks.engine.run.transition import LOOKUPS, Call
from runbooks.language.loader import load_text
from runbooks.language.schema import Runbook
from streams.config.settings import ResponderSettings
from streams.model.codec import decode, encode
from streams.model.conversation import Command, Verb
from streams.model.entity import Entity, Gpu, JobRef
from streams.model.facts import Fact
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.run import Escalation, Mode, Run, RunState, StepState
from tests.runbooks.scenes import (
    ACTIONS,
    CLUSTER,
    JOB,
    LIBRARY,
    NOW,
    OTHER_JOB,
    at,
    cluster,
    incident,
    policy,
)

SLOT = Gpu("0000:1b:00", "GPU-old")
ROOT = Entity(CLUSTER, node="node-03", gpu=SLOT)


def book(
    name: str, up: str = "", *, action: str = "cordon_node", after: int = 1, per: str = "gpu"
) -> Runbook:
    """A rung: close the node, then something that may fail."""
    rung = f"escalation: {{to: {up}, after: {after}, within_s: 86400, per: {per}}}\n" if up else ""
    fails = "escalate" if up else "stop"
    return load_text(
        f"""
id: {name}
revision: 1
owner: gpu-platform
mode: auto
priority: {900 if name == "restart" else 1}
description: a rung of the ladder
match: incident.family == "{"gpu_off_bus" if name == "restart" else "none"}"
{rung}steps:
  - {{id: ticket, action: open_ticket, target: incident, on_failure: continue}}
  - {{id: cordon, action: cordon_node, target: root_node, undo: true, on_failure: {fails}}}
  - {{id: drain, action: drain_node, target: root_node, needs: [cordon], on_failure: {fails}}}
""",
        f"{name}.yaml",
    )


LADDER = (book("restart", "reset"), book("reset", "reboot", after=2), book("reboot"))
BY_ID = {one.id: one for one in LADDER}


def ran(runbook: str, began: datetime, root: Entity = ROOT, mode: Mode = Mode.AUTO) -> Run:
    """A run of earlier, as its document says."""
    board = watched(incident(), runbooks=LADDER)
    made = next(iter(board.runs.values()))
    return replace(
        made,
        plan=replace(made.plan, runbook=runbook, mode=mode),
        admitted_at=began,
        offenders=entity_names(root),
        offender=counted_name(root, None),
    )


def watched(
    *incidents: Incident, runbooks: tuple[Runbook, ...] = LADDER, runs: dict[str, Run] | None = None,
    settings: ResponderSettings | None = None,
) -> PartitionState:  # fmt: skip
    """A board that has taken the incidents in."""
    board = PartitionState(runbooks, settings or policy(), ACTIONS, runs)
    view = cluster()
    facts: list[Fact] = [*view.nodes.values(), *view.pods.values(), *view.jobs.values()]
    for fact in facts:
        board.take_fact(fact.key, fact)
    for about in incidents:
        board.take_incident(about)
    board.advance(NOW)
    return board


def play(board: PartitionState, answer: Callable[[Call], Outcome | None], now: datetime = NOW) -> list[str]:
    """Answer calls until there are none; None leaves a call in the air. Returns what was called."""
    made: list[str] = []
    for _ in range(50):
        calls = board.collect().calls
        if not calls:
            break
        for call in calls:
            outcome = answer(call)
            if outcome is not None:
                made.append(f"{call.kind} {call.effect.action} {call.run}")
                board.take_outcome(call, outcome, now)
        board.advance(now)
        board.advance(now)
    return made


def well(call: Call) -> Outcome:
    return Done() if call.kind not in LOOKUPS else AlreadyDone() if call.kind == "lookup" else Absent()


def drains_fail(call: Call) -> Outcome:
    return Refused("no") if call.effect.action == "drain_node" else well(call)


@pytest.mark.parametrize(
    ("history", "rung"),
    [
        ([], "restart"),
        ([("restart", -10)], "reset"),
        ([("restart", -90000)], "restart"),
        ([("restart", -10), ("reset", -5)], "reset"),
        ([("restart", -10), ("reset", -5), ("reset", -4)], "reboot"),
        ([("reset", -5), ("reset", -4)], "restart"),
    ],
)
def test_the_history_says_which_rung_it_is(history: list[tuple[str, float]], rung: str) -> None:
    runs = [ran(name, at(seconds)) for name, seconds in history]
    found = due_step(BY_ID["restart"], ROOT, runs, BY_ID, NOW)
    assert found.runbook.id == rung
    assert ("GPU-old within 24 h" in found.why) is (rung != "restart")


@pytest.mark.parametrize(
    ("then", "counts"),
    [
        (ROOT, True),
        (Entity(CLUSTER, node="node-09", gpu=Gpu("0000:3d:00", "GPU-old")), True),
        (Entity(CLUSTER, node="node-03", gpu=Gpu("0000:1b:00", "GPU-new")), False),
        (Entity(CLUSTER, node="node-03", gpu=Gpu("0000:1b:00")), True),
        (Entity(CLUSTER, node="node-03", gpu=Gpu("0000:9a:00")), False),
        (Entity(CLUSTER, node="node-04", gpu=Gpu("0000:1b:00")), False),
    ],
)
def test_a_gpu_is_known_by_its_uuid_and_by_its_slot_only_where_that_is_missing(
    then: Entity, counts: bool
) -> None:
    found = due_step(BY_ID["restart"], ROOT, [ran("restart", at(-10), then)], BY_ID, NOW)
    assert (found.runbook.id == "reset") is counts


def test_nodes_and_jobs_are_counted_whatever_gpu_it_was() -> None:
    job = Entity(CLUSTER, node="node-03", gpu=Gpu("0000:9a:00", "GPU-x"), job=JobRef("Job", "a", "b"))
    for per, root in (("node", replace(ROOT, gpu=None)), ("job", Entity(CLUSTER, job=job.job))):
        ladder = {"restart": book("restart", "reset", per=per), "reset": BY_ID["reboot"]}
        found = due_step(ladder["restart"], root, [ran("restart", at(-10), job)], ladder, NOW)
        assert found.why, per


CRASH: dict[str, Any] = {
    "xid": 31,
    "xids": (31,),
    "gpu_node": "node-03",
    "gpu_pci": "0000:1b:00",
    "gpu_uuid": "GPU-old",
}
ELSEWHERE = CRASH | {"gpu_node": "node-04", "gpu_pci": "0000:3d:00", "gpu_uuid": "GPU-else"}
SEVERAL = {"xid": 31, "xids": (31,)}


def crash(number: int, facts: dict[str, Any] | None = None, **changes: Any) -> Incident:
    """A program's own fault, another one each time, as correlation tells it."""
    about = incident("application", Entity(CLUSTER, job=JOB), facts=facts or CRASH, certainty=Certainty.WEAK)
    return replace(about, id=f"inc-crash-{number}", incarnation=number, **changes)


def crashed(
    *facts: dict[str, Any],
    every_s: float = 3600.0,
    ends: dict[str, Any] | None = None,
    certainty: Certainty = Certainty.WEAK,
) -> tuple[PartitionState, list[str]]:
    """A cluster in which programs crash one after the other: the runbooks taken, in order, and nothing is called for any."""
    board = watched(runbooks=LIBRARY)
    taken: list[str] = []
    for number, names in enumerate(facts, 1):
        now = at(number * every_s)
        about = crash(number, names, updated_at=now, certainty=certainty)
        board.take_incident(about)
        board.advance(now)
        taken.append(next(run for run in board.runs.values() if run.incident == about.id).plan.runbook)
        assert {call.effect.action for call in board.collect().calls} <= {"open_ticket"}
        if number < len(facts):
            over = {"state": IncidentState.RESOLVED, **(ends or {})}
            board.take_incident(replace(about, revision=2, **over))
            board.advance(now)
    return board, taken


@pytest.mark.parametrize("certainty", [Certainty.WEAK, Certainty.DECISIVE])
def test_the_third_crash_on_the_same_gpu_has_it_quarantined_and_asks_first(certainty: Certainty) -> None:
    """However sure it is that the program crashed."""
    board, taken = crashed(CRASH, CRASH, CRASH, certainty=certainty)
    assert taken == ["application", "application", "gpu-quarantine"]
    third = next(run for run in board.runs.values() if run.incident == "inc-crash-3")
    assert (third.offender, third.state) == ("gpu:GPU-old", RunState.AWAITING_APPROVAL)
    cordon = third.planned("cordon")
    assert cordon.target is not None
    assert (cordon.target.kind, cordon.target.name) == ("Node", "node-03")
    assert third.step("cordon").state is StepState.AWAITING_APPROVAL
    said = Command("c", third.incident, CLUSTER, Verb.APPROVE, "ada", at(3 * 3600), digest=third.plan.digest)
    board.take_command(said)
    board.advance(at(3 * 3600))
    assert "apply cordon_node" in " ".join(play(board, well, at(3 * 3600)))
    board.take_incident(crash(4, updated_at=at(4 * 3600)))
    board.advance(at(4 * 3600))
    assert [run.plan.runbook for run in board.runs.values()][-1] == "gpu-reset"


@pytest.mark.parametrize(("job", "said"), [(JOB, True), (OTHER_JOB, False)])
def test_who_is_asked_is_told_when_it_was_the_same_program_each_time(job: JobRef, said: bool) -> None:
    board, _ = crashed(CRASH, CRASH)
    books = {runbook.id: runbook for runbook in LIBRARY}
    place = faulty_entity(replace(crash(3), root=Entity(CLUSTER, job=job)))
    rung = due_step(books["application"], place, board.runs.values(), books, at(3 * 3600))
    assert rung.runbook.id == "gpu-quarantine"
    assert ("it may be that program" in rung.why) is said


def test_a_quarantine_that_nobody_has_let_act_is_asked_for_again() -> None:
    _, taken = crashed(CRASH, CRASH, CRASH, CRASH)
    assert taken[2:] == ["gpu-quarantine", "gpu-quarantine"]


@pytest.mark.parametrize(
    "facts",
    [
        (SEVERAL, SEVERAL, SEVERAL, SEVERAL),
        (CRASH, SEVERAL, SEVERAL, CRASH),
        (CRASH, ELSEWHERE, ELSEWHERE, CRASH),
        (CRASH, CRASH | {"gpu_uuid": "GPU-new"}, CRASH),
        (CRASH, CRASH, SEVERAL),
    ],
)
def test_crashes_on_several_gpus_or_on_one_after_the_other_accuse_none(facts: tuple[Any, ...]) -> None:
    assert set(crashed(*facts)[1]) == {"application"}


def test_crashes_long_ago_or_that_became_part_of_another_incident_do_not_count() -> None:
    assert set(crashed(CRASH, CRASH, CRASH, every_s=4 * 86400.0)[1]) == {"application"}
    merged = {"state": IncidentState.MERGED, "merged_into": "inc-other"}
    assert set(crashed(CRASH, CRASH, CRASH, ends=merged)[1]) == {"application"}


def test_a_crash_counts_once_however_often_its_incident_comes_back() -> None:
    board, _ = crashed(CRASH)
    for revision, state in enumerate((IncidentState.RESOLVED, IncidentState.OPEN) * 3, 2):
        board.take_incident(crash(1, revision=revision, state=state, updated_at=at(3600)))
        board.advance(at(3600))
    assert [run.flaps for run in board.runs.values()] == [0], "a fault that comes and goes is one run"
    assert {run.plan.runbook for run in board.runs.values()} == {"application"}
    board.take_incident(crash(2, updated_at=at(7200)))
    board.advance(at(7200))
    assert {run.plan.runbook for run in board.runs.values()} == {"application"}


def test_a_crash_that_turns_out_to_be_on_several_gpus_takes_its_word_back() -> None:
    board, taken = crashed(CRASH, CRASH, CRASH)
    assert taken[2] == "gpu-quarantine"
    board.take_incident(crash(3, SEVERAL, revision=2, updated_at=at(10900)))
    board.advance(at(10900))
    runs = [run for run in board.runs.values() if run.incident == "inc-crash-3"]
    assert [(run.plan.runbook, run.outcome) for run in runs] == [("application", "")]
    assert runs[0].offender == ""

    board, _ = crashed(CRASH, CRASH)
    board.take_incident(crash(2, SEVERAL, revision=3, updated_at=at(7300)))
    board.advance(at(7300))
    board.take_incident(crash(3, updated_at=at(10800)))
    board.advance(at(10800))
    assert {run.plan.runbook for run in board.runs.values()} == {"application"}


def test_what_is_counted_is_the_same_after_a_restart() -> None:
    board, _ = crashed(CRASH, CRASH)
    again = watched(runbooks=LIBRARY, runs={key: decode(Run, encode(run)) for key, run in board.runs.items()})
    again.take_incident(crash(3, updated_at=at(10800)))
    again.advance(at(10800))
    third = next(run for run in again.runs.values() if run.incident == "inc-crash-3")
    assert third.plan.runbook == "gpu-quarantine"


def test_a_crash_of_which_the_gpu_is_known_only_later_counts_before_a_restart_as_after_it() -> None:
    board, _ = crashed(CRASH)
    other = replace(crash(2, {"xid": 31}, updated_at=at(7200)), root=Entity(CLUSTER, job=OTHER_JOB))
    for about in (
        other,
        replace(other, revision=2, facts=CRASH),
        replace(other, revision=3, facts=CRASH, state=IncidentState.RESOLVED),
    ):
        board.take_incident(about)
        board.advance(at(7200))
    found = {run.id for run in board.runs.counted_for(CLUSTER, ("gpu:GPU-old",))}
    again = watched(runbooks=LIBRARY, runs={key: decode(Run, encode(run)) for key, run in board.runs.items()})
    assert found == {run.id for run in again.runs.counted_for(CLUSTER, ("gpu:GPU-old",))}
    taken = []
    for made in (board, again):
        made.take_incident(crash(3, updated_at=at(10800)))
        made.advance(at(10800))
        taken.append(next(r for r in made.runs.values() if r.incident == "inc-crash-3").plan.runbook)
    assert taken == ["gpu-quarantine", "gpu-quarantine"]


def test_what_was_only_said_in_shadow_counts_in_shadow_only() -> None:
    runs = [ran("restart", at(-10), mode=Mode.SHADOW)]
    assert due_step(BY_ID["restart"], ROOT, runs, BY_ID, NOW).runbook.id == "restart"
    assert due_step(BY_ID["restart"], ROOT, runs, BY_ID, NOW, shadow=True).runbook.id == "reset"


def test_a_rung_that_is_not_there_is_said_and_not_climbed_to() -> None:
    found = due_step(BY_ID["restart"], ROOT, [ran("restart", at(-10))], {"restart": BY_ID["restart"]}, NOW)
    assert found.runbook.id == "restart"
    assert "the next step reset is no known runbook" in found.why


def test_above_is_whatever_the_ladder_leads_to() -> None:
    assert is_above("reboot", BY_ID["restart"], BY_ID)
    assert not is_above("restart", BY_ID["reboot"], BY_ID)


def test_the_offender_is_named_as_the_rung_counts() -> None:
    assert counted_name(ROOT, None) == "gpu:GPU-old"
    assert counted_name(ROOT, Escalation("x", per="node")) == "node:node-03"
    assert counted_name(Entity(CLUSTER, switch="leaf-1"), None) == ""


def test_a_second_incident_of_the_same_gpu_begins_a_rung_higher_and_says_why() -> None:
    board = watched(incident(root=ROOT))
    play(board, well)
    again = replace(incident("gpu_off_bus", ROOT), id="inc-again", incarnation=2)
    board.take_incident(again)
    board.advance(at(60))
    second = next(run for run in board.runs.values() if run.incident == "inc-again")
    assert second.plan.runbook == "reset"
    told = [entry.text for entry in board.collect().timeline if entry.event == "run.planned"]
    assert any(
        "restart has run 1 times for gpu:GPU-old within 24 h, so reset is next" in text for text in told
    )


def test_a_run_that_escalates_goes_on_a_rung_higher_with_the_same_cordon_and_ticket() -> None:
    board = watched(incident(root=ROOT))
    first = next(iter(board.runs.values()))
    play(board, lambda call: drains_fail(call) if call.run == first.id else well(call))
    runs = sorted(board.runs.values(), key=lambda run: run.plan.runbook)
    assert [(run.plan.runbook, run.state, run.outcome) for run in runs] == [
        ("reset", RunState.SUCCEEDED, "succeeded"),
        ("restart", RunState.FAILED, "escalated"),
    ]
    assert runs[0].escalated_from == runs[1].id
    for step in ("ticket", "cordon"):
        ours, theirs = runs[0].step(step).effect, runs[1].step(step).effect
        assert ours is not None
        assert theirs is not None
        assert ours.key == theirs.key


def test_the_ladder_is_climbed_to_its_end_over_restarts_and_ends_with_a_person() -> None:
    board = watched(incident(root=ROOT), settings=policy())
    for _ in range(30):
        play(board, drains_fail)
        board = watched(
            incident(root=ROOT), runs={key: decode(Run, encode(run)) for key, run in board.runs.items()}
        )
    ends = [(run.plan.runbook, run.outcome) for run in sorted(board.runs.values(), key=lambda r: r.round)]
    assert sorted(ends) == [("reboot", "failed"), ("reset", "escalated"), ("restart", "escalated")]


def test_without_its_next_rung_a_run_fails_and_says_so() -> None:
    board = watched(incident(root=ROOT), runbooks=(BY_ID["restart"],))
    play(board, drains_fail)
    (run,) = board.runs.values()
    assert run.outcome == "failed"
    assert "the next escalation step reset is no known runbook" in run.reason


def over(about: Incident, **changes: object) -> Incident:
    return replace(about, revision=about.revision + 1, state=IncidentState.RESOLVED, **changes)  # type: ignore[arg-type]


def back(about: Incident) -> Incident:
    return replace(about, revision=about.revision + 1, state=IncidentState.OPEN, flaps=about.flaps + 1)


def test_an_incident_that_comes_back_gets_a_run_of_its_own_and_only_one_ticket() -> None:
    about = incident(root=ROOT)
    board = watched(about, runbooks=(BY_ID["reboot"], book("restart")))
    hung = begun(board)
    board.take_incident(over(about))
    board.advance(at(5))
    (first,) = board.runs.values()
    board.take_outcome(hung, Done(), at(6))
    board.advance(at(6))
    assert "undo cordon_node" in " ".join(play(board, well, at(6)))
    board.take_incident(back(over(about)))
    board.advance(at(8))
    made = play(board, well, at(8))
    assert len(board.runs) == 2
    second = next(run for run in board.runs.values() if run.id != first.id)
    assert (second.round, second.outcome) == (2, "succeeded")
    assert [line.split()[1] for line in made] == ["cordon_node", "drain_node"]
    keys = {run.step("cordon").effect.key for run in board.runs.values()}  # type: ignore[union-attr]
    assert len(keys) == 2, "the first cordon was taken back: this is another one"


def begun(board: PartitionState) -> Call:
    """Play until the drain is in the air, and return its call."""
    air: list[Call] = []

    def answer(call: Call) -> Outcome | None:
        if call.effect.action != "drain_node":
            return well(call)
        air.append(call)
        return None

    play(board, answer)
    return air[0]


def test_a_cordon_that_could_not_be_taken_back_is_gone_on_with() -> None:
    about = incident(root=ROOT)
    board = watched(about, runbooks=(BY_ID["reboot"], book("restart")))
    hung = begun(board)
    board.take_incident(over(about))
    board.take_outcome(hung, Done(), at(6))
    board.advance(at(6))
    play(board, lambda call: Refused("no") if call.kind == "undo" else well(call), at(6))
    board.take_incident(back(over(about)))
    board.advance(at(8))
    play(board, well, at(8))
    keys = {run.step("cordon").effect.key for run in board.runs.values()}  # type: ignore[union-attr]
    assert (len(board.runs), len(keys)) == (2, 1)


def test_two_runs_that_take_back_on_one_node_do_not_wait_for_each_other() -> None:
    """Each has closed it for its own incident, and both incidents are over."""
    one, other = incident(root=ROOT), incident("gpu_off_bus", replace(ROOT, gpu=None))
    board = watched(one, runbooks=(BY_ID["reboot"], book("restart")))
    play(board, drains_fail)
    board.take_incident(other)
    board.advance(at(1))
    play(board, drains_fail, at(1))
    for about in (one, other):
        into = replace(over(about), state=IncidentState.MERGED, merged_into="inc-elsewhere")
        board.take_incident(into)
    board.advance(at(2))
    assert {run.undoing for run in board.runs.values()} == {"merged into inc-elsewhere"}
    play(board, well, at(3))
    assert not any(run.has_work for run in board.runs.values())


def test_it_does_not_come_back_as_a_run_when_a_person_stopped_it() -> None:
    about = incident(root=ROOT)
    board = watched(about)
    board.take_command(Command("c1", about.id, CLUSTER, Verb.STOP, "ada", NOW))
    board.advance(NOW)
    play(board, well)
    board.take_incident(over(about))
    board.advance(at(5))
    play(board, well)
    board.take_incident(back(over(about)))
    board.advance(at(6))
    assert len(board.runs) == 1


def test_a_comeback_that_was_slept_through_is_seen_in_its_count() -> None:
    about = incident(root=ROOT)
    board = watched(about, runbooks=(book("restart"),))
    play(board, drains_fail)
    (first,) = board.runs.values()
    assert first.outcome == "failed"
    documents = {key: decode(Run, encode(run)) for key, run in board.runs.items()}
    later = watched(replace(about, revision=4, flaps=1), runbooks=(book("restart"),), runs=documents)
    assert sorted(run.round for run in later.runs.values()) == [1, 2]
    same = watched(replace(about, revision=4), runbooks=(book("restart"),), runs=documents)
    assert len(same.runs) == 1


def test_the_next_rung_is_not_begun_for_an_incident_that_is_over() -> None:
    about = incident(root=ROOT)
    board = watched(about)
    board.take_outcome(begun(board), Refused("no"), NOW)
    board.take_incident(over(about))
    board.advance(at(1))
    assert len(board.runs) == 1


@pytest.mark.parametrize("verb", [Verb.STOP, Verb.RESOLVE])
def test_the_next_rung_is_not_begun_when_a_person_stops_a_run_that_still_gives_back(verb: Verb) -> None:
    """The first rung has failed and gives its job back: stopped by then, it does not go on a rung higher."""
    stops = (
        "  - {id: suspend, action: suspend_job, target: jobs, needs: [cordon], undo: true}\n"
        "  - {id: drain, action: drain_node, target: root_node, needs: [suspend, cordon], on_failure: escalate}\n"
    )
    lower = load_text(
        "id: lower\nrevision: 1\nowner: x\nmode: auto\npriority: 950\ndescription: moves a job\n"
        "match: incident.family == 'gpu_off_bus'\nescalation: {to: reboot, per: node}\nsteps:\n"
        f"  - {{id: cordon, action: cordon_node, target: root_node}}\n{stops}",
        "lower.yaml",
    )
    board = watched(incident(root=ROOT), runbooks=(lower, book("reboot")))
    play(board, lambda call: drains_fail(call) if call.kind != "undo" else None)
    (run,) = board.runs.values()
    assert (run.outcome, run.state) == ("escalated", RunState.RUNNING)
    board.take_command(Command("c1", run.incident, CLUSTER, verb, "ada", NOW))
    board.advance(NOW)
    step = next(planned.id for planned in run.plan.steps if planned.action == "suspend_job")
    effect = Effect("", "suspend_job", run.planned(step).target, CLUSTER, run.incident, run.id, step)  # type: ignore[arg-type]
    board.take_outcome(Call(run.id, step, "undo", effect), Done(), NOW)
    board.advance(NOW)
    (run,) = board.runs.values()
    assert (run.outcome, run.state, run.has_work) == ("cancelled", RunState.CANCELLED, False)


def test_a_rung_that_nothing_here_carries_out_is_passed_over() -> None:
    cycle = book("cycle", "replace").model_copy(update={"only_with": "power_cycle_node"})
    books = {one.id: one for one in (book("reboot", "cycle"), cycle, book("replace"))}
    ran_once = [ran("reboot", at(-10))]
    with_it = frozenset({"power_cycle_node"})
    assert due_step(books["reboot"], ROOT, ran_once, books, NOW, actions=with_it).runbook.id == "cycle"
    assert due_step(books["reboot"], ROOT, ran_once, books, NOW, actions=frozenset()).runbook.id == "replace"
    assert offered(books["cycle"], books, with_it) is books["cycle"]
    alone = {"cycle": cycle.model_copy(update={"escalation": None})}
    assert offered(alone["cycle"], alone, frozenset()) is alone["cycle"], (
        "the last one is left to an operator"
    )
