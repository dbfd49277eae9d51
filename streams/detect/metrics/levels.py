"""When something measured is a fault, and when it is over: hysteresis, duration, gaps, late samples and second exporters.

A part that is well has no row in memory. A row is made with the first reading past the threshold and says who exports the series:
a second exporter of the same is not heard until the first has been silent for the row's `gap`. After it is over the row stays
for a while, so that a reading that comes late does not begin it again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
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
    with_parts,
)
from streams.detect.rule_state import RuleTable
from streams.model.record import Sample
from streams.model.signal import Attribute, SignalState

MAX_PARTS: Final = 200_000
"""Rows of one table at most: more GPUs, ports and sensors than one partition carries."""

PENDING, FIRING, OVER = 0, 1, 2
PAST, BETWEEN, WELL = 1, 0, -1

State = tuple[int, int, int, int, int, int]
"""Phase, since when, the last reading's time (both ms), readings past the threshold in a row, the exporter, the owner."""

LEAST_BLANK = 2_147_483_632.0
"""Any value from here on, or one that is not between this and its negative, is looked at by `is_blank`."""

_INT32_BLANK = (LEAST_BLANK, 2_147_483_647.0)
_FP64_BLANK = (140_737_488_355_328.0, 140_737_488_355_343.0)
_INT64_BLANK = float(0x7FFFFFFFFFFFF000)


def is_blank(value: float) -> bool:
    """True for NaN, infinities, stale markers and DCGM's "no value" (dcgm_structs.h: BLANK, NOT_FOUND, NOT_SUPPORTED …).

    The three blanks are told from values by their few last digits: a counter of nanoseconds may well be larger.
    """
    return (
        not -_INT64_BLANK < value < _INT64_BLANK
        or _INT32_BLANK[0] <= value <= _INT32_BLANK[1]
        or _FP64_BLANK[0] <= value <= _FP64_BLANK[1]
    )


class Rule(ABC):
    """One row at work. Holds the row and names of tables, nothing of any record."""

    def __init__(self, row: MetricRow) -> None:
        self.row = row
        self._table = f"metrics.{row.id}"
        self._lowest, self._highest = row.valid
        self._whole = row.entity == "gpu"

    @abstractmethod
    def read(self, sample: Sample, value: float, stream: Stream, named: Named) -> Iterator[Finding] | None:
        """What a sample of one of the row's `metrics` says. `value` is in the row's own unit; None is the usual answer."""

    def second(self, sample: Sample, value: float, stream: Stream, named: Named) -> Iterator[Finding] | None:
        """Take in a sample of one of the row's metrics `of`."""
        return None

    def states(self, stream: Stream) -> RuleTable:
        """What is pending, firing or lately over."""
        return stream.rule_state.table(self._table, MAX_PARTS)

    def table(self, stream: Stream, name: str) -> RuleTable:
        """A further table of this row."""
        return stream.rule_state.table(f"{self._table}.{name}", MAX_PARTS)

    def is_reading(self, value: float) -> bool:
        """False for what such a thing cannot measure. Blanks have been dropped before."""
        return self._lowest <= value <= self._highest

    def meant(self, sample: Sample) -> bool:
        """False when the row asks for labels that the sample has not."""
        return all(sample.labels.get(name, "").lower() in wanted for name, wanted in self.row.where.items())

    def place(self, sample: Sample, stream: Stream, named: Named) -> SamplePlace | None:
        """The part that the sample speaks of, None when it names none."""
        row = self.row
        place = (
            nic_place(sample, stream)
            if row.entity == "nic"
            else node_place(sample, stream)
            if row.entity == "node"
            else gpu_place(sample, stream, whole=self._whole)
        )
        return with_parts(place, sample.labels, row.parts, named) if place and (row.parts or named) else place

    def past(self, measured: float) -> int:
        """On which side of the row's thresholds it is: PAST, BETWEEN or WELL."""
        row = self.row
        if row.above is not None:
            over_below = row.above if row.clear is None else row.clear
            return (
                PAST
                if measured >= row.above
                else WELL
                if measured < over_below or row.clear is None
                else BETWEEN
            )
        assert row.below is not None
        over_above = row.below if row.clear is None else row.clear
        return (
            PAST if measured <= row.below else WELL if measured > over_above or row.clear is None else BETWEEN
        )

    def judged(
        self,
        verdict: int,
        measured: dict[str, Attribute],
        place: SamplePlace,
        sample: Sample,
        stream: Stream,
    ) -> Iterator[Finding] | None:
        """The change that this reading makes, if it makes one."""
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
        now, change = self._step(before, verdict, at, exporter, owner.number if owner else 0)
        if now is None:
            table.pop(place.key, None)
        elif now is not before:
            table[place.key] = now
        if change is None:
            return None
        seconds = (
            {"seconds": (at - now[1]) // 1000}
            if now and change is SignalState.FIRING and self.row.for_
            else {}
        )
        return iter((self.finding(place, {**measured, **seconds}, change),))

    def _step(
        self, before: State | None, verdict: int, at: int, exporter: int, owner: int
    ) -> tuple[State | None, SignalState | None]:
        """The next state (None: forget it, the same object: leave it) and what became of it."""
        row = self.row
        if before is None:
            return self._begun(at, exporter, owner)
        phase, since, last, count, known, whose = before
        apart = at - last
        if apart <= 0 or (exporter != known and apart <= row.gap):
            return before, None
        if phase == FIRING:
            if verdict == WELL or owner != whose:
                return (OVER, at, at, 0, exporter, owner), SignalState.CLEARED
            return (FIRING, since, at, count, exporter, whose), None
        if verdict != PAST:
            if phase == OVER:
                return (None if apart > row.gap else before), None
            return (OVER, at, at, 0, exporter, owner), None
        if phase == OVER or apart > row.gap or owner != whose:
            return self._begun(at, exporter, owner)
        return self._held(since, at, count + 1, exporter, owner)

    def _begun(self, at: int, exporter: int, owner: int) -> tuple[State, SignalState | None]:
        return self._held(at, at, 1, exporter, owner)

    def _held(
        self, since: int, at: int, count: int, exporter: int, owner: int
    ) -> tuple[State, SignalState | None]:
        enough = count >= self.row.samples and at - since >= self.row.for_
        state = (FIRING if enough else PENDING, since, at, count, exporter, owner)
        return state, SignalState.FIRING if enough else None

    def finding(self, place: SamplePlace, measured: dict[str, Attribute], state: SignalState) -> Finding:
        """The row's signal about a place."""
        row = self.row
        return Finding(
            row.kind,
            row.severity,
            {**row.attributes, **dict(place.attributes), **measured},
            state,
            gpu=place.gpu,
            nic=place.nic,
            port=place.port,
        )


class Value(Rule):
    """A gauge against its thresholds. A healthy reading of a healthy part costs one comparison."""

    def read(self, sample: Sample, value: float, stream: Stream, named: Named) -> Iterator[Finding] | None:
        """Past the threshold for long enough, or well again."""
        verdict = self.past(value)
        if verdict != PAST and not self.states(stream):
            return None
        if not self.is_reading(value) or not self.meant(sample):
            return None
        place = self.place(sample, stream, named)
        return self.judged(verdict, {self.row.says: tidy(value)}, place, sample, stream) if place else None


class Bits(Rule):
    """A mask of reasons, of which some are faults and most are not."""

    def __init__(self, row: MetricRow) -> None:
        super().__init__(row)
        self._mask = 0
        for bit in row.bits:
            self._mask |= bit

    def read(self, sample: Sample, value: float, stream: Stream, named: Named) -> Iterator[Finding] | None:
        """A fault's bit is set for long enough, or none is any more."""
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
        return self.judged(PAST if faults else WELL, measured, place, sample, stream)


def tidy(value: float) -> int | float:
    """A whole number as such, any other with as many digits as are worth reading."""
    return int(value) if value == int(value) else float(f"{value:.4g}")
