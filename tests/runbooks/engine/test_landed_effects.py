"""A change that has taken hold is given back, also where a later call for it is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from connectors.base import Absent, AlreadyDone, Blocked, Done, Outcome, Refused, Retry, Unknown, Waiting
from runbooks.engine.containment import ticket_of
from runbooks.engine.run.human_decisions import decided, revised
from runbooks.engine.run.outcomes import recover
from streams.model.conversation import Command, Verb
from streams.model.incident import IncidentState
from streams.model.run import EffectState, RunState, StepState
from tests.runbooks.scenes import ACTIONS, CLUSTER, Play, incident

TICKET = {"ticket": "GPU-7", "id": "7", "url": "https://tickets.example/7"}
FOLLOWS = Waiting(0.0, "opened GPU-7; its evidence follows", TICKET)


def test_a_job_whose_suspension_was_refused_half_way_is_resumed() -> None:
    play = Play(incident(), actions=ACTIONS - {"open_ticket"})
    play.play(until="suspend_job")
    play.answer(Waiting(1.0, "2 pods are still there"), "suspend_job")
    play.tick(2)
    play.answer(Refused("no permission any more"), "suspend_job")
    play.play()
    assert play.made[-1] == "undo suspend_job"
    assert play.run.state is RunState.FAILED
    assert not play.run.has_work


def test_what_was_refused_at_once_was_never_made() -> None:
    play = Play(incident(), actions=ACTIONS - {"open_ticket"})
    play.play(until="suspend_job")
    play.answer(Refused("no permission"), "suspend_job")
    play.play()
    assert "undo suspend_job" not in play.made
    suspended = next(p.id for p in play.run.plan.steps if p.action == "suspend_job")
    effect = play.run.step(suspended).effect
    assert effect is not None
    assert effect.state is EffectState.REFUSED


def ended(play: Play, how: str) -> None:
    """The incident ends, or a person stops the run."""
    if how == "incident":
        over = replace(play.about, state=IncidentState.RESOLVED, revision=play.about.revision + 1)
        play.take(revised(play.run, over, None, play.now))
        play.about = over
    else:
        stop = Command("c-1", play.about.id, CLUSTER, Verb.STOP, "ann", play.now)
        play.take(decided(play.run, stop, play.settings, play.now))
    play.tick()


@pytest.mark.parametrize("how", ["incident", "person"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], [Done(TICKET, "opened GPU-7")]),
        ([], [FOLLOWS]),
        ([], [Unknown("no answer"), AlreadyDone(TICKET, "opened GPU-7")]),
        ([], [Unknown("no answer"), Waiting(0.0, "evidence is to be attached to GPU-7", TICKET)]),
        ([Waiting(30.0, "opened GPU-7; looking for copies", TICKET)], []),
        ([FOLLOWS], [Retry(5.0, "connection refused")]),
        ([FOLLOWS], [Blocked("a ticket that is not found", "GPU-7 is not found by its mark")]),
        ([FOLLOWS], [Refused("no permission any more")]),
    ],
)
def test_a_ticket_that_was_made_while_its_run_ended_is_done_and_named(
    how: str, before: list[Outcome], after: list[Outcome]
) -> None:
    play = Play(incident())
    play.play(until="open_ticket")
    for outcome in before:
        play.answer(outcome, "open_ticket")
    ended(play, how)
    for outcome in after:
        play.answer(outcome, "open_ticket")
        play.tick(2)
    assert play.state("ticket") is StepState.DONE
    ticket = ticket_of([play.run])
    assert ticket is not None
    assert ticket.key == "GPU-7"
    assert "GPU-7" in next(note for note in reversed(play.notes) if note.startswith("step.done open_ticket"))
    assert not [call for call in play.air if call.effect.action == "open_ticket"]


@pytest.mark.parametrize("outcome", [Retry(5.0, "connection refused"), Refused("no such project")])
def test_a_ticket_that_was_not_made_while_its_run_ended_is_cancelled(outcome: Outcome) -> None:
    play = Play(incident())
    play.play(until="open_ticket")
    ended(play, "person")
    play.answer(outcome, "open_ticket")
    assert play.state("ticket") is StepState.CANCELLED
    assert ticket_of([play.run]) is None


def test_a_successor_looks_up_the_ticket_of_a_run_that_has_ended() -> None:
    play = Play(incident())
    play.play(until="open_ticket")
    ended(play, "incident")
    play.air.clear()
    play.take(recover(play.run, play.now))
    play.tick(120)
    while play.state("ticket") is not StepState.DONE:
        play.answer(AlreadyDone(TICKET) if play.air[0].effect.action == "open_ticket" else Absent())
    assert ticket_of([play.run]) is not None
