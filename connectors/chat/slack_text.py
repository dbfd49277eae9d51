"""Text and moments in Slack's mark-up."""

from __future__ import annotations

from datetime import UTC, datetime

from streams.model.message import plain

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


def in_utc(at: datetime) -> str:
    """A moment for clients that show no date tokens."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
