"""What was done is taken back in reverse, also where a call to do so is put off."""

from __future__ import annotations

from dataclasses import replace

import pytest

from connectors.base import Blocked, Done, Outcome, Refused, Retry
from runbooks.decisions import revised
from streams.model.incident import IncidentState
from tests.runbooks.scenes import ACTIONS, Play, incident


@pytest.mark.parametrize(
    "put_off",
    [Retry(30.0, "429"), Blocked("incident inc-2", "it is suspended for another incident", after_s=30.0)],
)
def test_a_node_stays_closed_until_the_job_that_was_stopped_for_it_is_given_back(put_off: Outcome) -> None:
    play = _over_while_draining()
    play.answer(put_off, "suspend_job")
    assert play.air == []
    play.tick(31)
    assert [(call.kind, call.effect.action) for call in play.air] == [("undo", "suspend_job")]
    play.play()
    assert play.made[-2:] == ["undo suspend_job", "undo cordon_node"]
    assert not play.run.has_work


def test_an_undo_that_never_will_be_holds_up_nothing() -> None:
    play = _over_while_draining()
    play.answer(Refused("no permission"), "suspend_job")
    assert [(call.kind, call.effect.action) for call in play.air] == [("undo", "cordon_node")]


def _over_while_draining() -> Play:
    """The incident turned out to be over; the first thing to be taken back is on its way."""
    play = Play(incident(), actions=ACTIONS - {"open_ticket"})
    play.play(until="drain_node")
    play.about = replace(play.about, revision=2, state=IncidentState.RESOLVED)
    play.take(revised(play.run, play.about, None, play.now))
    play.answer(Done(), "drain_node")
    assert [(call.kind, call.effect.action) for call in play.air] == [("undo", "suspend_job")]
    return play
