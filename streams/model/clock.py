"""One way to tell the time. Pure parts take `now`; only shells hold a `Clock`."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from streams.model.errors import BadInput

Clock = Callable[[], datetime]
"""Returns the present as an aware UTC datetime."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""Kafka knows no time before it."""
_MILLISECOND = timedelta(milliseconds=1)

MonotonicClock = Callable[[], float]
"""Seconds on a clock that never jumps and that keeps counting while the process is frozen."""

FUTURE = timedelta(minutes=5)
"""How far another clock may be ahead: clocks differ by seconds, time zones by more than this."""


def utc_now() -> datetime:
    """The wall clock, aware, in UTC."""
    return datetime.now(UTC)


def boot_seconds() -> float:
    """Seconds since boot, counting time the process or the machine spent asleep.

    `time.monotonic` stops during a suspend of the machine; leases must not.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def from_millis(millis: int) -> datetime:
    """A Kafka timestamp (milliseconds since the epoch) as an aware datetime."""
    return EPOCH + millis * _MILLISECOND


def not_ahead(at: datetime | None, received_at: datetime) -> datetime:
    """A time that somebody else wrote, of what was received then: the latter where none was written, or one ahead of it by more
    than clocks drift.
    """
    return received_at if at is None or at - received_at > FUTURE else at


def to_millis(at: datetime) -> int:
    """An aware datetime as a Kafka timestamp, rounded down to the millisecond."""
    return (at - EPOCH) // _MILLISECOND


def parse_rfc3339(text: str) -> datetime:
    """An RFC 3339 time as an aware UTC datetime.

    Raises:
        BadInput: when the text is no time or names no offset.
    """
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is None:
            raise BadInput(f"a time without an offset from UTC: {text[:40]!r}")
        return at.astimezone(UTC)
    # In the year 1 or 9999 the same time may overflow in UTC.
    except (ValueError, OverflowError) as error:
        raise BadInput(f"not an RFC 3339 time: {text[:40]!r}") from error


def rfc3339(at: datetime) -> str:
    """An aware datetime in RFC 3339 with `Z` and as many fractional digits as it needs."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def to_the_second(at: datetime) -> str:
    """An aware datetime in RFC 3339 for people, who have no use for its fractions."""
    return rfc3339(at.replace(microsecond=0))


def moment(at: datetime | None) -> str:
    """A time as commands print it: UTC, to the second; empty for None."""
    return at.strftime("%Y-%m-%d %H:%M:%SZ") if at else ""


def span(length: timedelta | float) -> str:
    """A length of time (or its seconds) as people say it: `87 s`, `25 min`, `3 h 10 min`, `4 days`."""
    whole = round(length.total_seconds() if isinstance(length, timedelta) else length)
    if whole < 120:
        return f"{whole} s"
    minutes = round(whole / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{round(hours / 24)} days"
