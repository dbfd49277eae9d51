"""Whole simulated faults, as the detector tells of them, brought late, twice and with restarts: the same incidents.

The quick tier plays a handful of different kinds; `TEST_EFFORT=full` plays all of `bench/scenarios.yaml` (minutes).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from faultline.replay import pipeline
from faultline.replay.replay import replay_capture
from sandbox.simulation.campaign import NoPlace, simulate
from sandbox.simulation.scenario import load
from streams.correlate import Changes, Engine
from streams.model.facts import Fact
from streams.model.incident import Incident
from streams.model.signal import Signal
from tests.effort import FULL
from tests.streams.correlate.deliveries import essence, standing

SCENARIOS = load(Path(__file__).parents[3] / "bench" / "scenarios.yaml")
FEW = ("tensor_rank_hang", "host_oom", "storage_lustre", "nic_flap")
NAMES = sorted(SCENARIOS.keys() - {"month"}) if FULL else FEW
NODES = 16

Told = tuple[str, Fact | None] | tuple[Signal, ...]
Arrival = tuple[datetime, Told]


def recorded(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[Arrival]]:
    """What the correlator is told in a run of the scenario, in order, with the answers of a responder in shadow."""
    arrivals: list[Arrival] = []

    class Recording(Engine):
        def on_signals(self, signals: Sequence[Signal], now: datetime | None) -> Changes:
            assert now is not None
            arrivals.append((now, tuple(signals)))
            return super().on_signals(signals, now)

        def on_fact(self, key: str, fact: Fact | None, at: datetime) -> Changes:
            arrivals.append((at, (key, fact)))
            return super().on_fact(key, fact, at)

    monkeypatch.setattr(pipeline, "Engine", Recording)
    capture = simulate(SCENARIOS[name].sized(NODES).bare(), 1).capture
    replay_capture(capture)
    return capture.meta.cluster, arrivals


def disturbed(arrivals: Sequence[Arrival], seed: int) -> list[Arrival]:
    """Half of the signals up to five minutes late, some twice, none in its batch; facts late by up to a minute."""
    chance = random.Random(seed)
    found: list[Arrival] = []
    for at, told in arrivals:
        if _is_fact(told):
            found.append((at + timedelta(seconds=chance.uniform(0, 60)), told))
            continue
        for signal in told:
            for _ in range(1 + (chance.random() < 0.1)):
                late = chance.uniform(0, 300 if chance.random() < 0.5 else 3)
                found.append((at + timedelta(seconds=late), (signal,)))  # type: ignore[arg-type]
    return found


def outcome(
    cluster: str, arrivals: Sequence[Arrival], *, restarts: float = 0, is_written: bool = True
) -> list[Incident]:
    """What stands in the end, half an hour after the last arrival."""
    chance = random.Random(1)
    rows: dict[str, bytes] | None = {} if is_written else None
    engine = Engine(cluster, rows)
    published: dict[str, Incident] = {}
    step = timedelta(seconds=10)
    told = sorted(arrivals, key=lambda arrival: arrival[0])
    now = told[0][0] - step

    def note(changes: Changes) -> None:
        published.update({incident.id: incident for incident in changes.incidents})

    for at, what in told:
        while now + step < at:
            now += step
            note(engine.on_tick(now))
        now = max(now, at)
        if _is_fact(what):
            note(engine.on_fact(what[0], what[1], now))  # type: ignore[arg-type]
        else:
            note(engine.on_signals(what, now))  # type: ignore[arg-type]
        if chance.random() < restarts:
            engine = Engine(cluster, rows)
    for _ in range(180):
        now += step
        note(engine.on_tick(now))
    return standing(published)


def _is_fact(told: Told) -> bool:
    return isinstance(told[0], str)


@pytest.mark.parametrize("name", NAMES)
def test_a_simulated_fault_ends_alike_however_late_it_is_told(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        cluster, arrivals = recorded(name, monkeypatch)
    except NoPlace:
        pytest.skip(f"{NODES} nodes have no place for it")
    expected = outcome(cluster, arrivals)
    assert expected
    found = outcome(cluster, disturbed(arrivals, seed=len(name)), restarts=0.02)
    assert list(map(essence, found)) == list(map(essence, expected))


def test_state_that_is_not_written_decides_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, arrivals = recorded("tensor_rank_hang", monkeypatch)
    assert outcome(cluster, arrivals, is_written=False) == outcome(cluster, arrivals)
