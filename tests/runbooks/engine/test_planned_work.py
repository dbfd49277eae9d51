"""Planned work of our own, from the command to the node that is given back, through correlator and responder."""

from __future__ import annotations

import pytest

from connectors.base import Refused
from streams.config.settings import BlastRadius
from streams.model.conversation import Command, Verb
from streams.model.facts import NodeFact
from streams.model.incident import IncidentState
from streams.model.run import Mode, RunOutcome, StepState
from tests.runbooks.engine.pipeline import Pipeline
from tests.runbooks.scenes import policy
from tests.streams.correlate.world import CLUSTER, FOUR, at, cluster, node_fact, not_ready, xid

IDLE = [f"idle{i:02d}" for i in range(12)]
WIDE = policy(blast_radius=BlastRadius(max_nodes=100, max_share=1.0, max_per_window=1000))


def pipeline(**more: object) -> Pipeline:
    more = {"settings": WIDE, **more}
    return Pipeline(cluster({"llama": FOUR}, spare=IDLE), **more)  # type: ignore[arg-type]


def start(p: Pipeline, *nodes: str, minutes: float = 60, **more: object):  # type: ignore[no-untyped-def]
    return p.say(
        Verb.MAINTENANCE,
        *nodes,
        until=p.after(minutes),
        reason="new firmware",
        **more,  # type: ignore[arg-type]
    )


def test_a_node_is_closed_worked_on_validated_and_given_back_when_its_time_is_over() -> None:
    p = pipeline()
    told = start(p, "idle00")
    assert "planned work on idle00 until" in p.answer_to(told)
    assert p.of("idle00") == ["cordon_node", "drain_node"]
    incident = p.incident("planned_work", "idle00")
    assert (incident.state, incident.severity) == (IncidentState.MITIGATING, "info")
    assert "ada works on it until" in incident.reason
    assert "new firmware" in incident.reason
    p.minutes(59)
    assert p.of("idle00") == ["cordon_node", "drain_node"]
    p.minutes(2)
    assert p.of("idle00") == ["cordon_node", "drain_node", "validate_node", "uncordon_node"]
    p.minutes(1)
    assert p.incident("planned_work", "idle00").state is IncidentState.RESOLVED


def test_stop_ends_it_early() -> None:
    p = pipeline()
    start(p, "idle00")
    p.minutes(5)
    told = p.say(Verb.MAINTENANCE_STOP, "idle00", reason="done")
    assert "idle00 to be validated and given back" in p.answer_to(told)
    assert p.of("idle00")[-2:] == ["validate_node", "uncordon_node"]


def test_a_later_end_extends_it() -> None:
    p = pipeline()
    first = start(p, "idle00", minutes=30)
    p.minutes(20)
    told = start(p, "idle00", minutes=120)
    assert "already under work: the new end counts" in p.answer_to(told)
    p.minutes(60)
    assert p.of("idle00") == ["cordon_node", "drain_node"]
    assert p.incident("planned_work", "idle00").facts["request"] == first.id
    p.minutes(61)
    assert p.of("idle00")[-1] == "uncordon_node"


def test_a_node_that_is_not_ready_at_the_end_is_overdue_and_stays_closed() -> None:
    p = pipeline()
    start(p, "idle00", minutes=30)
    p.minutes(10)
    p.change("idle00", ready=False)
    p.minutes(60)
    assert p.of("idle00") == ["cordon_node", "drain_node"]
    assert sum(e.event == "work.overdue" for e in p.timeline) == 1
    assert any("overdue since" in e.text and "idle00 is not Ready" in e.text for e in p.timeline)
    p.change("idle00", ready=True)
    p.minutes(2)
    assert p.of("idle00")[-2:] == ["validate_node", "uncordon_node"]


def test_a_node_that_fails_its_validation_stays_closed_with_the_reason() -> None:
    p = pipeline(refuse={"validate_node": Refused("dcgm diag: memory failed")})
    start(p, "idle00", minutes=30)
    p.minutes(40)
    assert "uncordon_node" not in p.of("idle00")
    assert "undo cordon_node" not in p.of("idle00")
    (run,) = p.board.runs.values()
    assert run.outcome is RunOutcome.FAILED
    assert p.nodes["idle00"].unschedulable


def test_without_a_way_to_validate_it_the_node_stays_closed_and_that_is_said() -> None:
    p = pipeline(actions=Pipeline.actions - {"validate_node"})
    start(p, "idle00", minutes=30)
    p.minutes(40)
    assert p.of("idle00") == ["cordon_node", "drain_node"]
    assert any("left for manual handling: validate" in e.text for e in p.timeline)


def test_a_job_on_it_is_moved_through_its_controller() -> None:
    p = pipeline()
    start(p, "n2")
    assert [a for a, _ in p.made][:4] == ["cordon_node", "suspend_job", "drain_node", "resume_job"]


def test_what_goes_wrong_on_a_node_under_work_is_told_as_part_of_it() -> None:
    p = pipeline()
    start(p, "idle00")
    p.minutes(5)
    now = (p.world.now - p.world.now.replace(hour=12, minute=0, second=0)).total_seconds()
    p.see(not_ready("idle00", now), xid("idle00", 79, now))
    p.minutes(10)
    mine = [i for i in p.world.incidents() if i.root.node == "idle00"]
    live = [i for i in mine if i.state not in (IncidentState.SUPPRESSED, IncidentState.RESOLVED)]
    assert [i.family for i in live] == ["planned_work"]
    assert len(p.board.runs) == 1


def test_a_whole_rack_under_work_that_goes_away_is_no_outage() -> None:
    p = pipeline()
    start(p, *IDLE)
    p.minutes(5)
    now = 300.0
    for name in IDLE:
        p.change(name, ready=False)
    p.see(*(not_ready(name, now + i) for i, name in enumerate(IDLE)))
    p.minutes(30)
    families = {i.family for i in p.world.incidents() if i.state is not IncidentState.SUPPRESSED}
    assert families == {"planned_work"}


def test_a_node_that_does_not_exist_is_refused_and_the_others_go_on() -> None:
    p = pipeline()
    alone = start(p, "idel00")
    assert "not accepted: no such node in the inventory: idel00" in p.answer_to(alone)
    both = start(p, "idle00", "idel00")
    assert "left out, for the inventory has no such node: idel00" in p.answer_to(both)
    assert p.of("idle00")[0] == "cordon_node"


@pytest.mark.parametrize(
    ("minutes", "reason", "why"),
    [
        (-5.0, "x", "would have ended"),
        (60.0, " ", "gives no reason"),
        (60 * 24 * 30.0, "x", "at most 14 days"),
    ],
)
def test_a_request_that_cannot_be_meant_is_refused(minutes: float, reason: str, why: str) -> None:
    p = pipeline()
    told = p.say(Verb.MAINTENANCE, "idle00", until=p.after(minutes), reason=reason)
    assert why in p.answer_to(told)
    assert p.made == []


def test_many_nodes_go_in_waves_within_the_blast_radius() -> None:
    tight = policy(blast_radius=BlastRadius(max_nodes=3, max_share=1.0, max_per_window=1000))
    p = pipeline(settings=tight)
    start(p, *IDLE, minutes=600)
    closed = [n for n in IDLE if p.nodes[n].unschedulable]
    assert len(closed) == 3
    p.minutes(90)
    p.say(Verb.MAINTENANCE_STOP, *closed)
    p.minutes(5)
    later = [n for n in IDLE if p.nodes[n].unschedulable]
    assert len(later) == 3
    assert not set(later) & set(closed)


def test_what_could_not_begin_before_its_time_was_over_does_not_begin() -> None:
    tight = policy(blast_radius=BlastRadius(max_nodes=1, max_share=1.0, max_per_window=1000))
    p = pipeline(settings=tight, refuse={"validate_node": Refused("no")})
    start(p, "idle00", "idle01", minutes=30)
    p.minutes(40)
    assert [n for n, fact in sorted(p.nodes.items()) if fact.unschedulable][1:] == []
    assert any("it had not begun" in e.text for e in p.timeline)


def test_a_hundred_nodes_trip_no_breaker() -> None:
    p = pipeline()
    start(p, *IDLE)
    assert not any(e.event == "control.trip" for e in p.timeline)
    assert all(p.nodes[n].unschedulable for n in IDLE)


def test_who_may_not_approve_asks_and_an_approver_decides() -> None:
    settings = WIDE.model_copy(update={"approvers": ("grace",)})
    p = pipeline(settings=settings)
    told = start(p, "idle00", actor="mallory")
    assert "mallory may not approve it, so an approver is asked" in p.answer_to(told)
    assert p.made == []
    (run,) = p.board.runs.values()
    assert run.plan.runbook == "planned-work-asked"
    assert run.step("cordon").state is StepState.AWAITING_APPROVAL
    start(p, "idle01", actor="grace")
    assert p.of("idle01")[0] == "cordon_node"


def test_others_may_not_end_it_and_approvers_may() -> None:
    settings = WIDE.model_copy(update={"approvers": ("grace", "ada")})
    p = pipeline(settings=settings)
    start(p, "idle00", actor="ada")
    told = p.say(Verb.MAINTENANCE_STOP, "idle00", actor="mallory")
    assert "mallory is not an approver, and others asked for it" in p.answer_to(told)
    p.say(Verb.MAINTENANCE_STOP, "idle00", actor="grace")
    assert p.of("idle00")[-1] == "uncordon_node"


def test_others_may_not_take_it_over_and_approvers_may() -> None:
    settings = WIDE.model_copy(update={"approvers": ("grace", "ada")})
    p = pipeline(settings=settings)
    start(p, "idle00", actor="ada")
    told = start(p, "idle00", actor="mallory")
    assert "mallory is not an approver, and others asked for it" in p.answer_to(told)
    told = start(p, "idle00", "idle01", actor="mallory")
    assert "left out, others asked for it: idle00" in p.answer_to(told)
    told = start(p, "idle00", actor="grace")
    assert "already under work: the new end counts" in p.answer_to(told)


def test_ending_what_was_not_touched_yet_withdraws_it() -> None:
    settings = WIDE.model_copy(update={"approvers": ("grace",)})
    p = pipeline(settings=settings)
    start(p, "idle00", actor="mallory")
    p.minutes(2)
    told = p.say(Verb.MAINTENANCE_STOP, "idle00", actor="mallory")
    assert "not touched yet" in p.answer_to(told)
    p.minutes(2)
    assert p.made == []
    assert p.incident("planned_work", "idle00").state is IncidentState.RESOLVED


def test_a_node_that_an_incident_has_closed_stays_closed_for_it() -> None:
    p = pipeline()
    p.change("idle00", unschedulable=True, owner_incident="inc-other")
    start(p, "idle00")
    assert p.of("idle00")[0] == "cordon_node"
    assert p.nodes["idle00"].owners[0] == "inc-other"


def test_a_node_that_a_person_has_cordoned_is_asked_about() -> None:
    p = pipeline()
    p.change("idle00", unschedulable=True)
    start(p, "idle00")
    assert p.made == []
    (run,) = p.board.runs.values()
    assert run.step("cordon").state is StepState.AWAITING_APPROVAL


def test_an_old_command_that_is_read_again_after_the_end_begins_nothing() -> None:
    p = pipeline(refuse={"validate_node": Refused("no")})
    told = start(p, "idle00")
    p.minutes(2)
    p.say(Verb.MAINTENANCE_STOP, "idle00")
    p.repeat(told)
    assert p.incident("planned_work", "idle00").facts["work_over"] is True


def test_a_command_from_a_machine_with_a_slow_clock_counts_as_it_was_read() -> None:
    p = pipeline()
    start(p, "idle00")
    p.minutes(30)
    p.repeat(Command("cmd-slow", "", CLUSTER, Verb.MAINTENANCE_STOP, "ada", at(-3600), nodes=("idle00",)))
    assert p.of("idle00")[-1] == "uncordon_node"


def test_a_request_that_is_read_again_changes_nothing() -> None:
    p = pipeline()
    told = start(p, "idle00")
    p.repeat(told)
    p.minutes(5)
    assert p.of("idle00") == ["cordon_node", "drain_node"]
    assert len(p.board.runs) == 1


def test_the_same_node_again_next_week_is_another_incident() -> None:
    p = pipeline()
    start(p, "idle00", minutes=10)
    p.minutes(20)
    first = p.incident("planned_work", "idle00")
    start(p, "idle00", minutes=10)
    p.minutes(20)
    second = p.incident("planned_work", "idle00")
    assert first.id != second.id
    assert p.of("idle00").count("uncordon_node") == 2


def test_in_shadow_mode_nothing_is_closed() -> None:
    p = pipeline(settings=WIDE.model_copy(update={"mode": Mode.SHADOW}))
    start(p, "idle00")
    assert p.made == []


def test_a_control_plane_node_is_refused_as_ever() -> None:
    p = pipeline()
    p.tell(node_fact("master", control_plane=True))
    assert isinstance(p.nodes["master"], NodeFact)
    start(p, "master")
    assert p.of("master") == []
