"""Times at the beginning of a line in the writings that syslog, the journal and ISO 8601 don't have.

Locales put the day first, name months in their language and add AM, PM and a zone; programs write dates in numbers, without
separators, or seconds since 1970. `header.py` asks here last, so an ordinary line pays one failed match.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from streams.config.yaml_tables import Strict, load_table
from streams.ingest import timestamps


class _Names(Strict):
    months: tuple[tuple[str, ...], ...]
    weekdays: frozenset[str]


_NAMES = load_table(Path(__file__).with_name("months.yaml"), _Names)
_NUMBERS = {name: number for number, names in enumerate(_NAMES.months, 1) for name in names}
_LONGEST = max(map(len, _NUMBERS))

ZONES = (
    "UTC|GMT|CES?T|EES?T|WES?T|BST|MSK|IST|JST|KST|SGT|HKT|AE[SD]T|AWST|NZ[SD]T|"
    "P[SD]T|M[SD]T|C[SD]T|E[SD]T|AK[SD]T|HST|BRT"
)
"""Zones by name. Only that of UTC says which time it is: the others are shared by several countries."""

_OPENED = r"[\[(@<]?"
_WEEKDAY = r"(?:(?P<weekday>[^\W\d_]{1,12})[.,]{0,2} {1,2})?"
_CLOCK = r"(?P<clock>\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?)(?: ?(?P<half>[AaPp]\.?[Mm]\.?)(?![\w.]))?"
_ZONE = rf"(?: ?(?P<zone>Z|[+-]\d\d:?\d\d|(?:{ZONES})(?![\w-])))?"
_CLOSED = r"(?P<closed>[\])>]?):?[ \t]{1,4}"

_DAY_FIRST = re.compile(
    rf"{_OPENED}{_WEEKDAY}(?P<day>\d{{1,2}})[. /-]{{1,2}}(?P<month>[^\W\d_]{{3,12}}\.?|\d{{1,2}})[. /-]{{1,2}}"
    rf"(?P<year>\d{{4}}),?[ T:]{_CLOCK}{_ZONE}{_CLOSED}"
)
_MONTH_FIRST = re.compile(
    rf"{_OPENED}(?:(?P<first>\d{{4}})[年년] ?)?{_WEEKDAY}(?P<month>[^\W\d_]{{3,12}}\.?|\d{{1,2}}[月월]) {{0,2}}"
    rf"(?P<day>\d{{1,2}})[日일]?,? {{1,2}}"
    rf"(?:(?P<year>\d{{4}}),? )?{_CLOCK}{_ZONE}(?: (?P<last>20\d\d)(?=[\] )]))?{_CLOSED}"
)
_COMPACT = re.compile(
    rf"{_OPENED}(?P<date>20\d\d[01]\d[0-3]\d)[T _-](?P<clock>\d\d:?\d\d:?\d\d(?:[.,]\d{{1,9}})?){_ZONE}{_CLOSED}"
)
_EPOCH = re.compile(
    rf"{_OPENED}(?P<number>1\d{{9}}(?:[.,]\d{{1,9}})?|1\d{{12}}(?:\.\d{{1,6}})?|1\d{{15}}|1\d{{18}}){_CLOSED}"
)


_CLOCK_ALONE = re.compile(r"(?P<clock>[0-2]\d:[0-5]\d:[0-6]\d(?:[.,]\d{1,9})?)[ \t]{1,4}(?=[A-Za-z])")


class Stamp(NamedTuple):
    """A time that ends at `end`. `certain` when its zone is known; `kernel` when only `dmesg -T` writes so."""

    end: int
    at: datetime | None
    certain: bool = False
    kernel: bool = False


def read(text: str, position: int, reference: datetime) -> Stamp | None:
    """The time at `position` in one of these writings; None for anything else."""
    first = text[position : position + 1]
    if not (first.isalnum() or first in "[(@<") or text.startswith("[ ", position):
        return None
    if (match := _MONTH_FIRST.match(text, position)) is not None:
        return _of_month(match, reference) if _is_weekday(match["weekday"]) else None
    if (match := _DAY_FIRST.match(text, position)) is not None:
        return _of_day(match, reference) if _is_weekday(match["weekday"]) else None
    if (match := _COMPACT.match(text, position)) is not None:
        date, clock = match["date"], match["clock"].replace(":", "")
        return _dated(
            match, f"{date[:4]}-{date[4:6]}-{date[6:]}", f"{clock[:2]}:{clock[2:4]}:{clock[4:]}", reference
        )
    if (match := _EPOCH.match(text, position)) is not None:
        at = timestamps.epoch(match["number"].replace(",", "."))
        return Stamp(match.end(), at, certain=True) if at is not None else None
    if (match := _CLOCK_ALONE.match(text, position)) is not None:
        return _of_today(match, reference)
    return None


def month_of(name: str) -> int | None:
    """The number of a month by its name or abbreviation in any locale of `months.yaml`; None for another word."""
    if name[-1:] in "月월":
        return int(name[:-1]) if name[:-1].isdigit() and 1 <= int(name[:-1]) <= 12 else None
    plain = _plain(name)
    return next(
        (
            _NUMBERS[plain[:size]]
            for size in range(min(_LONGEST, len(plain)), 2, -1)
            if plain[:size] in _NUMBERS
        ),
        None,
    )


def _is_weekday(name: str | None) -> bool:
    """False for a word before the date that is no day of the week: people begin lines with their names."""
    return name is None or _plain(name) in _NAMES.weekdays


def _plain(name: str) -> str:
    """In lower case, Latin letters without accents; others keep them, for `й` is no `и`."""
    lower = name.rstrip(".").casefold()
    decomposed = unicodedata.normalize("NFD", lower.replace("ł", "l").replace("ı", "i"))
    plain = "".join(c for c in decomposed if not unicodedata.combining(c))
    return plain if plain.isascii() else unicodedata.normalize("NFC", lower)


def _of_month(match: re.Match[str], reference: datetime) -> Stamp | None:
    number = month_of(match["month"])
    if number is None:
        return None
    year = match["first"] or match["year"] or match["last"]
    clock = _in_24_hours(match["clock"], match["half"])
    if year:
        found = _dated(match, f"{year}-{number:02d}-{int(match['day']):02d}", clock, reference)
    else:
        at = timestamps.yearless(str(number), match["day"], clock.replace(",", "."), reference)
        found = Stamp(match.end(), at)
    # `[Sat Nov 21 07:13:13 2026]`, whatever the language of its words.
    return found._replace(kernel=True) if match["last"] and match["closed"] == "]" else found


def _of_today(match: re.Match[str], reference: datetime) -> Stamp:
    """A time without a date: of the day before when it would be ahead of the line's arrival."""
    clock = match["clock"].replace(",", ".")
    for day in (reference, reference - timedelta(days=1)):
        if (at := timestamps.iso(f"{day:%Y-%m-%d}T{clock}", reference=reference)) is not None:
            return Stamp(match.end(), at)
    return Stamp(match.end(), None)


def _of_day(match: re.Match[str], reference: datetime) -> Stamp | None:
    clock = _in_24_hours(match["clock"], match["half"])
    year, day = match["year"], int(match["day"])
    if not match["month"].isdigit():
        number = month_of(match["month"])
        return _dated(match, f"{year}-{number:02d}-{day:02d}", clock, reference) if number else None
    other = int(match["month"])
    # `11/21/2026` and `21/11/2026`: where both can be meant, the later one that is not in the future.
    readings = [
        _dated(match, f"{year}-{month:02d}-{of_month:02d}", clock, reference)
        for month, of_month in ((other, day), (day, other))
        if 1 <= month <= 12 and 1 <= of_month <= 31
    ]
    return max(readings, key=lambda stamp: stamp.at.timestamp() if stamp.at else 0.0, default=None)


def _dated(match: re.Match[str], date: str, clock: str, reference: datetime) -> Stamp:
    zone = match["zone"] or ""
    known = zone in ("Z", "UTC", "GMT") or zone[:1] in ("+", "-")
    offset = "" if not known else "Z" if zone.isalpha() else zone
    at = timestamps.iso(f"{date}T{clock}{offset}", reference=reference)
    return Stamp(match.end(), at, certain=known and at is not None)


def _in_24_hours(clock: str, half: str | None) -> str:
    hour, colon, rest = clock.partition(":")
    number = int(hour)
    if half is not None and number <= 12:
        number = number % 12 + (12 if half[0] in "pP" else 0)
    return f"{number:02d}{colon}{rest}"
