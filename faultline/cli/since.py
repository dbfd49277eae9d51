"""How far back a report goes: `7d`, `12h`, `90m`, or a time."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from streams.model.clock import parse_rfc3339
from streams.model.errors import BadInput

_SPAN = re.compile(r"(\d{1,5})([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def since_of(text: str, now: datetime, option: str = "--since") -> datetime:
    """The time that `7d`, `12h`, `90m` (before now) or an RFC 3339 text stands for. `option` is
    where it was given.

    Raises:
        BadInput: when it is none of them.
    """
    if match := _SPAN.fullmatch(text):
        try:
            return now - timedelta(**{_UNITS[match[2]]: int(match[1])})
        except OverflowError as error:
            raise BadInput(f"{option} {text[:40]!r}: out of range") from error
    try:
        return parse_rfc3339(text)
    except BadInput as error:
        raise BadInput(
            f"{option} {text[:40]!r}: give 90m, 12h, 7d or a time like 2026-03-01T06:00:00Z"
        ) from error


def span_of(text: str, option: str) -> timedelta:
    """The length of time that `7d`, `12h` or `90m` stands for; `0m` is none. Raises BadInput when it is none of them."""
    if (match := _SPAN.fullmatch(text)) is None:
        raise BadInput(f"{option} {text[:40]!r}: give 90m, 12h or 7d")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})
