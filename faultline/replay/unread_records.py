"""Records of a capture that cannot be read: a replay leaves them out and counts them, as production's `dead-letters` do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from streams.model.clock import to_millis
from streams.model.record import RawRecord

_MARGIN = timedelta(days=1)
NAMED = 3
"""So many are named with their place and reason; the others are counted."""


@dataclass(slots=True)
class UnreadRecords:
    """Each counts once, however often the capture is read."""

    named: list[str] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)

    outside: set[tuple[str, int, int]] = field(default_factory=set)
    """Topic, partition and offset of each record that was left out for its time."""

    def __len__(self) -> int:
        return len(self._known)

    def add(self, record: RawRecord, why: str, where: Callable[[], str]) -> None:
        """One more. `where` says its file and line, which takes a while, so it is asked of the first few alone."""
        if record.coordinates in self._known:
            return
        self._known.add(record.coordinates)
        if len(self.named) < NAMED:
            self.named.append(f"{where()}: {why}")

    def take(self, others: UnreadRecords) -> None:
        """Those that another process met in the same capture."""
        self._known |= others._known
        self.outside |= others.outside
        self.named += [line for line in others.named if line not in self.named][: NAMED - len(self.named)]

    def lines(self) -> Iterator[str]:
        """What to tell of them; nothing when there are none."""
        if self.outside:
            topics = ", ".join(sorted({topic for topic, _, _ in self.outside}))
            yield f"left out, more than a day before or after the capture's times: {len(self.outside)} records of {topics}"
        for line in self.named:
            yield f"left out, as a dead letter: {line}"
        more = len(self) - len(self.named)
        if more > 0:
            yield f"left out, as dead letters: {more} more, {len(self)} records in all"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The times (µs) that records of a capture made by hand may have. One wrong clock would make a replay tick on for decades."""

    first: int
    last: int
    unread: UnreadRecords

    @classmethod
    def of(cls, first: datetime, last: datetime, unread: UnreadRecords) -> Bounds:
        """A day more on either side."""
        return cls(_micros(first - _MARGIN), _micros(last + _MARGIN), unread)

    def has(self, topic: str, partition: int, offset: int, time: int) -> bool:
        """Whether a record counts; one that does not is noted."""
        if self.first <= time <= self.last:
            return True
        self.unread.outside.add((topic, partition, offset))
        return False

    def holds(self, record: RawRecord) -> bool:
        """Likewise."""
        return self.has(record.topic, record.partition, record.offset, _micros(record.timestamp))


def _micros(at: datetime) -> int:
    return to_millis(at) * 1000
