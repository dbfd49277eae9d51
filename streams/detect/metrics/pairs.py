"""Two metrics of one part and exporter that mean something only together: used and free, current and maximum, both zero."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from streams.detect.finding import Finding, Stream
from streams.detect.metrics.dcgm_gauges import at_ms
from streams.detect.metrics.levels import MAX_PARTS, PAST, WELL, Rule, rounded
from streams.detect.metrics.rule_rows import Named
from streams.detect.metrics.sample_origin import SamplePlace, exporter_of, gpu_place
from streams.model.record import Sample

BUSY_TABLE = "metrics.busy"
_LITTLE = 0.005
"""A relative change of the second metric below this is not saved."""

Second = tuple[float, int, int]
"""Its value, time (ms) and exporter."""


class Pair(Rule):
    """A rule with a second metric, whose last value and exporter it remembers."""

    def second(self, sample: Sample, value: float, stream: Stream, named: Named) -> Iterator[Finding] | None:
        """Remember the value when it changed or the saved one is old."""
        if not self.is_reading(value):
            return None
        place = self.place(sample, stream, named)
        if place is not None:
            seconds, at = self.table(stream, "second"), at_ms(sample, stream)
            exporter = exporter_of(sample.labels)
            before = cast("Second | None", seconds.get(place.key))
            if before is None or self._is_news(before, value, at, exporter, self.row.gap * stream.spread):
                seconds[place.key] = (value, at, exporter)
        return None

    def _is_news(self, before: Second, value: float, at: int, exporter: int, gap: int) -> bool:
        known, last, whose = before
        if exporter != whose:
            return at - last > gap
        return at - last > gap // 2 or (at > last and abs(value - known) > _LITTLE * abs(known))

    def beside(self, sample: Sample, stream: Stream, place: SamplePlace) -> float | None:
        """The second metric's value at about the same time, None when unknown, as for a late sample."""
        second = cast("Second | None", self.table(stream, "second").get(place.key))
        if second is None or second[2] != exporter_of(sample.labels):
            return None
        gap = self.row.gap * stream.spread
        return second[0] if 0 <= at_ms(sample, stream) - second[1] <= gap else None


class Fraction(Pair):
    """`share` of the sum of both, or `ratio` to the second."""

    def read(self, sample: Sample, value: float, stream: Stream, named: Named) -> Iterator[Finding] | None:
        """Fires past the threshold for long enough, clears when healthy again."""
        row = self.row
        if not self.is_reading(value) or (place := self.place(sample, stream, named)) is None:
            return None
        if (other := self.beside(sample, stream, place)) is None:
            return None
        whole = value + other if row.measure == "share" else other
        if whole <= 0:
            return None
        fraction = value / whole
        verdict = self.past(fraction)
        if verdict == PAST and row.busy and not is_busy(sample, stream, row.gap * stream.spread):
            return None
        return self.assess(verdict, {row.says: rounded(fraction)}, place, sample, stream)


class Zeros(Pair):
    """Both are zero, on a node where some part has reported more than zero."""

    def second(self, sample: Sample, value: float, stream: Stream, named: Named) -> Iterator[Finding] | None:
        """Remember a second metric that is zero, forget it when it is not."""
        seconds = self.table(stream, "second")
        if (value > 0 and not seconds) or not self.is_reading(value):
            return None
        if (place := self.place(sample, stream, named)) is not None:
            if value == 0:
                seconds[place.key] = (0.0, at_ms(sample, stream), exporter_of(sample.labels))
            else:
                seconds.pop(place.key, None)
        return None

    def read(self, sample: Sample, value: float, stream: Stream, named: Named) -> Iterator[Finding] | None:
        """Fires when both are zero for long enough, clears when the first is not."""
        if not self.is_reading(value) or (place := self.place(sample, stream, named)) is None:
            return None
        live, node = self.table(stream, "live"), place.key[:2]
        if value > 0:
            if node not in live:
                live[node] = (True,)
            return self.assess(WELL, {}, place, sample, stream) if self.states(stream) else None
        if node not in live or self.beside(sample, stream, place) != 0:
            return None
        return self.assess(PAST, {self.row.says: 0}, place, sample, stream)


class BusyGpus:
    """Remembers which GPUs are busy, for rows that apply only then."""

    def __init__(self, above: float, gap_ms: int) -> None:
        self._above = above
        self._refresh_ms = gap_ms // 2

    def remember(
        self, sample: Sample, value: float, stream: Stream, named: Named
    ) -> Iterator[Finding] | None:
        """Remember whether the GPU is busy when that changed or the saved value is old."""
        place = gpu_place(sample, stream, whole=True)
        if place is None or not 0 <= value <= 100:
            return None
        table = stream.rule_state.table(BUSY_TABLE, MAX_PARTS)
        at, now = at_ms(sample, stream), value >= self._above
        before = cast("tuple[bool, int] | None", table.get(place.key))
        if before is None or (at > before[1] and (now != before[0] or at - before[1] > self._refresh_ms)):
            table[place.key] = (now, at)
        return None


def is_busy(sample: Sample, stream: Stream, gap_ms: int) -> bool:
    """Whether the sample's GPU was at work within `gap_ms` of it, as far as that is known."""
    return _worked(sample, stream, gap_ms) is True


def is_idle(sample: Sample, stream: Stream, gap_ms: int) -> bool:
    """Whether the sample's GPU is known to have had nothing to do within `gap_ms` of it."""
    return _worked(sample, stream, gap_ms) is False


def _worked(sample: Sample, stream: Stream, gap_ms: int) -> bool | None:
    place = gpu_place(sample, stream, whole=True)
    return worked(place, at_ms(sample, stream), stream, gap_ms) if place else None


def worked(place: SamplePlace, at: int, stream: Stream, gap_ms: int) -> bool | None:
    """Whether the GPU was at work within `gap_ms` of a time (ms); None where that is not known."""
    known = stream.rule_state.table(BUSY_TABLE, MAX_PARTS).get(place.key)
    if known is None:
        return None
    busy, last = cast(tuple[bool, int], known)
    return busy if abs(at - last) <= gap_ms else None
