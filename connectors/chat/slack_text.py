"""Text and moments in Slack's mark-up."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from streams.model.message import Notice, plain

DATE_FORMAT = "{date_short_pretty} {time_secs}"


def escape(text: str) -> str:
    """Slack's three escapes; after them no text can mention, link or format a date."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def mrkdwn(text: str, limit: int) -> str:
    """Clean, escape, and then cut: escapes count against Slack's caps, and a cut must not leave half an escape behind."""
    escaped = escape(plain(text, limit))
    if len(escaped) <= limit:
        return escaped
    head = escaped[: limit - 1]
    ampersand = head.rfind("&", limit - 7)
    if ampersand >= 0 and ";" not in head[ampersand:]:
        head = head[:ampersand]
    return head + "…"


def date_token(at: datetime) -> str:
    """A moment that every reader sees in their own time zone, with UTC as the fallback."""
    return f"<!date^{int(at.timestamp())}^{DATE_FORMAT}|{in_utc(at)}>"


def notice_text(notice: Notice, limit: int) -> str:
    """A sentence that mentions those it is for. Only well-formed ids are mentions; everything else is text."""
    people = [mention for who in notice.who if (mention := _mention(who))]
    said = [
        escape(plain(part, limit))
        if isinstance(part, str)
        else f"<!date^{int(part.at.timestamp())}^{{time}}|{_clock(part.at)}>"
        for part in notice.parts
    ]
    text = "".join(said)
    if len(text) > limit:  # a token must not be cut in two
        text = mrkdwn(notice.text, limit)
    return " ".join([*people, text])


def _mention(who: str) -> str:
    if not re.fullmatch(r"[UWS][A-Z0-9]{6,20}", who, re.ASCII):
        return ""
    return f"<!subteam^{who}>" if who.startswith("S") else f"<@{who}>"


def _clock(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%H:%M UTC")


def in_utc(at: datetime) -> str:
    """A moment for clients that show no date tokens."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
