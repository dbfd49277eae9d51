"""What is stored of pods that go on failing for a service: little, and enough for the next process to know the same."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from streams.correlate import Config, Engine
from streams.correlate.state.rows import LastingFailure
from streams.model.entity import Entity, PodRef
from streams.model.signal import Signal
from tests.streams.correlate.world import CLUSTER, START, _signal, at, cluster

POD = PodRef("train", "llm-worker-0")
ROWS = cluster({"llm": ["n0", "n1"]})


class CountedRows(dict[str, bytes]):
    """Rows that count how often one of each kind is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: Counter[str] = Counter()

    def __setitem__(self, key: str, value: bytes) -> None:
        super().__setitem__(key, value)
        self.written[key.partition("/")[0]] += 1


def fails(seconds: float, subtype: str = "image_pull") -> Signal:
    said = {"subtype": subtype, "registry": "registry.east.example"}
    return _signal("job.failed", Entity(CLUSTER, node="n0", pod=POD), seconds, dict(said))


def started(rows: CountedRows) -> Engine:
    engine = Engine(CLUSTER, rows, Config())
    if not rows:
        for fact in ROWS:
            engine.on_fact(fact.key, fact, at(-60))
    return engine


def stretches(engine: Engine) -> list[tuple[float, float]]:
    known: tuple[LastingFailure, ...] = engine._state.pods[POD.key].lasting or ()
    return [((one.since - START).total_seconds(), (one.until - START).total_seconds()) for one in known]


@pytest.mark.parametrize(("every", "most"), [(30, 15), (120, 12), (300, 10)])
def test_a_pod_that_tries_again_for_three_hours_is_stored_now_and_then(every: int, most: int) -> None:
    rows = CountedRows()
    engine = started(rows)
    rows.written.clear()
    for second in range(0, 3 * 3600, every):
        engine.on_signals([fails(second)], None)
    assert stretches(engine) == [(0, 3 * 3600 - every)]
    assert rows.written["pod"] <= most


@pytest.mark.parametrize("seed", range(6))
def test_a_restart_at_any_time_knows_the_same_stretches(seed: int) -> None:
    """Tries at any pace, pauses on both sides of the quarter hour that ends a stretch, and lines that come late."""
    r = random.Random(seed)
    moments, second = [], 0.0
    for _ in range(150):
        second += r.choice((5, 20, 60, 300, 300, 700, r.uniform(800, 1000)))
        moments.append((second, r.choice(("image_pull", "image_pull", "image_missing"))))
    late = [(second + r.choice((0, 0, 0, 2000)), second, kind) for second, kind in moments]
    rows = CountedRows()
    engine = started(rows)
    for _, second, kind in sorted(late):
        engine.on_signals([fails(second, kind)], None)
        if r.random() < 0.2:
            assert stretches(started(rows)) == stretches(engine)
            engine = started(rows) if r.random() < 0.5 else engine
