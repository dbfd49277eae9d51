"""Reads fields of documents that others wrote: whatever is missing or of another kind reads as empty."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from streams.ingest import timestamps


def at(document: Any, *path: str) -> Any:
    """The value at a path of objects; None when there is none."""
    for key in path:
        if not isinstance(document, dict):
            return None
        document = document.get(key)
    return document


def text(value: Any) -> str:
    """A text, or a whole number as text; empty for anything else."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def moment(value: Any) -> datetime | None:
    """A time as RFC 3339, or as seconds or milliseconds since 1970; UTC where it says no zone."""
    found = timestamps.any_form(value)
    if found is None:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
