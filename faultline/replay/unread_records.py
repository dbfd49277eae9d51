"""Records of a capture that cannot be read: a replay leaves them out and counts them, as production's `dead-letters` do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from streams.model.record import RawRecord

NAMED = 3
"""So many are named with their place and reason; the others are counted."""


@dataclass(slots=True)
class UnreadRecords:
    """Each counts once, however often the capture is read."""

    named: list[str] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)

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
        self.named += [line for line in others.named if line not in self.named][: NAMED - len(self.named)]

    def lines(self) -> Iterator[str]:
        """What to tell of them; nothing when there are none."""
        if not self._known:
            return
        for line in self.named:
            yield f"left out, as a dead letter: {line}"
        more = len(self) - len(self.named)
        if more > 0:
            yield f"left out, as dead letters: {more} more, {len(self)} records in all"
