"""Timers by name: finding those that are due costs what is due, not what is there. Pure."""

from __future__ import annotations

from datetime import datetime
from heapq import heapify, heappop, heappush


class TimerQueue:
    """A time for each name; the earliest is found without going through all of them."""

    def __init__(self) -> None:
        self._at: dict[str, datetime] = {}
        self._heap: list[tuple[datetime, str]] = []

    def put(self, name: str, at: datetime) -> None:
        """Set the timer, replacing an earlier setting."""
        if self._at.get(name) == at:
            return
        self._at[name] = at
        heappush(self._heap, (at, name))
        if len(self._heap) > 64 + 4 * len(self._at):
            self._heap = [(at, name) for name, at in self._at.items()]
            heapify(self._heap)

    def sooner(self, name: str, at: datetime) -> None:
        """Set the timer, unless it is already set to an earlier time."""
        known = self._at.get(name)
        if known is None or at < known:
            self.put(name, at)

    def drop(self, name: str) -> None:
        """Remove the timer."""
        self._at.pop(name, None)

    def take_due(self, now: datetime) -> list[str]:
        """Remove and return the names that are due, in order of time and name."""
        found = []
        while (earliest := self.earliest) is not None and earliest <= now:
            _, name = heappop(self._heap)
            del self._at[name]
            found.append(name)
        return found

    @property
    def earliest(self) -> datetime | None:
        """When the next one is due."""
        while self._heap:
            at, name = self._heap[0]
            if self._at.get(name) == at:
                return at
            heappop(self._heap)
        return None

    def __len__(self) -> int:
        return len(self._at)
