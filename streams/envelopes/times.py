"""Times as log lines and shippers write them, made whole: with a year and in UTC.

Many formats leave the year out, some the offset. `reference` (when Kafka or the shipper got the line) supplies the year;
a time without an offset is read as UTC, and given up when that puts it into the future.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
FUTURE = timedelta(minutes=5)
"""How far ahead of its arrival a line may claim to be: clocks differ by seconds, time zones by more than this."""

_ZONES = timedelta(hours=14, minutes=5)
"""A time without a year that is ahead by no more than this is of another zone; by more, it is of the year before."""


def iso(text: str, *, reference: datetime | None = None) -> datetime | None:
    """An ISO 8601 time, `T` or blank, `.` or `,` before the fraction; None when it is none."""
    try:
        at = datetime.fromisoformat(_at_most_microseconds(text.strip().replace(",", ".")))
    except ValueError:
        return None
    if at.tzinfo is not None:
        return _in_utc(at)
    return _not_ahead(at.replace(tzinfo=UTC), reference)


def yearless(
    month: str, day: str, clock: str, reference: datetime, *, year: str | None = None
) -> datetime | None:
    """`Nov`, `21`, `07:13:13.5` and perhaps a year; None when that is no date or lies ahead of `reference`."""
    try:
        number = int(month) if month.isdigit() else MONTHS.index(month[:3].lower()) + 1
    except ValueError:
        return None
    day_and_clock = f"{number:02d}-{int(day):02d} {clock}"
    if year:
        return iso(f"{int(year):04d}-{day_and_clock}", reference=reference)
    dates = (iso(f"{reference.year + late:04d}-{day_and_clock}") for late in (1, 0, -1))
    at = next((at for at in dates if at is not None and at - reference <= _ZONES), None)
    return _not_ahead(at, reference) if at is not None else None


def epoch(value: float | int | str) -> datetime | None:
    """Seconds, milliseconds, microseconds or nanoseconds since 1970, told apart by their size; None when neither."""
    try:
        seconds = float(value)
        if not math.isfinite(seconds) or seconds <= 0:
            return None
        while seconds > 1e11:
            seconds /= 1000.0
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def any_form(value: object) -> datetime | None:
    """A time field of a JSON record: a number since 1970, such a number as text, or an ISO time."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return epoch(value)
    if isinstance(value, str) and value:
        return epoch(value) if value.replace(".", "", 1).isdigit() else iso(value)
    return None


def _at_most_microseconds(text: str) -> str:
    """Nanoseconds are common in logs and unknown to `datetime`."""
    head, dot, tail = text.partition(".")
    if not dot:
        return text
    digits = 0
    while digits < len(tail) and tail[digits].isdigit():
        digits += 1
    return f"{head}.{tail[: min(digits, 6)].ljust(6, '0')}{tail[digits:]}" if digits else text


def _in_utc(at: datetime) -> datetime | None:
    try:
        return at.astimezone(UTC)
    except OverflowError:  # the first and the last day of the calendar
        return None


def _not_ahead(at: datetime, reference: datetime | None) -> datetime | None:
    return None if reference is not None and at - reference > FUTURE else at
