"""What the responder counts while a run goes its way."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from connectors.base import Done, Refused, Retry, Unknown
from runbooks.engine.figures import ResponderFigures
from runbooks.engine.partition_state import PartitionState
from runbooks.engine.run.transition import TransitionResult
from streams.model.control import Control, Freeze, Switch, Trip
from streams.model.conversation import TimelineEntry
from streams.model.incident import Certainty
from streams.model.run import Mode, Run, RunState
from streams.telemetry import metrics as shown
from streams.telemetry.registry import Metrics
from tests.runbooks.scenes import ACTIONS, AUTO, CLUSTER, LIBRARY, NOW, Play, incident, policy


@dataclass
class Counted(Play):
    """A run each of whose turns is committed and counted."""

    metrics: Metrics = field(default_factory=lambda: Metrics("responder"))
    known: Run | None = None

    def take(self, turn: TransitionResult) -> TransitionResult:
        super().take(turn)
        notes = (
            TimelineEntry(self.about.id, CLUSTER, self.now, "responder", n.event, n.text, n.attributes)
            for n in turn.notes
        )
        figures = ResponderFigures(self.metrics, self.settings)
        figures.committed([(self.known, turn.run)], notes, lambda name: self.about)
        self.known = turn.run
        return turn

    def effects(self, action: str, outcome: str) -> float:
        return self.metrics.value(shown.EFFECTS, action, outcome)


def test_what_a_responder_can_do_is_at_zero_before_it_is_done() -> None:
    metrics = Metrics("responder")
    ResponderFigures(metrics, AUTO, ["cordon_node", "open_ticket"])
    text = metrics.exposition("")[0].decode()
    assert 'faultline_effects_total{action="open_ticket",outcome="unknown"} 0.0' in text
    assert 'faultline_effect_delay_seconds_count{action="cordon_node"} 0.0' in text
    assert 'faultline_in_flight_calls{system="tickets"} 0.0' in text


def test_a_run_that_goes_well_counts_each_effect_once_and_how_long_it_took() -> None:
    play = Counted(incident())
    play.about = replace(
        play.about, fault_at=NOW - timedelta(seconds=5), opened_at=NOW - timedelta(seconds=1)
    )
    play.progress()
    play.now = NOW + timedelta(seconds=1)
    play.play()
    assert play.effects("cordon_node", "confirmed") == 1
    assert play.effects("resume_job", "confirmed") == 1
    assert play.metrics.value(shown.RUNS_ENDED, "succeeded") == 0
    play.now = NOW + timedelta(seconds=100)
    play.progress()
    play.tick()
    assert play.stands() is RunState.SUCCEEDED
    metrics = play.metrics
    assert metrics.value(shown.RUNS_ENDED, "succeeded") == 1
    assert metrics.value(shown.EFFECT_DELAY, "cordon_node") == 1
    assert metrics.value(shown.FAULT_TO_EFFECT) == 1
    assert metrics.value(shown.JOB_RECOVERY) == 1
    text = metrics.exposition("")[0].decode()
    assert 'faultline_effect_delay_seconds_sum{action="cordon_node"} 2.0' in text
    assert "faultline_fault_to_effect_seconds_sum 6.0" in text
    assert "faultline_job_recovery_seconds_sum 105.0" in text


@pytest.mark.parametrize(
    ("outcome", "counted"),
    [(Retry(1.0, "busy"), "failed"), (Unknown("cut off"), "unknown"), (Refused("no rights"), "refused")],
)
def test_a_call_that_does_not_succeed_counts_as_what_became_of_it(outcome: Any, counted: str) -> None:
    play = Counted(incident())
    play.play(until="cordon_node")
    play.answer(outcome, "cordon_node")
    found = {name: play.effects("cordon_node", name) for name in shown.EFFECT_OUTCOMES}
    assert found == dict.fromkeys(shown.EFFECT_OUTCOMES, 0.0) | {counted: 1.0}
    assert play.metrics.value(shown.EFFECT_DELAY, "cordon_node") == 0


def test_in_shadow_mode_nothing_is_confirmed_and_what_would_be_done_is_counted() -> None:
    play = Counted(incident(), policy(mode=Mode.SHADOW))
    play.play()
    assert play.stands() is RunState.SHADOWED
    assert play.effects("cordon_node", "would") == 1
    assert play.effects("cordon_node", "confirmed") == 0
    assert play.metrics.value(shown.RUNS_ENDED, "shadowed") == 1
    assert play.metrics.value(shown.FAULT_TO_EFFECT) == 0


def test_an_objection_counts_once_by_its_rule_however_often_the_step_is_looked_at() -> None:
    play = Counted(incident(certainty=Certainty.LIKELY))
    play.play()
    for _ in range(20):
        play.tick(10)
    assert play.metrics.value(shown.REFUSALS, "certainty", "ask") >= 1
    before = play.metrics.value(shown.REFUSALS, "certainty", "ask")
    play.tick(10)
    assert play.metrics.value(shown.REFUSALS, "certainty", "ask") == before
    assert play.metrics.value(shown.REFUSALS, "certainty", "refuse") == 0


def test_what_a_person_started_by_hand_tells_nothing_of_how_fast_we_are() -> None:
    play = Counted(incident())
    play.run = replace(play.run, started_by="ada")
    play.play(until="cordon_node")
    play.answer(Done(), "cordon_node")
    assert play.effects("cordon_node", "confirmed") == 1
    assert play.metrics.value(shown.EFFECT_DELAY, "cordon_node") == 0


def test_switches_runs_and_calls_are_shown_as_they_stand() -> None:
    metrics = Metrics("responder")
    figures = ResponderFigures(metrics, AUTO)
    state = PartitionState(LIBRARY, AUTO, ACTIONS)
    state.take_control(
        Control(
            CLUSTER,
            1,
            kill_switch=Switch("ada", NOW),
            breaker=Trip("failures", NOW, "3 of 4"),
            freezes=(Freeze("", "ada", NOW), Freeze("pool:a", "bo", NOW)),
        )
    )
    figures.look([state])
    found = [metrics.value(one) for one in (shown.KILL_SWITCH, shown.BREAKER_OPEN, shown.FREEZES)]
    assert found == [1, 1, 2]
    assert metrics.value(shown.MODE, "auto") == 1
    figures.look([])
    assert metrics.value(shown.KILL_SWITCH) == 0


def test_an_effect_counts_as_unknown_until_it_was_looked_up() -> None:
    play = Counted(incident())
    play.play(until="cordon_node")
    play.answer(Unknown("cut off"), "cordon_node")
    figures = ResponderFigures(play.metrics, AUTO)

    def unknown() -> float:
        figures.look([PartitionState(LIBRARY, AUTO, ACTIONS, {play.run.id: play.run})])
        return play.metrics.value(shown.UNKNOWN_EFFECTS, "cordon_node")

    assert unknown() == 1
    play.tick(10)
    play.answer(Done(), "cordon_node")
    assert play.effects("cordon_node", "confirmed") == 1
    assert unknown() == 0


def test_a_kill_switch_in_the_settings_shows_before_any_cluster_is_known() -> None:
    metrics = Metrics("responder")
    ResponderFigures(metrics, policy(kill_switch=True)).look([])
    assert metrics.value(shown.KILL_SWITCH) == 1
