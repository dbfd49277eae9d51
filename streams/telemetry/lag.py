"""How far a process is behind in each of its partitions, and whether it is stuck or only idle. Pure, but for two clocks.

A look tells the position processed and the end of each partition. The age of the oldest unprocessed record follows from the
looks: a record behind the end that an earlier look saw was appended after that look. The times that records carry are used only
where no look helps, which is after a takeover: a shipper's clock may be off by hours.

Stuck is a partition whose position does not move between looks although records wait. Only looks that the broker answered count:
nothing moves while it is away, and a restart of the process would not help.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from streams.telemetry import metrics as shown
from streams.telemetry.registry import Metrics, Series

STUCK_S = 120.0
"""A partition that stands still for longer makes its process dead to `/live`. No record takes nearly as long to process."""

LONGEST_GAP_S = 15.0
"""How much of the time between two looks counts at most: a process that was frozen was not stuck."""

MOST_ENDS = 1_000
"""Ends of earlier looks that are kept of one partition."""

Place = tuple[str, int]
"""A topic, without the installation's prefix, and a partition of it."""


class Processed(NamedTuple):
    """How far one partition is processed."""

    offset: int
    """The first offset that is not."""
    written_ms: int | None = None
    """When the last record that was processed was written, by its own timestamp."""
    waits: bool = False
    """Whether it is meant to stand still now: its state is being read, or what it writes to is known to be away."""


@dataclass(slots=True)
class _Partition:
    since: float
    offset: int = -1
    end: int = -1
    written_at: float | None = None
    looked_at: float | None = None
    """Of the last look that counts for being stuck."""
    stuck_s: float = 0.0
    ends: deque[tuple[float, int]] = field(default_factory=deque)
    """Ends and when they were seen; the first is at or before the position, all others behind it."""

    @property
    def lag(self) -> int:
        return max(0, self.end - self.offset)


class LagMeter:
    """The partitions of one process.

    Args:
        clock: Seconds that never jump.
        wall: Seconds since 1970, for times that records carry.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._partitions: dict[Place, _Partition] = {}
        self._checked_at: float | None = None

    def looked(
        self, processed: Mapping[Place, Processed], ends: Mapping[Place, int], *, confirmed: bool = True
    ) -> None:
        """Take what a look found of all partitions that are owned; others are forgotten.

        `confirmed`: the broker has just told the ends. Otherwise they are what was last heard of them.
        """
        now = self._clock()
        for place in [place for place in self._partitions if place not in processed]:
            del self._partitions[place]
        for place, (offset, written_ms, waits) in processed.items():
            if place not in ends:
                continue
            known = self._partitions.get(place)
            if known is None:
                known = self._partitions[place] = _Partition(now)
            stands = known.lag > 0 and known.offset == offset
            known.offset, known.end = offset, max(ends[place], offset)
            if written_ms is not None:
                known.written_at = min(written_ms / 1000, self._wall())
            if confirmed:
                self._count_stuck(known, now, stands=stands and known.lag > 0 and not waits)
                self._note_end(known, now)
        if confirmed:
            self._checked_at = self._wall()

    @property
    def stuck(self) -> str:
        """Which partition has been stuck for too long; empty while none is."""
        late = [(known.stuck_s, place) for place, known in list(self._partitions.items())]
        longest, place = max(late, default=(0.0, ("", 0)))
        if longest <= STUCK_S:
            return ""
        return f"{place[0]}[{place[1]}]: records wait and none was processed for {longest:.0f} s"

    def records(self) -> dict[Series, float]:
        """Unprocessed records, by topic and partition."""
        return {_series(place): float(known.lag) for place, known in list(self._partitions.items())}

    def seconds(self) -> dict[Series, float]:
        """How long the oldest unprocessed record has waited at most, by topic and partition."""
        return {_series(place): self._waited_s(known) for place, known in list(self._partitions.items())}

    def stuck_seconds(self) -> dict[Series, float]:
        """How long each partition has been stuck, by topic and partition."""
        return {_series(place): known.stuck_s for place, known in list(self._partitions.items())}

    def show(self, metrics: Metrics) -> None:
        """Show all of this at every scrape."""
        metrics.read_at_scrape(shown.LAG_RECORDS, self.records)
        metrics.read_at_scrape(shown.LAG_SECONDS, self.seconds)
        metrics.read_at_scrape(shown.STUCK_SECONDS, self.stuck_seconds)
        metrics.read_at_scrape(
            shown.LAG_CHECKED, lambda: {} if self._checked_at is None else {(): self._checked_at}
        )

    def _waited_s(self, known: _Partition) -> float:
        if not known.lag:
            return 0.0
        bounds: list[float] = []
        ends = list(known.ends)
        if ends and ends[0][1] <= known.offset:
            bounds.append(self._clock() - ends[0][0])
        elif known.written_at is not None:
            bounds.append(self._wall() - known.written_at)
        else:
            bounds.append(self._clock() - known.since)
        return max(0.0, *bounds)

    def _count_stuck(self, known: _Partition, now: float, *, stands: bool) -> None:
        gap = 0.0 if known.looked_at is None else min(now - known.looked_at, LONGEST_GAP_S)
        known.stuck_s = known.stuck_s + gap if stands else 0.0
        known.looked_at = now

    def _note_end(self, known: _Partition, now: float) -> None:
        ends = known.ends
        if ends and ends[-1][1] == known.end:
            ends[-1] = (now, known.end)  # nothing has come: whatever comes next is younger than this look
        else:
            ends.append((now, known.end))
        while len(ends) > 1 and ends[1][1] <= known.offset:
            ends.popleft()
        if len(ends) > MOST_ENDS:
            # Every other one, but the first and the last: the age is told a little too high.
            kept = list(ends)
            known.ends = deque([kept[0], *kept[2:-1:2], kept[-1]])


def _series(place: Place) -> Series:
    return (place[0], str(place[1]))
