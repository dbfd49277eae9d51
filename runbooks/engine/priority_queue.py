"""Names that wait, ordered by a key. Pure."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any


class PriorityQueue:
    """A name is in the queue once. Keys of one queue have to be comparable."""

    def __init__(self) -> None:
        self._keys: dict[str, Any] = {}
        self._heap: list[tuple[Any, str]] = []

    def put(self, name: str, key: Any) -> None:
        """Add a name; the smallest key is first. A name that already waits is never moved back."""
        if name in self._keys and self._keys[name] <= key:
            return
        self._keys[name] = key
        heappush(self._heap, (key, name))
        if len(self._heap) > 64 + 4 * len(self._keys):
            self._heap = [(key, name) for name, key in self._keys.items()]
            heapify(self._heap)

    def drop(self, name: str) -> None:
        """Remove a name."""
        self._keys.pop(name, None)

    def take(self, most: int) -> list[str]:
        """Remove and return the first names, at most `most`."""
        taken: list[str] = []
        while len(taken) < most and self._keys:
            key, name = heappop(self._heap)
            if self._keys.get(name) == key:
                del self._keys[name]
                taken.append(name)
        return taken

    def __contains__(self, name: str) -> bool:
        return name in self._keys

    def __len__(self) -> int:
        return len(self._keys)
