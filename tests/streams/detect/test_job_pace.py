"""A job that has become slower than it was itself says so, once; what a busy job does all day does not."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import orjson
import pytest

from streams.detect import Detector
from streams.model.signal import Signal, SignalState
from tests.streams.detect.lines import NOW, record

Steps = Iterable[tuple[float, int]]
"""Seconds, and the step that is logged then."""


def at_pace(*parts: tuple[float, float], every: float = 60, first: int = 1000) -> list[tuple[float, int]]:
    """Minutes at so many steps a minute, one after the other."""
    told, now, step = [], 0.0, float(first)
    for minutes, pace in parts:
        for _ in range(int(minutes * 60 / every)):
            told.append((now, int(step)))
            now, step = now + every, step + pace * every / 60
    return told


def line(at: datetime, step: int) -> bytes:
    pod = {"pod_name": "llm-0", "namespace_name": "ml", "host": "gpu-1"}
    return orjson.dumps(
        {"@timestamp": at.timestamp(), "log": f"step: {step} loss: 2.31\n", "kubernetes": pod}
    )


def slow(steps: Steps) -> list[Signal]:
    detector, found = Detector("c1"), list[Signal]()
    for number, (seconds, step) in enumerate(steps):
        at = NOW + timedelta(seconds=seconds)
        got = detector.detect(record(line(at, step), topic="raw.job-logs", at=at, offset=number)).signals
        found += [s for s in got if s.kind == "job.stalled"]
    return found


def test_a_job_at_half_its_pace_is_slow_until_it_is_well_again() -> None:
    firing, cleared = slow(at_pace((60, 10), (40, 5), (30, 10)))
    assert (firing.attributes["subtype"], firing.attributes["percent"]) == ("slow", 50)
    began = firing.occurred_at - timedelta(milliseconds=int(str(firing.attributes["elapsed_ms"])))
    assert abs(began - (NOW + timedelta(minutes=60))) <= timedelta(minutes=5)
    assert (cleared.state, cleared.attributes["subtype"]) == (SignalState.CLEARED, "slow")


USUAL = {
    "the same all day": at_pace((300, 10)),
    "an evaluation every half hour": at_pace(*[(25, 10), (8, 1)] * 6),
    "batches of other lengths": at_pace(*[(20, 10), (20, 8.5)] * 4),
    "a warm-up": at_pace((20, 3), (120, 10)),
    "a restart from an older step": [*at_pace((60, 10)), *((7200 + t, s - 300) for t, s in at_pace((60, 10)))],
    "a step now and then": at_pace((600, 0.1), every=1200),
}  # fmt: skip


@pytest.mark.parametrize("name", USUAL)
def test_what_a_job_does_all_day_is_not_slow(name: str) -> None:
    assert not slow(USUAL[name])


def test_one_line_of_a_clock_that_is_far_ahead_silences_nothing() -> None:
    detector, found = Detector("c1"), list[Signal]()
    for number, (seconds, step) in enumerate(at_pace((60, 10), (40, 5))):
        at = NOW + timedelta(seconds=seconds)
        said = at + timedelta(days=30) if number == 20 else at
        found += detector.detect(record(line(said, step), topic="raw.job-logs", at=at, offset=number)).signals
    assert [s.attributes["subtype"] for s in found if s.kind == "job.stalled"] == ["slow"]
