"""How much of what was fetched may wait to be handled.

Faust counts records, and a record of signals is anything between a few hundred bytes and a megabyte. Here bytes count, for each
topic's partition by itself: one with a long backlog is not fetched while enough of it waits, and never makes another wait for
more than that.
"""

from __future__ import annotations

from collections import defaultdict

from faust.types import TP

MAX_BYTES = 1_500_000
"""Of one topic's partition. The others, which are up to date, wait behind it: a second or two."""

PER_RECORD_BYTES = 1_000
"""What a record takes besides its key and value."""


class FetchedBytes:
    """Bytes that were handed out and not yet taken, by topic and partition."""

    def __init__(self, limit: int = MAX_BYTES) -> None:
        self._limit = limit
        self._bytes: defaultdict[TP, int] = defaultdict(int)

    def put(self, tp: TP, size: int) -> bool:
        """Count a record; True when no more should be fetched."""
        self._bytes[tp] += size + PER_RECORD_BYTES
        return self._bytes[tp] >= self._limit

    def take(self, tp: TP, size: int) -> bool:
        """A record is taken; True when there is room again."""
        self._bytes[tp] = max(0, self._bytes[tp] - size - PER_RECORD_BYTES)
        return self._bytes[tp] <= self._limit // 2

    def forget(self) -> None:
        """Nothing waits any more: Faust empties its buffers when a rebalance begins."""
        self._bytes.clear()
