"""What goes wrong between a run, its incident, other runs and people, and must not end badly."""

from __future__ import annotations

import pytest

from connectors.base import Done, Retry
from runbooks.board import Board
from runbooks.model import TICKETS, Runbook
from runbooks.select import select
from streams.model.codec import decode, encode
from streams.model.conversation import Command, Verb
from streams.model.entity import Entity, JobRef
from streams.model.errors import BadInput
from streams.model.inventory import Fact
from streams.model.run import Mode, RunState, StepState
from tests.runbooks.scenes import (
    ACTIONS,
    AUTO,
    CLUSTER,
    JOB,
    LIBRARY,
    NOW,
    OTHER_JOB,
    Play,
    at,
    cluster,
    incident,
    policy,
)
from tests.runbooks.test_run import decide, revise

TICKETLESS = ACTIONS - {"open_ticket"}


def board(settings: object = AUTO, actions: frozenset[str] = TICKETLESS) -> Board:
    """A board that knows the cluster."""
    made = Board(LIBRARY, settings, actions)  # type: ignore[arg-type]
    view = cluster()
    facts: list[Fact] = [*view.nodes.values(), *view.pods.values(), *view.jobs.values()]
    for fact in facts:
        made.take_fact(fact.key, fact)
    return made


def command(verb: Verb, **changes: object) -> Command:
    return Command(f"cmd-{verb}", incident().id, CLUSTER, verb, "ada", NOW, **changes)  # type: ignore[arg-type]


def test_who_said_stop_while_nobody_was_there_to_act_is_heard_before_the_run_begins() -> None:
    for order in (("stop", "incident"), ("incident", "stop")):
        played = board()
        for what in order:
            if what == "stop":
                played.take_command(command(Verb.STOP))
            else:
                played.take_incident(incident())
        played.advance(NOW)
        changes = played.collect()
        assert changes.calls == ()
        assert [run.state for run in changes.runs] == [RunState.CANCELLED]
        assert any(entry.event == "person.stopped" for entry in changes.timeline)


def test_a_job_is_not_kept_suspended_by_a_kill_switch_that_stays_on() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="suspend_job")
    play.settings = policy(kill_switch=True)
    play.play()
    assert play.state("drain") is StepState.BLOCKED
    play.tick(599)
    assert play.air == []
    play.tick(2)
    assert play.state("drain") is StepState.FAILED
    assert [c.effect.action for c in play.air] == ["resume_job"]


def test_a_question_in_the_middle_keeps_no_job_suspended_for_hours() -> None:
    play = Play(incident(), settings=policy(mode=Mode.APPROVE), actions=TICKETLESS)
    play.tick()
    decide(play, Verb.APPROVE)
    play.play(until="suspend_job")
    revise(play, jobs=(JOB, OTHER_JOB))
    play.play()
    assert play.stands() is RunState.AWAITING_APPROVAL
    play.tick(599)
    assert play.air == []
    play.tick(2)
    assert play.run.outcome == "expired"
    assert [(c.kind, c.effect.target.name) for c in play.air] == [("undo", JOB.name)]


@pytest.mark.parametrize("runbook", LIBRARY, ids=lambda r: r.id)
def test_a_ticket_system_may_be_down_for_hours_and_still_gets_its_ticket(runbook: Runbook) -> None:
    assert all(s.deadline_s >= 12 * 3600 for s in runbook.steps if s.action in TICKETS)


def test_after_an_hour_without_the_ticket_system_the_ticket_is_opened() -> None:
    play = Play(incident())
    play.tick()
    for _ in range(80):
        if play.air:
            down = play.air[0].effect.action == "open_ticket"
            play.answer(Retry(5.0, "connection refused") if down else Done())
        play.tick(61)
    assert play.stands() is RunState.SUCCEEDED
    play.answer(Done({"ticket": "GPU-1"}), "open_ticket")
    assert play.state("ticket") is StepState.DONE


def test_a_record_that_is_odd_is_refused_where_it_is_read_and_stops_nobody() -> None:
    for value in (incident(), command(Verb.STOP)):
        with pytest.raises(BadInput, match="timezone"):
            decode(type(value), encode(value).replace(b"12:00:00Z", b"12:00:00"))


def test_a_number_too_large_for_conditions_stops_nobody() -> None:
    played = board()
    played.take_incident(incident(facts={"xid": 2**80, "xids": (2**80,)}))
    played.advance(NOW)
    assert [call.effect.action for call in played.collect().calls] == ["cordon_node"]


def test_a_runbook_whose_condition_is_no_yes_or_no_is_passed_over_with_its_fault() -> None:
    faulty = LIBRARY[0].model_copy(update={"id": "faulty", "match": "incident.family", "priority": 1000})
    choice = select(incident(), (*LIBRARY, faulty))
    assert choice.runbook is not None
    assert choice.runbook.id == "gpu-off-bus"
    assert "not true or false" in dict(choice.rejected)["faulty"]


def test_an_incident_too_large_to_write_down_is_left_to_people_and_stops_nobody() -> None:
    crowd = tuple(JobRef("Job", "mig", f"tenant-{i:04}", f"uid-{i}") for i in range(400))
    played = board()
    played.take_incident(incident(jobs=crowd))
    played.take_incident(incident(root=Entity(CLUSTER, node="node-07")))
    played.advance(NOW)
    changes = played.collect()
    assert [call.effect.target.name for call in changes.calls] == ["node-07"]
    assert any("at most" in entry.text for entry in changes.timeline if entry.incident == incident().id)

    played = board()
    played.take_incident(incident())
    played.advance(NOW)
    played.take_incident(incident(jobs=crowd, revision=2))
    played.advance(at(1))
    run = played.runs[next(iter(played.runs))]
    assert len(run.steps) < 20
    assert any("at most" in entry.text for entry in played.collect().timeline)
