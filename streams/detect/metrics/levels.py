"""When a measurement is a fault and when that is over: hysteresis, duration, gaps, late samples and second exporters.

A healthy part has no row in memory. The first reading past the threshold makes one, which also says who exports the series: a
second exporter of it is ignored until the first has been silent for the rule's `gap`. After the end the row stays for a while,
so that a late reading does not start the fault again.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, cast

from streams.detect.finding import Finding, Stream
from streams.detect.metrics.dcgm_gauges import at_ms
from streams.detect.metrics.rule_rows import MetricRow, Named
from streams.detect.metrics.sample_origin import (
    SamplePlace,
    exporter_of,
    gpu_place,
    nic_place,
    node_place,
    owner_of,
    pci_place,
    port_place,
    with_parts,
)
from streams.detect.rule_state import RuleTable
from streams.model.digest import digest
from streams.model.record import Sample
from streams.model.signal import SERIES, SINCE, Attribute, SignalState

MAX_PARTS: Final = 200_000
"""Rows of a table at most: more GPUs, ports and sensors than one partition carries."""

PENDING, FIRING, OVER = 0, 1, 2
PAST, BETWEEN, WELL = 1, 0, -1

State = tuple[int, int, int, int, int, int]
"""Phase, start of the phase and time of the last reading (ms), consecutive readings past the threshold, exporter, owner."""

LEAST_BLANK = 2_147_483_632.0
"""Only values of at least this magnitude can be blank."""

_INT32_BLANK = (LEAST_BLANK, 2_147_483_647.0)
_FP64_BLANK = (140_737_488_355_328.0, 140_737_488_355_343.0)
_INT64_BLANK = float(0x7FFFFFFFFFFFF000)


def is_blank(value: float) -> bool:
    """True for NaN, infinities, stale markers and DCGM's "no value" (dcgm_structs.h: BLANK, NOT_FOUND, NOT_SUPPORTED …).

    The three ranges of blanks are a few numbers wide: a counter of nanoseconds may well be larger.
    """
    return (
        not -_INT64_BLANK < value < _INT64_BLANK
        or _INT32_BLANK[0] <= value <= _INT32_BLANK[1]
        or _FP64_BLANK[0] <= value <= _FP64_BLANK[1]
    )


_PLACES: Mapping[str, Callable[[Sample, Stream], SamplePlace | None]] = {
    "nic": nic_place,
    "port": port_place,
    "pci": pci_place,
    "node": node_place,
}


class Rule(ABC):
    """Applies one row of the catalog. Keeps nothing of any sample: that is in the stream's `rule_state`."""

    def __init__(self, row: MetricRow) -> None:
        self.row = row
        self._table = f"metrics.{row.id}"
        self._lowest, self._highest = row.valid
        self._where = tuple(row.where.items())
        self._place = _PLACES.get(row.entity) or partial(gpu_place, whole=row.entity == "gpu")
        # A rule with `below` is one with `above` on negated numbers.
        self._sign = -1 if row.above is None else 1
        limit = row.below if row.above is None else row.above
        self._fires = math.inf if limit is None else self._sign * limit
        self._clears = math.inf if row.clear is None else self._sign * row.clear

    @abstractmethod
    def read(self, sample: Sample, value: float, stream: Stream, named: Named) -> Iterator[Finding] | None:
        """The findings of a sample of one of the row's `metrics`, None for none. `value` is in the row's own unit."""

    def second(self, sample: Sample, value: float, stream: Stream, named: Named) -> Iterator[Finding] | None:
        """Remember a sample of one of the row's metrics `of`."""
        return None

    def reason(self, sample: Sample, value: float, stream: Stream, named: Named) -> Iterator[Finding] | None:
        """Remember a sample of one of the row's `reasons`."""
        return None

    def recorded(
        self, sample: Sample, per_second: float, over_ms: int, stream: Stream, named: Named
    ) -> Iterator[Finding] | None:
        """The findings of a rate that was made of one of the row's `metrics`, which only a row of counters reads.

        `per_second` is the increase a second, in the row's own unit, and `over_ms` the time it was taken over.
        """
        return None

    def states(self, stream: Stream) -> RuleTable:
        """The parts that are pending, firing or recently over."""
        return stream.rule_state.table(self._table, MAX_PARTS)

    def table(self, stream: Stream, name: str) -> RuleTable:
        """Another table of this row."""
        return stream.rule_state.table(f"{self._table}.{name}", MAX_PARTS)

    def is_reading(self, value: float) -> bool:
        """False for a value outside the row's valid range. Blanks were dropped before."""
        return self._lowest <= value <= self._highest

    def has_labels(self, sample: Sample) -> bool:
        """False when the sample lacks a label the row asks for."""
        where = self._where
        return not where or all(sample.labels.get(name, "").lower() in wanted for name, wanted in where)

    def place(self, sample: Sample, stream: Stream, named: Named) -> SamplePlace | None:
        """The part that the sample is about, None when it names none."""
        place, parts = self._place(sample, stream), self.row.parts
        return with_parts(place, sample.labels, parts, named) if place and (parts or named) else place

    def past(self, measured: float) -> int:
        """PAST the threshold, BETWEEN it and `clear`, or WELL."""
        level = self._sign * measured
        if level >= self._fires:
            return PAST
        return BETWEEN if level >= self._clears else WELL

    def assess(
        self,
        verdict: int,
        measured: dict[str, Attribute],
        place: SamplePlace,
        sample: Sample,
        stream: Stream,
        since: int | None = None,
    ) -> Iterator[Finding] | None:
        """The finding, when this reading changes the state of the part. `since` is when a reading over some time began (ms)."""
        table = self.states(stream)
        before = cast("State | None", table.get(place.key))
        if before is None and verdict != PAST:
            return None
        owner = owner_of(sample.labels) if self.row.allocated else None
        if self.row.allocated and owner is None:
            verdict = WELL
            if before is None:
                return None
        at = at_ms(sample, stream)
        exporter = exporter_of(sample.labels, sample.name)
        gap = self.row.gap * stream.spread
        now, change = self._step(before, verdict, at, exporter, owner.number if owner else 0, gap)
        if now is None:
            table.pop(place.key, None)
        elif now is not before:
            table[place.key] = now
        if change is None:
            return None
        if now and change is SignalState.FIRING and self.row.for_:
            measured = {**measured, "seconds": (at - now[1]) // 1000}
        if now and change is SignalState.FIRING:
            measured = {**measured, SINCE: min(now[1], at if since is None else since)}
        return iter((self.finding(place, measured, change),))

    def _step(
        self, before: State | None, verdict: int, at: int, exporter: int, owner: int, gap: int
    ) -> tuple[State | None, SignalState | None]:
        """The next state (None: delete the row, the same object: leave it) and the change to report."""
        if before is None:
            return self._counted(at, at, 1, exporter, owner)
        phase, since, last, count, known, whose = before
        apart = at - last
        if apart <= 0 or (exporter != known and apart <= gap):
            return before, None
        if phase == FIRING:
            if verdict == WELL or owner != whose:
                return (OVER, at, at, 0, exporter, owner), SignalState.CLEARED
            return (FIRING, since, at, count, exporter, whose), None
        if verdict != PAST:
            if phase == OVER:
                return (None if apart > gap else before), None
            return (OVER, at, at, 0, exporter, owner), None
        if phase == OVER or apart > gap or owner != whose:
            return self._counted(at, at, 1, exporter, owner)
        return self._counted(since, at, count + 1, exporter, owner)

    def _counted(
        self, since: int, at: int, count: int, exporter: int, owner: int
    ) -> tuple[State, SignalState | None]:
        enough = count >= self.row.samples and at - since >= self.row.for_
        state = (FIRING if enough else PENDING, since, at, count, exporter, owner)
        return state, SignalState.FIRING if enough else None

    def finding(self, place: SamplePlace, measured: dict[str, Attribute], state: SignalState) -> Finding:
        """The row's finding about a part."""
        row = self.row
        return Finding(
            row.kind,
            row.severity,
            # The node is the entity's: it may be called otherwise by another exporter of the same series.
            {
                **row.attributes,
                **dict(place.attributes),
                SERIES: digest(row.id, *map(str, place.key[2:]), size=6),
                **measured,
            },
            state,
            gpu=place.gpu,
            nic=place.nic,
            port=place.port,
            on_switch=place.on_switch,
        )


class Value(Rule):
    """A gauge and its thresholds. A healthy reading of a healthy part costs one comparison."""

    def read(self, sample: Sample, value: float, stream: Stream, named: Named) -> Iterator[Finding] | None:
        """Fires past the threshold for long enough, clears when healthy again."""
        verdict = self.past(value)
        if verdict != PAST and not self.states(stream):
            return None
        if not self.is_reading(value) or not self.has_labels(sample):
            return None
        place = self.place(sample, stream, named)
        return self.assess(verdict, {self.row.says: rounded(value)}, place, sample, stream) if place else None


class Bits(Rule):
    """A mask of reasons, some of which are faults."""

    def __init__(self, row: MetricRow) -> None:
        super().__init__(row)
        self._mask = 0
        for bit in row.bits:
            self._mask |= bit

    def read(self, sample: Sample, value: float, stream: Stream, named: Named) -> Iterator[Finding] | None:
        """Fires when a fault's bit is set for long enough, clears when none is."""
        if not 0 <= value < 2**53:
            return None
        mask = int(value)
        faults = mask & self._mask if not mask & self.row.unless else 0
        if not faults and not self.states(stream):
            return None
        place = self.place(sample, stream, named)
        if place is None:
            return None
        reasons = ",".join(name for bit, name in self.row.bits.items() if faults & bit)
        measured: dict[str, Attribute] = {self.row.says: reasons, "mask": mask} if faults else {"mask": mask}
        return self.assess(PAST if faults else WELL, measured, place, sample, stream)


def rounded(value: float) -> int | float:
    """The number with four significant digits, a whole number as it is."""
    return int(value) if value == int(value) else float(f"{value:.4g}")
