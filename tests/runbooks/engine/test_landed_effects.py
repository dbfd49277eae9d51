"""A change that has taken hold is given back, also where a later call for it is refused."""

from __future__ import annotations

from connectors.base import Refused, Waiting
from streams.model.run import EffectState, RunState
from tests.runbooks.scenes import ACTIONS, Play, incident


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
