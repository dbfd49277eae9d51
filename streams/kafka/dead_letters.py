"""Unreadable records as stored on `dead-letters`: the original bytes, and the reason in a header."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streams.model.codec import decode, encode
from streams.model.conversation import DeadLetter
from streams.model.record import RawRecord

HEADER = "faultline-dead-letter"
"""The header that holds the `DeadLetter` document as JSON."""

KEY_HEADER = "faultline-key"
"""The header that holds the original record's key, when it had one; the dead letter's own key is its source topic."""

MAX_BYTES = 1024 * 1024
"""Bytes of the original value that are kept; `DeadLetter.truncated` says when there were more."""

_MAX_KEY_BYTES = 4096
_MAX_REASON = 2000


def dead_letter(
    record: RawRecord, *, stage: str, reasons: Sequence[str]
) -> tuple[bytes, bytes, list[tuple[str, bytes]]]:
    """Key, value and headers of the dead letter of `record`."""
    value = record.value or b""
    why = DeadLetter(
        stage=stage,
        reason="; ".join(reasons)[:_MAX_REASON],
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        size_bytes=len(value),
        truncated=len(value) > MAX_BYTES,
    )
    headers = [(HEADER, encode(why))]
    if record.key is not None:
        headers.append((KEY_HEADER, record.key[:_MAX_KEY_BYTES]))
    return record.topic.encode(), value[:MAX_BYTES], headers


def why_buried(headers: Iterable[tuple[str, bytes]]) -> DeadLetter:
    """The coordinates and the reason in the headers of a dead letter.

    Raises:
        KeyError: when they are not those of a dead letter.
        BadInput: when the document among them is damaged.
    """
    return decode(DeadLetter, dict(headers)[HEADER])
