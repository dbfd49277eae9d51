"""Unreadable records as stored on `dead-letters`: the original bytes, key and headers, and the reason in a header."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streams.model.codec import decode, encode
from streams.model.conversation import DeadLetter
from streams.model.record import RawRecord
from streams.telemetry.redaction import clean

HEADER = "faultline-dead-letter"
"""The header that holds the `DeadLetter` document as JSON."""

KEY_HEADER = "faultline-key"
"""The header that holds the original record's key, when it had one; the dead letter's own key is its source topic."""

ORIGINAL_HEADER = "faultline-header-"
"""The original record's headers come back with this before their names: they may name its cluster and its host."""

RETRIED_HEADER = "faultline-retried"
"""The header of a record that was written back, and of the mark on `dead-letters` which says so."""

MAX_BYTES = 1024 * 1024
"""Bytes of the original value that are kept; `DeadLetter.truncated` says when there were more."""

_MAX_KEY_BYTES = 4096
_MAX_HEADER_BYTES = 16 * 1024
_MAX_REASON = 2000


def dead_letter(
    record: RawRecord, *, stage: str, reasons: Sequence[str]
) -> tuple[bytes, bytes, list[tuple[str, bytes]]]:
    """Key, value and headers of the dead letter of `record`."""
    value = record.value or b""
    kept = _within(record.headers)
    why = DeadLetter(
        stage=stage,
        reason=clean("; ".join(reasons))[:_MAX_REASON],
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        size_bytes=len(value),
        truncated=len(value) > MAX_BYTES,
        tombstone=record.value is None,
        cut_short=len(kept) < len(record.headers) or len(record.key or b"") > _MAX_KEY_BYTES,
    )
    headers = [(HEADER, encode(why))]
    if record.key is not None:
        headers.append((KEY_HEADER, record.key[:_MAX_KEY_BYTES]))
    headers += [(ORIGINAL_HEADER + name, held) for name, held in kept]
    return record.topic.encode(), value[:MAX_BYTES], headers


def why_buried(headers: Iterable[tuple[str, bytes]]) -> DeadLetter:
    """The coordinates and the reason in the headers of a dead letter.

    Raises:
        KeyError: when they are not those of a dead letter.
        BadInput: when the document among them is damaged.
    """
    return decode(DeadLetter, dict(headers)[HEADER])


def original(headers: Sequence[tuple[str, bytes]], value: bytes | None) -> RawRecord:
    """The record that a dead letter was made of, as far as it was kept; `why_buried` tells what was not.

    Raises:
        KeyError: when the headers are not those of a dead letter.
        BadInput: when the document among them is damaged.
    """
    why = why_buried(headers)
    return RawRecord(
        why.topic,
        why.partition,
        why.offset,
        why.timestamp,
        dict(headers).get(KEY_HEADER),
        None if why.tombstone else value or b"",
        tuple((n.removeprefix(ORIGINAL_HEADER), v) for n, v in headers if n.startswith(ORIGINAL_HEADER)),
    )


def _within(headers: Sequence[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
    """The headers that are kept: the first ones, as many as fit."""
    kept: list[tuple[str, bytes]] = []
    left = _MAX_HEADER_BYTES
    for name, value in headers:
        left -= len(name) + len(value or b"")
        if left < 0:
            break
        kept.append((name, value or b""))
    return kept
