"""A count in a log line as it was meant: with thousands separators, and unknown where it may have been cut.

Separators that can be nothing else join their groups of three digits: the comma, the apostrophe, blanks that do not break, and
the underscore outside of names. An ordinary blank joins only what ends with a group that begins with a zero (`12 000`): `12 500`
may be two numbers. So may what has a point (`1.000`) or an underscore in a name (`checkpoint_1_500`): their count is unknown.
"""

from __future__ import annotations

import re

_JOINING = r"[,'’\u00a0\u2007\u2009\u202f]"
_DIGITS = re.compile(r"\d{1,20}", re.ASCII)
_GROUPED = re.compile(rf"\d{{1,3}}(?P<by>{_JOINING}|_| )\d{{3}}(?:(?P=by)\d{{3}}){{0,5}}(?![\d_])", re.ASCII)
_MORE = re.compile(rf"(?:{_JOINING}|[_.])\d|{_JOINING}$", re.ASCII)
_ENDS = re.compile(
    r"$"  # the end of the line; one that its reader has cut there ends with an ellipsis
    r"|,(?!\d{4}-)"
    r"|[\s\"'’);:|/!\]}](?!\d\d:\d\d)|\.(?!\.|\d)|%|-(?!\d)",
    re.ASCII,
)
"""What may stand behind a whole number. A letter or an opening bracket begins another line that was glued to this one, and a
digit of a date or a time looks like one of the number: how much of it is there is not known."""


def whole_number(text: str, start: int) -> int | None:
    """The number that begins at `start`; None where it cannot be known, or does not fit 64 bits."""
    digits = _DIGITS.match(text, start)
    if digits is None:
        return None
    found = digits.group()
    end = digits.end()
    if (grouped := _GROUPED.match(text, start)) is not None and not _separate(text, grouped):
        last = grouped.group().rpartition(grouped["by"])[2]
        in_a_name = grouped["by"] == "_" and (
            text[start - 1 : start].isalnum() or text[start - 1 : start] in ("_", "-")
        )
        if in_a_name or (grouped["by"] == " " and last[0] != "0"):
            return None
        found, end = re.sub(r"\D", "", grouped.group()), grouped.end()
    elif len(found) <= 3 and _MORE.match(text, end):
        return None  # some other grouping, a cut one, or a fraction
    if _ENDS.match(text, end) is None or len(found) > 19 or int(found) >= 2**63:
        return None
    return int(found)


def _separate(text: str, grouped: re.Match[str]) -> bool:
    """Whether what a blank parts is a number of its own: it goes on as a fraction, a time, or a unit does."""
    return (
        grouped["by"] == " "
        and re.match(r"[.,:/-]?\d|[A-Za-z%]", text[grouped.end() : grouped.end() + 2]) is not None
    )
