"""Times of log lines and shippers, completed with year and zone, in UTC.

Many formats leave out the year, some the offset. `reference` (when Kafka or the shipper got the line) supplies the year; a time
without an offset is read as UTC, and dropped when that puts it into the future.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from streams.model.clock import FUTURE

_EARLIEST_S = 1e8
"""1973: smaller numbers are seconds since boot."""

_MAPPED = ("$date", "seconds", "sec", "s", "$numberLong")
_OFFSET = re.compile(r"[+-]\d\d:?(?:\d\d)?$|(?:UTC|GMT)\b")
_GO = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:[.,]\d{1,9})?) ?([+-]\d\d:?\d\d|Z|UTC)(?: [A-Z+\d-]{1,8})?"
)
"""`2026-11-21 07:13:15 +0000 UTC`: how Go prints a time, and Ruby."""
_DAY_FIRST = re.compile(
    r"(?:[A-Z][a-z]{2}, )?(?P<day>\d{1,2})[ /-](?P<month>[A-Za-z]{3})[ /-](?P<year>\d{4})[ :]"
    r"(?P<clock>\d\d:\d\d:\d\d(?:\.\d{1,9})?) ?(?P<zone>[+-]\d{4}|GMT|UTC|Z)?"
)
_ZONES_BY_NAME = {"GMT": "Z", "UTC": "Z"}
_BSD = re.compile(
    r"(?:[A-Z][a-z]{2} )?(?P<month>[A-Z][a-z]{2}) {1,2}(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d:\d\d(?:\.\d{1,9})?)"
    r"(?: (?P<year>\d{4}))?"
)

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_ZONES = timedelta(hours=14, minutes=5)
"""A time without a year that is ahead by at most this is in another zone; beyond, it is of the year before."""


def iso(text: str, *, reference: datetime | None = None) -> datetime | None:
    """An ISO 8601 time with `T` or blank and `.` or `,` before the fraction; None for any other text."""
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
    """`Nov`, `21`, `07:13:13.5` and maybe a year; None when that is no date, or ahead of `reference`."""
    try:
        number = int(month) if month.isdigit() else MONTHS.index(month[:3].lower()) + 1
    except ValueError:
        return None
    day_and_clock = f"{number:02d}-{int(day):02d} {clock}"
    if year:
        return iso(f"{int(year):04d}-{day_and_clock}", reference=reference)
    at = next((at for at in _dates(day_and_clock, reference.year) if at - reference <= _ZONES), None)
    return _not_ahead(at, reference) if at is not None else None


@lru_cache(maxsize=4096)
def _dates(day_and_clock: str, year: int) -> tuple[datetime, ...]:
    """The time in the next, this and the last year, where the day exists. Cached: all lines of a second share it."""
    return tuple(at for late in (1, 0, -1) if (at := iso(f"{year + late:04d}-{day_and_clock}")) is not None)


def epoch(value: float | int | str) -> datetime | None:
    """Seconds, milliseconds, microseconds or nanoseconds since 1970, told apart by their size.

    None for anything else, and for numbers so small that they count from boot.
    """
    try:
        seconds = float(value)
        if not math.isfinite(seconds) or seconds < _EARLIEST_S:
            return None
        while seconds > 1e11:
            seconds /= 1000.0
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


@lru_cache(4096)
def at_nanos(nanos: int | str) -> datetime | None:
    """`epoch`, cached: the records of a message share times. None for zero, which means unknown."""
    return epoch(nanos)


def any_form(value: object, reference: datetime | None = None) -> datetime | None:
    """A time field of a JSON record: a number since 1970, such a number as text, a date in any usual writing, or a map of
    seconds and nanoseconds. `reference` completes a date without a year."""
    if isinstance(value, str):
        return _written(value, reference) if value else None
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return epoch(value)
    if isinstance(value, dict):
        inner = next((value[name] for name in _MAPPED if name in value), None)
        return any_form(inner, reference) if isinstance(inner, (str, int, float)) else None
    return None


def has_zone(text: str) -> bool:
    """True for a time with an offset or a zone, and for seconds since 1970."""
    return text[-1:] in "Zz" or _OFFSET.search(text[10:]) is not None or _is_number(text)


def _written(text: str, reference: datetime | None) -> datetime | None:
    if _is_number(text):
        return epoch(text)
    if (at := iso(text)) is not None:
        return at
    text = text.strip()[:64]
    if (match := _GO.fullmatch(text)) is not None:
        return iso(f"{match[1]}T{match[2]}{_ZONES_BY_NAME.get(match[3], match[3])}")
    if (match := _DAY_FIRST.fullmatch(text)) is not None:
        zone = _ZONES_BY_NAME.get(zone := match["zone"] or "", zone)
        try:
            month = MONTHS.index(match["month"].lower()) + 1
        except ValueError:
            return None
        return iso(f"{match['year']}-{month:02d}-{int(match['day']):02d}T{match['clock']}{zone}")
    if reference is not None and (match := _BSD.fullmatch(text)) is not None:
        return yearless(match["month"], match["day"], match["clock"], reference, year=match["year"])
    return None


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def _at_most_microseconds(text: str) -> str:
    """The time with microseconds at most: logs have nanoseconds, which `datetime` refuses."""
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
