"""What opening a record gives, and what is known about the record from outside its bytes."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

from streams.model.entity import PodRef
from streams.model.record import Observation

MAX_LINE = 16 * 1024
"""Characters of one line that are read. What stands behind is not looked at, and the record says so."""

MAX_OBSERVATIONS = 50_000
"""Lines, samples and events of one record. What is behind them is not read, and the record says so."""

JsonObject = Mapping[str, Any]
Scalar = str | int | float | bool | None
Row = tuple[Scalar, ...]
Unfinished = MutableMapping[Row, Row]
"""Lines of which only the beginning has come, by the name of their stream (see `pieces.py`)."""


class Origin(NamedTuple):
    """What a shipper said of where and when its text was written. Parts it did not name are None or empty.

    `certain` is true when `at` needs no doubt about its zone; `sure` when `node` is the writer's own name and not perhaps that of
    somebody it speaks of.
    """

    at: datetime | None = None
    node: str | None = None
    pod: PodRef | None = None
    container: str | None = None
    source: str = ""
    certain: bool = False
    sure: bool = False


UNKNOWN = Origin()

TRUST = timedelta(minutes=15)
"""How near a time without an offset must be to the shipper's own to be believed: further off it is in another time zone."""


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
    if inner.at is not None and (at is None or inner.certain or abs(at - inner.at) <= TRUST):
        at, certain = inner.at, inner.certain
    return Origin(
        at,
        node,
        outer.pod or inner.pod,
        outer.container or inner.container,
        outer.source or inner.source,
        certain,
        sure,
    )


class Interest(Protocol):
    """What is worth opening of a record that holds thousands of things: the rest is dropped as bytes, as whole records are."""

    def metric(self, name: str) -> bool:
        """True when somebody reads the metric's samples."""
        ...

    def parts(self, parts: Sequence[bytes]) -> Sequence[int]:
        """Indexes of the parts, each as raw as it came, that somebody might read."""
        ...


class _Everything:
    def metric(self, name: str) -> bool:
        return True

    def parts(self, parts: Sequence[bytes]) -> Sequence[int]:
        return range(len(parts))


EVERYTHING: Interest = _Everything()


class RecordContext(NamedTuple):
    """What is known from outside the bytes. `node`, by Kafka's key or headers, is used when the payload names no host.

    `origin` is what wrappers around these bytes said, `depth` how many there were. `unfinished` lives from record to record; None
    when the record stands alone. `mark` comes back with a line that is let go unfinished. `max_line` bounds each line.
    """

    received_at: datetime
    node: str | None = None
    interest: Interest = EVERYTHING
    origin: Origin = UNKNOWN
    depth: int = 0
    unfinished: Unfinished | None = None
    mark: Row = ()
    max_line: int = MAX_LINE

    def within(self, origin: Origin, *, max_line: int = MAX_LINE) -> RecordContext:
        """For what a wrapper holds, about which the wrapper said `origin`."""
        return RecordContext(
            self.received_at,
            self.node,
            self.interest,
            origin,
            self.depth + 1,
            self.unfinished,
            self.mark,
            max_line,
        )


@dataclass(slots=True)
class Opened:
    """The observations of one record and what in it could not be read (`unreadable`: one reason each).

    `cut` counts lines longer than `MAX_LINE`. `nested` is what a reader found wrapped and is opened next, by its shape: a text,
    bytes, a JSON object, a list of them, or a line that stands behind such.
    """

    observations: list[Observation] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    cut: int = 0
    nested: list[tuple[object, RecordContext]] = field(default_factory=list)

    def full(self) -> bool:
        """True when the record has given all that one may; says so in `unreadable`, once."""
        if len(self.observations) < MAX_OBSERVATIONS:
            return False
        reason = f"more than {MAX_OBSERVATIONS} lines or samples, of which the first were read"
        if reason not in self.unreadable:
            self.unreadable.append(reason)
        return True
