"""A gauge or a counter's rate against its own usual value while the same pod has the GPU.

Exporters disagree whether a field is a gauge or a counter (dcgm-exporter, DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL): one that only ever
rises is a counter, and its rate is compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from streams.detect.finding import Finding, Stream
from streams.detect.metrics.dcgm_gauges import at_ms
from streams.detect.metrics.levels import BETWEEN, PAST, WELL, Rule, rounded
from streams.detect.metrics.pairs import is_busy
from streams.detect.metrics.peers import JobMedians
from streams.detect.metrics.rule_rows import MetricRow, Named
from streams.detect.metrics.sample_origin import exporter_of, owner_of
from streams.model.record import Sample
from streams.model.signal import Attribute

_RISES = 12
"""Consecutive rises that make a counter; random values do that once in 479 million (12!)."""

_SLOWEST = 60
"""Windows over which the usual value is averaged, at most."""

Usual = tuple[float, int, float, int, int, int, int]
"""Last value, its time (ms), mean, windows learned, consecutive rises, exporter, owner."""


class Baseline(Rule):
    """Learns for `warmup` windows, then compares. A change of the whole job is no fault of one GPU."""

    def __init__(self, row: MetricRow) -> None:
        super().__init__(row)
        self._jobs = JobMedians(row)

    def read(self, sample: Sample, value: float, stream: Stream, named: Named) -> Iterator[Finding] | None:
        """Fires far from its usual value for long enough, clears when back."""
        row = self.row
        if not self.is_reading(value) or (place := self.place(sample, stream, named)) is None:
            return None
        table, at = self.table(stream, "usual"), at_ms(sample, stream)
        exporter = exporter_of(sample.labels, sample.name)
        owner = owner_of(sample.labels)
        owner_id = owner.number if owner else 0
        before = cast("Usual | None", table.get(place.key))
        if before is None or (before[6] != owner_id and at > before[1]):
            table[place.key] = (value, at, 0.0, 0, 0, exporter, owner_id)
            return self.assess(WELL, {}, place, sample, stream)
        last, last_at, mean, learned, rises, known, _ = before
        if at - last_at < row.window or (exporter != known and at - last_at <= row.gap * stream.spread):
            return None
        was_counter = rises >= _RISES
        rises = (rises if was_counter else rises + 1) if value > last else 0
        is_counter = rises >= _RISES
        if was_counter != is_counter or exporter != known:
            # It turned out a counter, was reset, or comes from another exporter: start learning again.
            table[place.key] = (value, at, 0.0, 0, rises, exporter, owner_id)
            return None
        now = (value - last) * 1000 / (at - last_at) if is_counter else value
        verdict = self._verdict(now, mean) if learned >= row.warmup else None
        if verdict in (None, WELL) and now > row.floor * mean:
            learned += 1
            mean += (now - mean) / min(learned, _SLOWEST)
        table[place.key] = (value, at, mean, learned, rises, exporter, owner_id)
        if verdict is None:
            return None
        if owner is not None and now > 0:
            job = self._jobs.counted(sample, stream, owner, now / mean, place.key)
            if verdict == PAST and job is not None and self.past(job[1]) != WELL:
                verdict = BETWEEN
        if verdict == PAST and row.busy and not is_busy(sample, stream, row.gap * stream.spread):
            verdict = BETWEEN
        measured: dict[str, Attribute] = {
            row.says: rounded(now),
            "usual": rounded(mean),
            "ratio": rounded(now / mean),
        }
        return self.assess(verdict, measured, place, sample, stream)

    def _verdict(self, now: float, mean: float) -> int | None:
        """The side of the thresholds, None when nothing was learned yet. What fell to nothing has ended and is no fault."""
        if mean <= 0:
            return None
        return BETWEEN if now <= self.row.floor * mean else self.past(now / mean)
