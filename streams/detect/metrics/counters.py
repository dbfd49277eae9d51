"""Counters: an increase, or the rate of increase. A counter that falls was reset, which is no error.

Most error counters stay at zero. Those of one part and exporter share one row, with a bit for each rule that has seen the zero.
Only a counter that is not zero gets its own row. Without either row the first value is not reported.

Where a recording rule has made a rate of a counter, the rate is read as it is: the difference of two rates says nothing.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import cast

from streams.detect.finding import Finding, Stream
from streams.detect.metrics.dcgm_gauges import at_ms
from streams.detect.metrics.levels import FIRING, MAX_PARTS, OVER, PAST, Rule, rounded
from streams.detect.metrics.rule_rows import MetricRow, Named
from streams.detect.metrics.sample_origin import SamplePlace, exporter_of
from streams.detect.rule_state import Key
from streams.model.record import Sample
from streams.model.signal import REACHED, SINCE, Attribute, SignalState

_FRESH_MS = 60_000
"""How often a shared row is updated with the time of its zeros."""

Zeros = tuple[int, int]
"""Bits of the rules, and when the zeros were last seen (ms)."""

Last = tuple[float, int, int, int, int]
"""Value, its time (ms), exporter, phase, and the time of the last increase (ms, 0: never)."""

Rated = tuple[float, int, int, int]
"""Of a recorded rate: the increase since when (ms), the time of its last value (ms), and the exporter."""

_LEAST = 0.5
"""Prometheus extrapolates: an increase of one is recorded as somewhat more or less. What is smaller is none."""


class CounterRule(Rule):
    """A rule that compares a counter with its value before."""

    def __init__(self, row: MetricRow, bit: int, zeros: str) -> None:
        super().__init__(row)
        self._bit = 1 << bit
        self._zeros = zeros

    def read(self, sample: Sample, value: float, stream: Stream, named: Named) -> Iterator[Finding] | None:
        """The findings of the step from the value before."""
        if not self.is_reading(value) or not self.has_labels(sample):
            return None
        place = self.place(sample, stream, named)
        if place is None:
            return None
        at = at_ms(sample, stream)
        # Another name of the metric means another exporter, even where a collector puts one instance on both.
        exporter = exporter_of(sample.labels, sample.name.partition("_")[0])
        table = self.table(stream, "last")
        before = cast("Last | None", table.get(place.key))
        if before is None:
            shared: Key = (*place.key, exporter)
            zeros = stream.rule_state.table(self._zeros, MAX_PARTS)
            bits, seen = cast(Zeros, zeros.get(shared, (0, 0)))
            if value == 0:
                if not bits & self._bit or at - seen >= _FRESH_MS:
                    zeros[shared] = (bits | self._bit, max(at, seen))
                return None
            if bits & self._bit:
                if at <= seen:
                    return None
                zeros[shared] = (bits & ~self._bit, seen)
                before = table[place.key] = (0.0, seen, exporter, OVER, 0)
            else:
                table[place.key] = (value, at, exporter, OVER, 0)
                return None
        last_value, last_at, known, phase, risen = before
        if at <= last_at or (exporter != known and at - last_at <= self.row.gap * stream.spread):
            return None
        if exporter != known or value < last_value:
            table[place.key] = (value, at, exporter, phase, risen)
            return None
        now, finding = self.step(before, value, at, place, sample, stream)
        if now is not None:
            table[place.key] = now
        return finding

    @abstractmethod
    def step(
        self, before: Last, value: float, at: int, place: SamplePlace, sample: Sample, stream: Stream
    ) -> tuple[Last | None, Iterator[Finding] | None]:
        """What to remember (None: no change) and the findings, for a counter that did not fall."""


class Increase(CounterRule):
    """Reports each increase; with `quiet` also the end, after that time without another.

    An increase is known by its series and the value reached, whichever partition sees it, and however much each has missed.
    """

    def step(
        self, before: Last, value: float, at: int, place: SamplePlace, sample: Sample, stream: Stream
    ) -> tuple[Last | None, Iterator[Finding] | None]:
        """Fires on an increase, clears after `quiet`."""
        last_value, last_at, exporter, phase, risen = before
        quiet = self.row.quiet
        if value > last_value:
            now = (value, at, exporter, FIRING if quiet is not None else OVER, at)
            count = rounded(value - last_value)
            measured: dict[str, Attribute] = {
                self.row.says: count,
                REACHED: rounded(value),
                SINCE: last_at,
            }
            return now, iter((self.finding(place, measured, SignalState.FIRING),))
        if quiet is not None and phase == FIRING and at - risen >= quiet:
            return (value, at, exporter, OVER, risen), iter((self.finding(place, {}, SignalState.CLEARED),))
        return ((value, at, exporter, phase, risen) if at - last_at >= self.row.gap // 2 else None), None

    def recorded(
        self, sample: Sample, per_second: float, over_ms: int, stream: Stream, named: Named
    ) -> Iterator[Finding] | None:
        """Fires when the rate leaves zero, clears `quiet` after it is zero again. One over more than `gap` tells of no moment."""
        quiet, rates = self.row.quiet, self.table(stream, "rates")
        count = per_second * over_ms / 1_000
        if (count < _LEAST and not rates) or over_ms > self.row.gap or not self.is_reading(count):
            return None
        place = self.place(sample, stream, named) if self.has_labels(sample) else None
        # A counter that is read itself tells more, and has reported it by now.
        if place is None or place.key in self.table(stream, "last"):
            return None
        at, exporter = at_ms(sample, stream), exporter_of(sample.labels, sample.name)
        before = cast("Rated | None", rates.get(place.key))
        if before is not None and (at <= before[2] or exporter != before[3]):
            # A second exporter's is the same again, as long as the first one's comes.
            if at - before[2] <= self.row.gap * stream.spread:
                return None
            before = None
        if count < _LEAST:
            if before is None:
                return None
            _, risen, _, known = before
            if at - risen < (quiet or 0):
                rates[place.key] = (0.0, risen, at, known)
                return None
            del rates[place.key]
            return iter((self.finding(place, {}, SignalState.CLEARED),)) if quiet is not None else None
        rates[place.key] = (count, at, at, exporter)
        if before is not None and before[0]:
            return None
        measured: dict[str, Attribute] = {self.row.says: max(1, round(count)), SINCE: at - over_ms}
        return iter((self.finding(place, measured, SignalState.FIRING),))


class RateRule(CounterRule):
    """The increase `per` unit of time over a window; reported before its end when a window's worth has come already."""

    def step(
        self, before: Last, value: float, at: int, place: SamplePlace, sample: Sample, stream: Stream
    ) -> tuple[Last | None, Iterator[Finding] | None]:
        """Compares at the end of each window."""
        row = self.row
        last_value, last_at, exporter, phase, risen = before
        apart = max(at - last_at, row.window) if value > last_value else at - last_at
        rate = (value - last_value) * row.per / apart
        verdict = self.past(rate)
        if at - last_at < row.window and verdict != PAST:
            return None, None
        now = (value, at, exporter, phase, risen)
        return now, self.assess(verdict, {row.says: rounded(rate)}, place, sample, stream, last_at)

    def recorded(
        self, sample: Sample, per_second: float, over_ms: int, stream: Stream, named: Named
    ) -> Iterator[Finding] | None:
        """Adds the rates up to the increase of the window, and compares that as a counter's own."""
        row, rates = self.row, self.table(stream, "rates")
        value = per_second * row.per / 1_000
        if (not value and not rates and not self.states(stream)) or not self.is_reading(value):
            return None
        place = self.place(sample, stream, named) if self.has_labels(sample) else None
        if place is None:
            return None
        at, exporter = at_ms(sample, stream), exporter_of(sample.labels, sample.name)
        before = cast("Rated | None", rates.get(place.key))
        if before is None and not value and place.key not in self.states(stream):
            return None
        # The first one tells of the time that it was taken over itself.
        risen, since, apart = 0.0, at - over_ms, over_ms
        if before is not None and at - before[2] <= row.gap * stream.spread:
            if at <= before[2] or exporter != before[3]:
                return None
            risen, since, apart = before[0], before[1], at - before[2]
        risen += value * apart / row.per
        rate = risen * row.per / max(at - since, row.window)
        verdict = self.past(rate)
        if at - since < row.window and verdict != PAST:
            rates[place.key] = (risen, since, at, exporter)
            return None
        if risen:
            rates[place.key] = (0.0, at, at, exporter)
        else:
            rates.pop(place.key, None)
        return self.assess(verdict, {row.says: rounded(rate)}, place, sample, stream, since)
