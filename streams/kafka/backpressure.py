"""Limits how many fetched bytes wait to be processed.

Faust counts records, and a record of signals is anything between a few hundred bytes and a megabyte. Here bytes count, for each
topic's partition by itself: one with a long backlog is not fetched while enough of it waits, and never makes another wait for
more than that.
"""

from __future__ import annotations

from collections import defaultdict

from faust.types import TP

MAX_BYTES = 1_500_000
"""Per partition of a topic: the others wait behind it, a second or two."""

PER_RECORD_BYTES = 1_000
"""Overhead of a record besides its key and value."""


class FetchedBytes:
    """Bytes fetched and not yet processed, by topic and partition."""

    def __init__(self, limit: int = MAX_BYTES) -> None:
        self._limit = limit
        self._bytes: defaultdict[TP, int] = defaultdict(int)

    def put(self, tp: TP, size: int) -> bool:
        """Count a fetched record; True when fetching should pause."""
        self._bytes[tp] += size + PER_RECORD_BYTES
        return self._bytes[tp] >= self._limit

    def take(self, tp: TP, size: int) -> bool:
        """Count a processed record; True when fetching may resume."""
        self._bytes[tp] = max(0, self._bytes[tp] - size - PER_RECORD_BYTES)
        return self._bytes[tp] <= self._limit // 2

    def forget(self) -> None:
        """Reset all counts: Faust empties its buffers when a rebalance begins."""
        self._bytes.clear()
