"""PFC storms in the pause counters of NICs and switches: the share of time a NIC is paused, or pauses its switch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from streams.config.yaml_tables import Strict
from streams.detect.catalog import load_catalog
from streams.detect.finding import Finding, Stream
from streams.detect.matching import re2_patterns
from streams.detect.metrics.recorded_rates import recorded_rate
from streams.detect.rule_state import Row
from streams.model.clock import to_millis
from streams.model.digest import digest
from streams.model.kinds import SignalKind
from streams.model.record import Sample
from streams.model.signal import SERIES, SINCE, Severity, SignalState

Measure = Literal["duration", "frames", "events"]


class PauseMetric(Strict):
    """A counter. `pattern` has a group `priority` when the counter is of one; with `on_switch` the interface is a switch port."""

    pattern: str
    measures: Measure
    direction: Literal["received", "sent", "received_by_switch"]
    on_switch: bool = False


class Threshold(Strict):
    """When a storm starts and ends, in the measure's unit per second (a fraction for `duration`)."""

    fire: float
    clear: float
    intervals: int


class PauseSheet(Strict):
    """`catalog/pauses.yaml`."""

    metrics: tuple[PauseMetric, ...]
    duration: Threshold
    frames: Threshold
    events: Threshold
    severity: Severity
    nic_labels: tuple[str, ...]


@cache
def _sheet() -> PauseSheet:
    return load_catalog("pauses", PauseSheet)


@dataclass(frozen=True, slots=True)
class PauseCounter:
    """What is remembered of one counter. `over` counts consecutive intervals above the threshold."""

    value: float
    at_ms: int
    over: int = 0
    firing: bool = False

    @property
    def row(self) -> Row:
        """The row of the table."""
        return self.value, self.at_ms, self.over, self.firing

    @classmethod
    def of(cls, row: Row) -> PauseCounter:
        """From a row of the table."""
        value, at_ms, over, firing = row
        return cls(float(value or 0), int(at_ms or 0), int(over or 0), bool(firing))


_MAX_COUNTERS = 200_000


class PauseCounters:
    """Reads samples. Remembers the last value of each counter."""

    hints = (
        rb"prio[0-7]_pause",
        rb"_pause_storm_error_events",
        rb"PFC_[0-7]_RX_P",
        rb"in[-_]mac[-_]pause[-_]frames",
        rb"QUEUE_STATS_DEADLOCK_DETECTED",
    )

    def __init__(self) -> None:
        self._metrics = [(re2_patterns.compile(metric.pattern), metric) for metric in _sheet().metrics]

    def read(self, sample: Sample, stream: Stream) -> Iterator[Finding]:
        """The start or end of a storm, when this sample shows it."""
        recorded = recorded_rate(sample.name)
        name = sample.name if recorded is None else recorded.metric
        for pattern, metric in self._metrics:
            match = pattern.search(name)
            if match is not None:
                priority = match.groupdict().get("priority")
                per_second = None if recorded is None else sample.value * recorded.per_second
                yield from self._counted(
                    sample, stream, metric, int(priority) if priority else -1, per_second
                )
                return

    def _counted(
        self,
        sample: Sample,
        stream: Stream,
        metric: PauseMetric,
        priority: int,
        per_second: float | None,
    ) -> Iterator[Finding]:
        """`per_second` is the rate of a counter, where a recording rule has made one of it."""
        nic = next((sample.labels[name] for name in _sheet().nic_labels if name in sample.labels), None)
        if nic is None or not 0 <= sample.value < 2**63:
            return
        counters = stream.rule_state.table("pauses", _MAX_COUNTERS)
        at_ms = to_millis(sample.at or stream.received_at)
        place = (stream.cluster, sample.node or stream.lines, nic, metric.direction, priority)
        if metric.measures == "frames" and (*place, "duration") in counters:
            return
        # A rate and the counter that it was made of must not be compared with each other.
        key = (*place, metric.measures) if per_second is None else (*place, metric.measures, "rate")
        row = counters.get(key)
        before = PauseCounter.of(row) if row is not None else None
        if before is not None and at_ms <= before.at_ms:
            return  # late, or shipped twice
        rate = None
        if per_second is not None:
            rate = per_second
        elif before is not None and sample.value >= before.value:
            rate = (sample.value - before.value) * 1000 / (at_ms - before.at_ms)
        now, changed = _judge(before, rate, sample.value, at_ms, metric.measures)
        counters[key] = now.row
        if changed is not None and before is not None and rate is not None:
            identity: dict[str, str | int] = {SERIES: digest(*map(str, key[2:]), size=6), SINCE: before.at_ms}
            yield _finding(metric, priority, nic, rate, changed, identity)


def _judge(
    before: PauseCounter | None, rate: float | None, value: float, at_ms: int, measures: Measure
) -> tuple[PauseCounter, SignalState | None]:
    """The counter's new state and the change to report. A reset (`rate` None) changes nothing."""
    if before is None or rate is None:
        return PauseCounter(value, at_ms, firing=before is not None and before.firing), None
    threshold: Threshold = getattr(_sheet(), measures)
    per_second = rate / 1e6 if measures == "duration" else rate
    over = before.over + 1 if per_second >= threshold.fire else 0
    if not before.firing and over >= threshold.intervals:
        return PauseCounter(value, at_ms, over, firing=True), SignalState.FIRING
    if before.firing and per_second < threshold.clear:
        return PauseCounter(value, at_ms), SignalState.CLEARED
    return PauseCounter(value, at_ms, over, before.firing), None


def _finding(
    metric: PauseMetric,
    priority: int,
    nic: str,
    rate: float,
    state: SignalState,
    identity: Mapping[str, str | int],
) -> Finding:
    queue: dict[str, int] = {"queue": priority, "priority": priority} if priority >= 0 else {}
    measured: dict[str, float] = {}
    if metric.measures == "duration":
        measured["fraction"] = round(min(rate / 1e6, 1.0), 3)
    elif metric.measures == "frames":
        measured["frames_per_s"] = round(rate, 1)
    place = {"port" if metric.on_switch else "device": nic}
    return Finding(
        SignalKind.FABRIC_PFC_STORM,
        _sheet().severity,
        {"direction": metric.direction, **place, "subtype": metric.measures, **queue, **measured, **identity},
        state,
        nic=None if metric.on_switch else nic,
        port=nic if metric.on_switch else None,
        on_switch=metric.on_switch,
    )
