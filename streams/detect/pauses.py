"""PFC storms as pause counters show them: what share of the time a NIC is stopped, or stops its switch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Literal

import re2
from pydantic import BaseModel, ConfigDict

from streams.detect.catalog import load_catalog
from streams.detect.finding import Finding, Recent, Stream
from streams.model.record import Sample
from streams.model.signal import Severity, SignalState

Measure = Literal["duration", "frames", "events"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Metric(_Strict):
    """One counter: `pattern` has a group `priority` where the counter belongs to one."""

    pattern: str
    measures: Measure
    direction: str


class Threshold(_Strict):
    """When a storm begins and ends, in the measure's own unit per second (a fraction for `duration`)."""

    fire: float
    clear: float
    intervals: int


class Sheet(_Strict):
    """`catalog/pauses.yaml`."""

    metrics: tuple[Metric, ...]
    duration: Threshold
    frames: Threshold
    events: Threshold
    severity: Severity
    nic_labels: tuple[str, ...]


@cache
def _sheet() -> Sheet:
    return load_catalog("pauses", Sheet)


@dataclass(frozen=True, slots=True)
class Counter:
    """What is remembered of one counter. `over` counts intervals above the threshold, one after the other."""

    value: float
    at: datetime
    over: int = 0
    firing: bool = False


_MAX_COUNTERS = 200_000

_Key = tuple[str, str, str, str, int]


class PauseCounters:
    """Reads samples. Remembers each counter's last value."""

    hints = (rb"prio[0-7]_pause", rb"_pause_storm_error_events")

    def __init__(self) -> None:
        self._metrics = [(re2.compile(metric.pattern), metric) for metric in _sheet().metrics]
        self._counters: Recent[tuple[_Key, Measure], Counter] = Recent(_MAX_COUNTERS)

    def read(self, sample: Sample, stream: Stream) -> Iterator[Finding]:
        """A storm's begin or end, when this sample shows it."""
        for pattern, metric in self._metrics:
            match = pattern.search(sample.name)
            if match is not None:
                priority = match.groupdict().get("priority")
                yield from self._counted(sample, stream, metric, int(priority) if priority else -1)
                return

    def _counted(self, sample: Sample, stream: Stream, metric: Metric, priority: int) -> Iterator[Finding]:
        nic = next((sample.labels[name] for name in _sheet().nic_labels if name in sample.labels), None)
        if nic is None or not 0 <= sample.value < 2**63:
            return
        at = sample.at or stream.received_at
        key: _Key = (stream.cluster, sample.node or stream.lines, nic, metric.direction, priority)
        if metric.measures == "frames" and (key, "duration") in self._counters:
            return
        before = self._counters.get((key, metric.measures))
        if before is not None and at <= before.at:
            return  # partitions of a topic are read out of step
        rate = None
        if before is not None and sample.value >= before.value:
            rate = (sample.value - before.value) / (at - before.at).total_seconds()
        now, changed = _judge(before, rate, sample.value, at, metric.measures)
        self._counters[key, metric.measures] = now
        if changed is not None and rate is not None:
            yield _finding(metric, priority, nic, rate, changed)


def _judge(
    before: Counter | None, rate: float | None, value: float, at: datetime, measures: Measure
) -> tuple[Counter, SignalState | None]:
    """The counter's new state and what changed. A reset (`rate` None) says nothing either way."""
    if before is None or rate is None:
        return Counter(value, at, firing=before is not None and before.firing), None
    threshold: Threshold = getattr(_sheet(), measures)
    per_second = rate / 1e6 if measures == "duration" else rate
    over = before.over + 1 if per_second >= threshold.fire else 0
    if not before.firing and over >= threshold.intervals:
        return Counter(value, at, over, firing=True), SignalState.FIRING
    if before.firing and per_second < threshold.clear:
        return Counter(value, at), SignalState.CLEARED
    return Counter(value, at, over, before.firing), None


def _finding(metric: Metric, priority: int, nic: str, rate: float, state: SignalState) -> Finding:
    queue: dict[str, int] = {"queue": priority, "priority": priority} if priority >= 0 else {}
    measured: dict[str, float] = {}
    if metric.measures == "duration":
        measured["fraction"] = round(min(rate / 1e6, 1.0), 3)
    elif metric.measures == "frames":
        measured["frames_per_s"] = round(rate, 1)
    return Finding(
        "fabric.pfc_storm",
        _sheet().severity,
        {"direction": metric.direction, "device": nic, "subtype": metric.measures, **queue, **measured},
        state,
        nic=nic,
    )
