"""What a commit writes down has a name, so that a test can kill the responder right before and right after it."""

from __future__ import annotations

from connectors.base import Done
from runbooks.engine.crash_points import name_of, names_written
from streams.model.run import Mode
from tests.runbooks.scenes import Play, incident, policy


def test_a_new_run_and_the_call_it_makes_have_names() -> None:
    play = Play(incident())
    assert names_written({}, [play.run], commands=False) == ["begin"]
    turn = play.tick()
    assert sorted(map(name_of, turn.calls)) == ["cordon_node", "open_ticket"]
    assert names_written({play.run.id: play.run}, [play.run], commands=True) == ["command"]


def test_steps_of_the_engine_itself_have_names_when_they_move_and_the_run_when_it_ends() -> None:
    play = Play(incident())
    play.play(until="verify_job")
    before = play.run
    play.answer(Done(), "verify_job")
    assert names_written({before.id: before}, [play.run], commands=False) == ["await_progress"]
    before = play.run
    play.tick(3600)
    assert names_written({before.id: before}, [play.run], commands=False) == ["await_progress", "finish"]


def test_an_approval_that_is_asked_for_has_a_name() -> None:
    play = Play(incident(), policy(mode=Mode.APPROVE))
    before = play.run
    play.tick()
    assert names_written({before.id: before}, [play.run], commands=False) == ["approval"]
