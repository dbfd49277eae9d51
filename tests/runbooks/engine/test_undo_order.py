"""What was done is taken back in reverse, also where a call to do so is put off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from connectors.base import Blocked, Done, Outcome, Refused, Retry, Waiting
from runbooks.engine.run.human_decisions import revised
from runbooks.language.loader import load_text
from runbooks.language.schema import NODE_WORK
from streams.model.conversation import Verb
from streams.model.incident import IncidentState
from streams.model.run import RunState
from tests.runbooks.engine.test_run import decide
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


def test_an_undo_is_told_what_the_effect_found_and_what_its_own_earlier_calls_said() -> None:
    play = Play(incident(), actions=ACTIONS - {"open_ticket"})
    play.play(until="suspend_job")
    play.answer(Waiting(10.0, "pods are ending", {"pods": 3}), "suspend_job")
    play.tick(11)
    play.play(until="drain_node")
    play.about = replace(play.about, revision=2, state=IncidentState.RESOLVED)
    play.take(revised(play.run, play.about, None, play.now))
    play.answer(Done(), "drain_node")
    assert [(call.kind, call.effect.prior["pods"]) for call in play.air] == [("undo", 3)]
    play.answer(Waiting(2.0, "it has to rest", {"rested": True}), "suspend_job")
    play.tick(3)
    assert [(call.kind, dict(call.effect.prior)) for call in play.air] == [
        ("undo", {"pods": 3, "rested": True})
    ]


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


WORKERS = (ACTIONS | NODE_WORK) - {"open_ticket"}


def test_a_node_in_the_middle_of_its_reset_is_validated_before_it_is_given_back() -> None:
    """The fault clears because the reset works: that is no reason to open the node under it."""
    play = Play(incident("gpu_fault", jobs=()), actions=WORKERS)
    play.tick()
    decide(play, Verb.APPROVE)
    play.play(until="reset_gpu")
    play.answer(Waiting(10.0, "the Job runs"), "reset_gpu")
    _is_over(play)
    _is_over(play)
    assert play.air == []
    assert len([note for note in play.notes if note.startswith("run.goes_on")]) == 1
    play.tick(11)
    play.play()
    assert play.made == ["cordon_node", "drain_node", "reset_gpu", "validate_node", "uncordon_node"]
    assert play.run.state is RunState.SUCCEEDED


def test_a_node_that_fails_its_validation_after_its_incident_is_over_stays_closed() -> None:
    play = Play(incident("gpu_fault", jobs=()), actions=WORKERS)
    play.tick()
    decide(play, Verb.APPROVE)
    play.play(until="validate_node")
    _is_over(play)
    play.answer(Refused("exit code 1"), "validate_node")
    play.play()
    assert play.run.state is RunState.FAILED
    assert play.made == ["cordon_node", "drain_node", "reset_gpu"]


def test_a_merge_leaves_a_node_to_the_incident_that_accuses_it_too() -> None:
    play = Play(incident("gpu_fault", jobs=()), actions=WORKERS)
    play.tick()
    decide(play, Verb.APPROVE)
    play.play(until="reset_gpu")
    play.answer(Waiting(10.0, "the Job runs"), "reset_gpu")
    _is_over(play, state=IncidentState.MERGED, merged_into="inc-2", keep={"node-03": "inc-2"})
    assert play.run.outcome == "cancelled"
    assert play.run.step("cordon").kept_for == "inc-2"


def test_a_node_whose_reboot_may_still_go_on_is_not_opened_by_a_runbook_that_never_gives_it_back() -> None:
    one = load_text(
        """
id: ours
revision: 1
owner: x
mode: auto
priority: 900
description: a reboot at the end
match: incident.family == "gpu_off_bus"
steps:
  - {id: cordon, action: cordon_node, target: root_node, undo: true}
  - {id: reboot, action: reboot_node, target: root_node, needs: [cordon]}
""",
        "ours.yaml",
    )
    play = Play(incident(jobs=()), actions=WORKERS, library=(one,))
    play.play(until="reboot_node")
    play.answer(Waiting(10.0, "it goes down"), "reboot_node")
    _is_over(play)
    play.play()
    assert play.made == ["cordon_node"]
    assert (play.run.outcome, play.run.has_work) == ("cancelled", False)
    assert any(note.startswith("run.leaves") and "node-03" in note for note in play.notes)


def _is_over(play: Play, *, keep: Any = None, **changes: Any) -> None:
    state = {"state": IncidentState.RESOLVED, **changes}
    play.about = replace(play.about, revision=play.about.revision + 1, **state)
    play.take(revised(play.run, play.about, None, play.now, keep or {}))
    play.tick()
