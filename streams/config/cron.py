"""Times that come again, as crontab(5) writes them: `minute hour day-of-month month day-of-week`.

Each field is `*`, a number, a span `a-b`, any of them with a `/step`, or several with commas. Months and days have their
English three-letter names as well; Sunday is 0 and 7. Where both days are restricted either one will do, as in cron. Times are
those on the wall of a time zone: one that a clock change leaves out comes just after it, one that comes twice counts the first
time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


@dataclass(frozen=True, slots=True)
class Cron:
    """One such expression, read. Days are ISO weekdays: Monday is 1, Sunday 7."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    """Whether a day of the month or of the week is enough: both are restricted."""

    def latest(self, now: datetime, zone: ZoneInfo, within: timedelta) -> datetime | None:
        """The latest time at or before `now` (aware) that is not longer ago than `within`, in UTC; None when there is none."""
        day, oldest = now.astimezone(zone).date(), (now - within).astimezone(zone).date()
        while day >= oldest:
            if self._on(day):
                for hour in reversed(self.hours):
                    for minute in reversed(self.minutes):
                        at = datetime.combine(day, time(hour, minute), tzinfo=zone).astimezone(UTC)
                        if at <= now:
                            return at if now - at <= within else None
            day -= timedelta(days=1)
        return None

    def _on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        in_month, in_week = day.day in self.days, day.isoweekday() in self.weekdays
        return (in_month or in_week) if self.either_day else (in_month and in_week)


@lru_cache(maxsize=256)
def cron(source: str) -> Cron:
    """Read an expression. Raises ValueError that names the field and what is wrong with it."""
    parts = source.split()
    if len(parts) != 5:
        raise ValueError(
            f"{source!r} has {len(parts)} fields; minute hour day-of-month month day-of-week are five"
        )
    minute, hour, day, month, weekday = parts
    weekdays = _numbers(weekday, "day-of-week", 0, 7, _DAYS)
    return Cron(
        minutes=tuple(sorted(_numbers(minute, "minute", 0, 59))),
        hours=tuple(sorted(_numbers(hour, "hour", 0, 23))),
        days=frozenset(_numbers(day, "day-of-month", 1, 31)),
        months=frozenset(_numbers(month, "month", 1, 12, _MONTHS, first=1)),
        weekdays=frozenset(n or 7 for n in weekdays),
        either_day=not day.startswith("*") and not weekday.startswith("*"),
    )


def _numbers(
    text: str, field: str, low: int, high: int, names: tuple[str, ...] = (), first: int = 0
) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        span, _, step_text = part.partition("/")
        step = _number(step_text, field, 1, high) if "/" in part else 1
        if span == "*":
            start, end = low, high
        else:
            left, dash, right = span.partition("-")
            start = _number(left, field, low, high, names, first)
            end = _number(right, field, low, high, names, first) if dash else (high if "/" in part else start)
        if start > end:
            raise ValueError(f"{field} {part!r}: {start} is after {end}")
        found.update(range(start, end + 1, step))
    return found


def _number(text: str, field: str, low: int, high: int, names: tuple[str, ...] = (), first: int = 0) -> int:
    if text.lower() in names:
        return names.index(text.lower()) + first
    if not (text.isascii() and text.isdigit() and len(text) <= 2 and low <= int(text) <= high):
        raise ValueError(f"{field} {text!r} is no number from {low} to {high}")
    return int(text)
