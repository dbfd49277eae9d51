"""Names ordered by a key: a priority, or the time of a timer. Taking the first ones costs what is taken, not what waits. Pure."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from typing import Any


class PriorityQueue:
    """A name is in the queue once. Keys of one queue have to be comparable."""

    def __init__(self) -> None:
        self._keys: dict[str, Any] = {}
        self._heap: list[tuple[Any, str]] = []
        """Has outdated entries too: those whose key is not the present one of their name."""

    def put(self, name: str, key: Any) -> None:
        """Add a name, or replace its key."""
        if self._keys.get(name) == key:
            return
        self._keys[name] = key
        heappush(self._heap, (key, name))
        if len(self._heap) > 64 + 4 * len(self._keys):
            self._heap = [(key, name) for name, key in self._keys.items()]
            heapify(self._heap)

    def bring_forward(self, name: str, key: Any) -> None:
        """Add a name, or replace its key by a smaller one."""
        if name not in self._keys or key < self._keys[name]:
            self.put(name, key)

    def drop(self, name: str) -> None:
        """Remove a name."""
        self._keys.pop(name, None)

    @property
    def first_key(self) -> Any:
        """The smallest key; None for an empty queue."""
        while self._heap:
            key, name = self._heap[0]
            if self._keys.get(name) == key:
                return key
            heappop(self._heap)
        return None

    def take(self, most: float = inf, *, until: Any = None) -> list[str]:
        """Remove and return the first names in order of key and name: at most `most`, and none with a key above `until`."""
        taken: list[str] = []
        while len(taken) < most and (key := self.first_key) is not None and (until is None or key <= until):
            _, name = heappop(self._heap)
            del self._keys[name]
            taken.append(name)
        return taken

    def __contains__(self, name: str) -> bool:
        return name in self._keys

    def __len__(self) -> int:
        return len(self._keys)
