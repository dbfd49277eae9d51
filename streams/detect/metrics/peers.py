"""One GPU against the others of its job: the median and spread of all, for each step of time.

A job of ten thousand GPUs must not cost a row of ten thousand numbers at every sample. So a step is kept as a histogram of a few
dozen buckets, each a fiftieth (2 %) wide, and as the hashes of only as many GPUs as a comparison needs. A sample is compared with
the step before its own. When many GPUs are low, or the whole job rests, none is a straggler.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import cast
from zlib import crc32

from streams.detect.finding import Finding, Stream
from streams.detect.metrics.dcgm_gauges import at_ms
from streams.detect.metrics.levels import BETWEEN, PAST, WELL, Rule, rounded
from streams.detect.metrics.pairs import is_busy, is_idle
from streams.detect.metrics.rule_rows import MetricRow, Named
from streams.detect.metrics.sample_origin import Owner, owner_of
from streams.detect.rule_state import Key, RuleTable
from streams.model.record import Sample
from streams.model.signal import Attribute

_WIDTH = 50.0
_MAX_JOBS = 20_000
_LONE = 0.15
"""With more than this share of the job below the threshold, the job is slow and no GPU a straggler."""

_SPREADS = 6.0
_LEAST_SPREAD = 0.02
"""Median deviations by which a straggler is off, and the least deviation assumed, as a share of the median."""

Summary = tuple[int, float, float, int, float]
"""Of a finished step: its number, median, median deviation, GPUs (counted up to what is needed), and the share that is low."""


class JobMedians:
    """The medians of one row's jobs, by steps of its window. Keeps nothing itself: all is in the stream's `rule_state`."""

    def __init__(self, row: MetricRow) -> None:
        self._row = row

    def counted(self, sample: Sample, stream: Stream, owner: Owner, value: float, gpu: Key) -> Summary | None:
        """Count a GPU's value; returns the summary of the step before, if it is recent and of enough GPUs."""
        row = self._row
        job: Key = (stream.cluster, owner.namespace, owner.family)
        step = at_ms(sample, stream) // row.window
        counts, members = self._table(stream, "counts"), self._table(stream, "members")
        summaries = self._table(stream, "medians")
        now = cast("tuple[int, ...] | None", counts.get(job))
        if now is not None and step < now[0]:
            return None
        if now is not None and step > now[0]:
            summaries[job] = self._summed_up(now, len(members.get(job, (0,))) - 1)
        if now is None or step > now[0]:
            now = (step,)
            members[job] = (step,)
        counts[job] = _with(now, round(math.log(value) * _WIDTH))
        known = members.get(job, (step,))
        if len(known) <= row.peers + 1:
            number = crc32("\n".join(map(str, gpu)).encode("utf-8", "replace"))
            if number not in known[1:]:
                members[job] = (*known, number)
        summary = cast("Summary | None", summaries.get(job))
        if summary is None or step - summary[0] > max(1, row.gap // row.window):
            return None
        return summary if summary[3] > row.peers else None

    def _summed_up(self, now: Sequence[int], gpus: int) -> Summary:
        buckets = sorted(zip(now[1::2], now[2::2], strict=True))
        total = sum(count for _, count in buckets)
        values = [(math.exp(bucket / _WIDTH), count) for bucket, count in buckets]
        median = _middle(values, total)
        deviation = _middle(sorted((abs(value - median), count) for value, count in values), total)
        below = self._row.below or 0.0
        low = sum(count for value, count in values if value <= below * median)
        return now[0], median, deviation, gpus, low / total

    def _table(self, stream: Stream, name: str) -> RuleTable:
        return stream.rule_state.table(f"metrics.{self._row.id}.{name}", _MAX_JOBS)


class PeerRule(Rule):
    """Compares the GPUs of one job."""

    def __init__(self, row: MetricRow) -> None:
        super().__init__(row)
        self._jobs = JobMedians(row)

    def read(self, sample: Sample, value: float, stream: Stream, named: Named) -> Iterator[Finding] | None:
        """Fires far below its peers for long enough, clears when with them again."""
        if value <= 0 or not self.is_reading(value):
            return None
        owner = owner_of(sample.labels)
        place = self.place(sample, stream, named)
        if place is None:
            return None
        if owner is None:
            # Nothing is left to be slower than; a bad link stays one, and only its next job's others show when it is well.
            return self.assess(BETWEEN if self.row.busy else WELL, {}, place, sample, stream)
        summary = self._jobs.counted(sample, stream, owner, value, place.key)
        if summary is None or summary[1] < self.row.floor:
            return None
        _, median, deviation, _, low = summary
        ratio = value / median
        verdict = self.past(ratio)
        spread = max(deviation * 1.4826, median * _LEAST_SPREAD)
        if verdict == PAST and (low > _LONE or abs(value - median) < _SPREADS * spread):
            verdict = BETWEEN
        if verdict == PAST and self._rests(sample, stream):
            verdict = BETWEEN
        measured: dict[str, Attribute] = {
            self.row.says: rounded(value),
            "median": rounded(median),
            "ratio": rounded(ratio),
        }
        return self.assess(verdict, measured, place, sample, stream)

    def _rests(self, sample: Sample, stream: Stream) -> bool:
        """Whether the GPU has nothing to do, or with `busy` is not known to have: an idle one lowers its clocks and its link."""
        gap = self.row.gap * stream.spread
        return not is_busy(sample, stream, gap) if self.row.busy else is_idle(sample, stream, gap)


def _with(now: tuple[int, ...], bucket: int) -> tuple[int, ...]:
    """The histogram with one more in a bucket: step, then alternately bucket and count."""
    for index in range(1, len(now), 2):
        if now[index] == bucket:
            return (*now[: index + 1], now[index + 1] + 1, *now[index + 2 :])
    return (*now, bucket, 1)


def _middle(counted: Sequence[tuple[float, int]], total: int) -> float:
    """The median of sorted values with their counts."""
    seen = 0
    for value, count in counted:
        seen += count
        if 2 * seen >= total:
            return value
    return counted[-1][0]
