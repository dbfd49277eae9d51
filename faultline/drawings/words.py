"""Text that fits: cleaned, and cut to the room there is. Widths are estimates of a sans-serif font, on the wide side."""

from __future__ import annotations

import re
import unicodedata
from datetime import UTC, datetime, timedelta

from streams.model.message import plain

_NARROW, _USUAL, _BROAD, _CAPITAL, _FULL = 0.34, 0.6, 0.9, 0.7, 1.0
BOLD = 1.12
"""How much wider bold text is."""
_NO_XML = re.compile(r"[\ufdd0-\ufdef\ufffe\uffff\U0001fffe\U0001ffff]")
MAX_TEXT = 400
"""Characters that are looked at of any one text, however long it is."""


def clean(text: object, limit: int = MAX_TEXT) -> str:
    """One line without control characters or what XML does not allow, at most `limit` characters."""
    return " ".join(_NO_XML.sub(" ", plain(str(text), limit)).split())


def width_of(text: str, size: float) -> float:
    """About how many units a text takes."""
    return sum(map(_em, text)) * size


def fit(text: object, room: float, size: float) -> str:
    """A text cut to `room` units, with an ellipsis where something was left out."""
    whole = clean(text)
    if width_of(whole, size) <= room:
        return whole
    left, kept = room - width_of("…", size), 0
    for letter in whole:
        left -= _em(letter) * size
        if left < 0:
            break
        kept += 1
    return whole[:kept].rstrip() + "…"


def fit_middle(text: object, room: float, size: float) -> str:
    """As `fit`, but the end stays: names of nodes and ports differ there."""
    whole = clean(text)
    if width_of(whole, size) <= room:
        return whole
    left, tail = (room - width_of("…", size)) * 0.6, ""
    for letter in reversed(whole):
        left -= _em(letter) * size
        if left < 0:
            break
        tail = letter + tail
    head = fit(whole, room - width_of(tail, size), size)
    return head + tail.lstrip()


def _em(letter: str) -> float:
    if letter in "iljtfI|.,:;'!()[] -·/":
        return _NARROW
    if letter in "mwMW@%…→":
        return _BROAD
    if unicodedata.combining(letter):
        return 0.0
    if unicodedata.east_asian_width(letter) in "WF":
        return _FULL
    return _CAPITAL if letter.isupper() else _USUAL


def span(length: timedelta) -> str:
    """A duration in two units at most: `0 s`, `0.4 s`, `42 s`, `3 min 5 s`, `2 h 10 min`, `3 d 4 h`."""
    exact = max(0.0, length.total_seconds())
    if 0 < exact < 9.95 and exact != int(exact):
        return f"{exact:.1f} s" if exact >= 0.05 else "<0.1 s"
    seconds = round(exact)
    for size, unit, smaller, part in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= size:
            rest = seconds % size // smaller
            return f"{seconds // size} {unit}" + (f" {rest} {part}" if rest else "")
    return f"{seconds} s"


def clock(at: datetime) -> str:
    """Hours, minutes and seconds in UTC."""
    return at.astimezone(UTC).strftime("%H:%M:%S")


def day_and_clock(at: datetime) -> str:
    """Date and time in UTC, to the second."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
