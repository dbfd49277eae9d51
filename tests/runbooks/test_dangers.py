"""What goes wrong between a run, its incident, other runs and people, and must not end badly."""

from __future__ import annotations

from runbooks.board import Board
from streams.model.conversation import Command, Verb
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
    for fact in (*view.nodes.values(), *view.pods.values(), *view.jobs.values()):
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
