"""Progress of a long read for the log: records done, total and time left."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

_EVERY_S = 5.0
_WORTH_S = 2.0


class ReadProgress:
    """A read of `total` records that is reported every few seconds."""

    def __init__(
        self, total: int, *, every_s: float = _EVERY_S, clock: Callable[[], float] = monotonic
    ) -> None:
        self.total = total
        self._every_s = every_s
        self._clock = clock
        self._begun = self._told_at = clock()
        self.has_told = False

    @property
    def seconds(self) -> float:
        """Seconds since it started."""
        return self._clock() - self._begun

    @property
    def worth_telling(self) -> bool:
        """Whether it took long enough to be worth a line in the log."""
        return self.seconds >= _WORTH_S

    def told(self, left: int) -> str:
        """The text to log when this many records are left; empty until the next one is due."""
        now = self._clock()
        if now - self._told_at < self._every_s:
            return ""
        self._told_at = now
        self.has_told = True
        self.total = max(self.total, left)
        done = self.total - left
        if not done:
            return f"0 of {left:,} records"
        left_s = self.seconds / done * left
        return f"{done:,} of {self.total:,} records, about {left_s:,.0f} s left"
