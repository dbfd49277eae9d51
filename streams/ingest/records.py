"""The result of opening a record, and what is known about a record besides its bytes."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

from streams.model.entity import PodRef
from streams.model.record import Observation

MAX_LINE = 16 * 1024
"""Characters read of a line. A longer one is cut, ends with an ellipsis then, and is counted in `Opened.cut`."""

MAX_OBSERVATIONS = 50_000
"""Lines, samples and events read of a record. The rest is not read, which `Opened.unreadable` says."""

JsonObject = Mapping[str, Any]
Scalar = str | int | float | bool | None
Row = tuple[Scalar, ...]
Unfinished = MutableMapping[Row, Row]
"""Lines of which only the beginning has come, by the name of their stream (see `line_reassembly.py`)."""


class Origin(NamedTuple):
    """Where and when a text was written, as far as its shipper says. Unknown parts are None or empty.

    `certain` is true when the zone of `at` is known; `sure` when `node` is the writer and cannot be a host the text is about;
    `level` counts as syslog does (`levels.py`).
    """

    at: datetime | None = None
    node: str | None = None
    pod: PodRef | None = None
    container: str | None = None
    source: str = ""
    certain: bool = False
    sure: bool = False
    level: int | None = None


UNKNOWN = Origin()

TRUST = timedelta(minutes=15)
"""So near to the shipper's a time without an offset is the line's own, in whatever zone it is written."""
ZONE_STEP = timedelta(minutes=30)
MOST_WEST = timedelta(hours=12)
"""Zones are whole half-hours off UTC, and none is further behind it."""
READ_WITHIN = timedelta(seconds=15)
"""How long after it was written a line is read where nothing holds the shipper up."""


def is_own(at: datetime, shipped: datetime) -> bool:
    """Whether a line's time without an offset, read as UTC, counts beside the time that its shipper gave it.

    A shipper gives the time that it parsed, with the right zone, or the time at which it read the line. What is off by whole
    half-hours, and by what reading takes, is in another zone: the shipper is right. What is older in any other way was written
    then: a file that is read again after the shipper lost its place tells of last week as if it were now.
    """
    behind = shipped - at
    if abs(behind) <= TRUST:
        return True
    if behind < timedelta() or behind > MOST_WEST + READ_WITHIN:
        return behind > timedelta()
    return behind % ZONE_STEP > READ_WITHIN


def merged(inner: Origin, outer: Origin) -> Origin:
    """The origin of what a wrapper with the origin `outer` holds, whose own text says `inner`.

    A pod prints what it likes, so for its host the shipper is believed. A relay wraps records of other hosts, so elsewhere the
    record's own host counts, unless that may be a host it is only about.
    """
    if outer is UNKNOWN or outer == UNKNOWN:
        return inner
    if outer.pod is not None or not inner.sure:
        node, sure = outer.node or inner.node, outer.sure if outer.node else inner.sure
    else:
        node, sure = inner.node, True
    at, certain = outer.at, outer.certain
    if inner.at is not None and (at is None or inner.certain or is_own(inner.at, at)):
        at, certain = inner.at, inner.certain
    pod, container = outer.pod or inner.pod, outer.container or inner.container
    level = outer.level if inner.level is None else inner.level
    return Origin(at, node, pod, container, outer.source or inner.source, certain, sure, level)


class Interest(Protocol):
    """Which parts of a large record to open; the rest is dropped as bytes, as whole records are."""

    def metric(self, name: str) -> bool:
        """True when a rule reads the metric."""
        ...

    def parts(self, parts: Sequence[bytes]) -> Sequence[int]:
        """Indexes of the parts (raw bytes) to open."""
        ...


class _Everything:
    def metric(self, name: str) -> bool:
        return True

    def parts(self, parts: Sequence[bytes]) -> Sequence[int]:
        return range(len(parts))


EVERYTHING: Interest = _Everything()


class Header(NamedTuple):
    """The header of a line. The message begins at `start`; `kernel` is true when the kernel wrote it.

    `certain` is true when `at` had its own offset from UTC, so that zone and year are known.
    """

    start: int = 0
    at: datetime | None = None
    host: str | None = None
    tag: str = ""
    kernel: bool = False
    certain: bool = False


class RecordContext(NamedTuple):
    """What is known besides the bytes. `node`, from Kafka's key or headers, is used when the payload names no host.

    `origin` is what the wrappers of these bytes say, `depth` their number. `unfinished` is kept from record to record, None for a
    record by itself; `mark` is stored with an unfinished line and comes back when it is flushed. `max_line` bounds each line.
    `cut` is true of a line whose rest did not come.
    """

    received_at: datetime
    node: str | None = None
    interest: Interest = EVERYTHING
    origin: Origin = UNKNOWN
    depth: int = 0
    unfinished: Unfinished | None = None
    mark: Row = ()
    max_line: int = MAX_LINE
    cut: bool = False

    def within(self, origin: Origin, *, max_line: int = MAX_LINE, cut: bool = False) -> RecordContext:
        """The context of what a wrapper with the origin `origin` holds; what a cut line holds is cut as well."""
        received_at, node, interest, _, depth, unfinished, mark, _, within_cut = self
        cut = cut or within_cut
        return RecordContext(received_at, node, interest, origin, depth + 1, unfinished, mark, max_line, cut)


@dataclass(slots=True)
class Opened:
    """The observations of one record, and a reason for each part that could not be read (`unreadable`).

    `cut` counts lines longer than `MAX_LINE`. `nested` is what a reader found wrapped, to be opened next: a text, bytes, a JSON
    object, a list of them, or a finished line that comes after such.
    """

    observations: list[Observation] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    cut: int = 0
    nested: list[tuple[object, RecordContext]] = field(default_factory=list)

    def full(self) -> bool:
        """True when the record has given `MAX_OBSERVATIONS`; adds the reason to `unreadable` once."""
        if len(self.observations) < MAX_OBSERVATIONS:
            return False
        reason = f"more than {MAX_OBSERVATIONS} lines or samples; only the first ones were read"
        if reason not in self.unreadable:
            self.unreadable.append(reason)
        return True
