"""Where a time stands on a timeline: busy minutes keep their room, empty hours are compressed.

Each pause between two neighbouring moments gets room by its logarithm, so that seconds stay apart beside a night. Time never
runs backwards on it, and equal times stand at the same place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from math import log1p

_SCALE_S = 4.0
"""Pauses shorter than this grow about linearly."""
LONG = timedelta(minutes=20)
"""Pauses from here on are marked as compressed, with their length."""
MAX_MOMENTS = 240
"""More would stand closer than a pixel."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A long pause that was compressed, and between which places."""

    begin: float
    end: float
    length: timedelta


class TimeAxis:
    """Maps times to places between `left` and `right`."""

    def __init__(self, moments: Iterable[datetime], left: float, right: float) -> None:
        times = sorted(set(moments))
        if len(times) > MAX_MOMENTS:
            every = len(times) / (MAX_MOMENTS - 1)
            times = [*(times[int(n * every)] for n in range(MAX_MOMENTS - 1)), times[-1]]
        self._times = times
        lengths = [log1p((b - a).total_seconds() / _SCALE_S) for a, b in pairwise(times)]
        total = sum(lengths)
        self._places = [left]
        for length in lengths:
            self._places.append(self._places[-1] + length / total * (right - left))

    @property
    def begin(self) -> datetime:
        """The first moment."""
        return self._times[0]

    @property
    def end(self) -> datetime:
        """The last moment."""
        return self._times[-1]

    def place(self, at: datetime) -> float:
        """Where a time stands; those outside stand at the nearer end."""
        after = bisect_right(self._times, at)
        if after == 0:
            return self._places[0]
        if after == len(self._times):
            return self._places[-1]
        before, then = self._times[after - 1], self._times[after]
        share = log1p((at - before).total_seconds() / _SCALE_S) / log1p(
            (then - before).total_seconds() / _SCALE_S
        )
        return self._places[after - 1] + share * (self._places[after] - self._places[after - 1])

    def pauses(self) -> tuple[Pause, ...]:
        """The long pauses, in order."""
        return tuple(
            Pause(self._places[n], self._places[n + 1], then - before)
            for n, (before, then) in enumerate(pairwise(self._times))
            if then - before >= LONG
        )
