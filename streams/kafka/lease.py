"""Leases: may this process still start the call whose intent it committed?

An intent is committed with the time until which its call may start. Two clocks guard it. The boot clock keeps counting while
the process is stopped or the machine sleeps, and its deadline is taken from *before* the commit began, so however long the
commit or a pause took is already deducted. The wall clock is what a successor on another machine goes by; the margin covers
the difference between the two machines.

Where the clocks differ by more than that, the group session still protects: a lease expires before the broker reassigns the
partition of a frozen holder, so the two never act at the same time, whatever their clocks say.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from streams.config.settings import KafkaSettings
from streams.model.clock import Clock, MonotonicClock, boot_seconds, utc_now
from streams.model.errors import Fenced

MARGIN_S = 2.0
"""How far the clocks of two machines may differ: the holder stops this much early, the successor waits this much longer."""


@dataclass(eq=False, slots=True)
class Lease:
    """Fulfils `connectors.base.LeaseHeld` for one intent. Build it with `begin`, before the intent is committed."""

    until: datetime
    _boot_deadline_s: float
    _clock: Clock
    _boot: MonotonicClock
    _revoked: str | None = None

    @classmethod
    def begin(cls, length_s: float, *, clock: Clock = utc_now, boot: MonotonicClock = boot_seconds) -> Lease:
        """Start a lease now. `until` goes into the intent's `lease_until`.

        Raises:
            ValueError: when the lease is not longer than the margin for clock differences.
        """
        if length_s <= MARGIN_S:
            raise ValueError(f"a lease of {length_s} s is not longer than the margin of {MARGIN_S} s")
        return cls(clock() + timedelta(seconds=length_s), boot() + length_s - MARGIN_S, clock, boot)

    def another(self) -> Lease:
        """A copy with the same deadline that can be revoked separately."""
        return replace(self)

    def check(self) -> None:
        """Return when the call may start now.

        Raises:
            Fenced: when the lease has expired or was revoked because the partition went to another owner.
        """
        if self._revoked is not None:
            raise Fenced(self._revoked)
        if self._boot() >= self._boot_deadline_s or self._clock() >= self.until - timedelta(seconds=MARGIN_S):
            raise Fenced(f"the lease ran out (until {self.until.isoformat()})")

    def revoke(self, reason: str) -> None:
        """Make every later `check` fail: the process already knows that it lost the partition."""
        self._revoked = reason


def longest_s(kafka: KafkaSettings) -> float:
    """The longest lease in seconds that is sure to expire before a frozen holder's partition is reassigned.

    The last heartbeat may be one heartbeat interval old when the holder begins a lease and freezes. The session runs from that
    heartbeat, and the holder stops `MARGIN_S` before its lease expires.
    """
    return (kafka.session_timeout_ms - kafka.heartbeat_interval_ms) / 1000 + MARGIN_S


def inherited_wait_s(lease_until: datetime, now: datetime) -> float:
    """Seconds a successor still has to wait before it may act on an intent of its predecessor; 0 when the lease is over."""
    return max(0.0, (lease_until - now).total_seconds() + MARGIN_S)
