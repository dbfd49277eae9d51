"""Lines that a container runtime cut in pieces, put together again.

containerd tags a piece `P` and the last one `F`; Docker writes a piece without its line feed (json-file) or marks it
(`partial_message` of its fluentd driver, `CONTAINER_PARTIAL_MESSAGE` of its journald driver). Pieces of one stream follow one
another, so a stream has one unfinished line at most.

The rule: a piece waits until its line is complete, and then the whole line is looked at, once. What will not be completed is
looked at by itself, also once: when a line grows beyond `MAX_JOINED` (its rest is a line of its own then), when more than
`MAX_WAITING` streams have one, when a record stands alone, or when it is `OVERDUE` by the clock of its partition's records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from streams.ingest import header
from streams.ingest.fields import NAMES
from streams.ingest.records import Opened, Origin, RecordContext, Row, Unfinished
from streams.model.clock import from_millis, to_millis
from streams.model.entity import PodRef

MAX_JOINED = 32 * 1024
"""Characters of a line that is put together."""

MAX_WAITING = 16
"""Unfinished lines of one source partition."""

OVERDUE = timedelta(seconds=10)
"""How long after its last piece a line is still expected to go on: shippers flush every few seconds."""

HINTS = (
    rb" std(?:out|err) P[ :]",
    rb'"(?:logtag|_p)"\s?:\s?"P',
    rb'(?i)partial_message"\s?:\s?"?true',
    rb'(?:[^n\n]|[^\\\n]n)","stream":"std(?:out|err)","time":"[0-9TZ:.+-]{20,40}"\}',
)
"""Bytes (RE2) of a piece with more to come."""

_DOCKERS_BUFFER = 16_000
"""Characters that are surely in a piece of 16 KiB, unless they are many bytes each."""

_PARTS = 12
"""Of a row; behind them is the mark."""

_DOCKER = frozenset({"log", "stream", "time"})
_MARKS = ("partial_message", "container_partial_message")
_LAST = ("partial_last", "container_partial_last")


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a line. `certain` when its writer says that it is one; `last` when nothing follows."""

    last: bool
    certain: bool = True


LAST = Part(last=True)


def part_of(known: Mapping[str, Any], body: str) -> Part | None:
    """Which piece of a line a record is; None for what is no piece and goes on nothing."""
    tag = known.get("logtag") or known.get("p")
    if isinstance(tag, str) and tag[:1] in ("F", "P"):
        return Part(tag[0] == "F")
    if any(_true(known.get(mark)) for mark in _MARKS):
        return Part(any(_true(known.get(mark)) for mark in _LAST))
    if known.keys() >= _DOCKER and all(name in _DOCKER or name.startswith("attrs_") for name in known):
        return Part(body.endswith("\n"), certain=len(body) >= _DOCKERS_BUFFER)
    return None


def name_of(known: Mapping[str, Any], origin: Origin, context: RecordContext) -> Row:
    """The stream that a record's text is of."""
    place = origin.pod.key if origin.pod else ""
    place = place or next((value for name in NAMES.streams if isinstance(value := known.get(name), str)), "")
    return origin.node or context.node, place, origin.container, str(known.get("stream", ""))


def add_piece(
    name: Row, piece: str, part: Part, origin: Origin, context: RecordContext, into: Opened
) -> None:
    """Add `piece` to the line of the stream `name`, and open the line when it is complete or cannot be."""
    waiting = context.unfinished
    if waiting is None:
        into.nested.append((piece, context.within(origin)))
        return
    row = waiting.pop(name, None)
    if row is not None and (
        len(str(row[0])) + len(piece) > MAX_JOINED or _starts_a_new_line(row, piece, part)
    ):
        flush(row, context, into)
        row = None
    if row is not None:
        piece, origin = f"{row[0]}{piece}", _origin_in(row)
    if part.last or len(piece) >= MAX_JOINED:
        into.nested.append((piece, context.within(origin, max_line=MAX_JOINED)))
        return
    while len(waiting) >= MAX_WAITING:
        flush(waiting.pop(next(iter(waiting))), context, into)
    waiting[name] = _row(piece, origin, context)


def _starts_a_new_line(row: Row, piece: str, part: Part) -> bool:
    """True when a line without its line feed was whole after all: Docker cuts only what fills its buffer."""
    if part.certain or len(str(row[0])) >= _DOCKERS_BUFFER:
        return False
    return piece[:1].isupper() or piece[:1] in "[<{(" or header.read(piece, from_millis(0)).start > 0


def may_continue(value: bytes, waiting: Unfinished) -> bool:
    """True for the bytes of a record that may hold the rest of a line that waits: they name its place and its stream."""
    for _, place, _, stream in waiting:
        if str(stream).encode() in value and str(place).rpartition("/")[2].encode() in value:
            return True
    return False


def due(waiting: Unfinished, at: datetime | None) -> list[Row]:
    """Takes out what has waited for too long at `at`, or everything when nothing more will come."""
    names = [name for name, row in waiting.items() if at is None or at - since(row) > OVERDUE]
    return [waiting.pop(name) for name in names]


def flush(row: Row, context: RecordContext, into: Opened) -> None:
    """Open the beginning of a line as the line."""
    node = _text(row[2])
    alone = RecordContext(context.received_at, node, context.interest, depth=context.depth, mark=mark(row))
    into.nested.append((row[0], alone.within(_origin_in(row), max_line=MAX_JOINED)))


def since(row: Row) -> datetime:
    """When the last piece of it was received."""
    return from_millis(row[1]) if isinstance(row[1], int) else from_millis(0)


def mark(row: Row) -> Row:
    """The mark of the record that brought its last piece."""
    return row[_PARTS:]


def _row(piece: str, origin: Origin, context: RecordContext) -> Row:
    pod = origin.pod
    return (
        piece,
        to_millis(context.received_at),
        context.node,
        to_millis(origin.at) if origin.at else None,
        origin.node,
        pod.namespace if pod else None,
        pod.name if pod else None,
        pod.uid if pod else None,
        origin.container,
        origin.source,
        origin.certain,
        origin.sure,
        *context.mark,
    )


def _origin_in(row: Row) -> Origin:
    _, _, _, at, node, namespace, pod, uid, container, source, certain, sure = row[:_PARTS]
    return Origin(
        from_millis(at) if isinstance(at, int) else None,
        _text(node),
        PodRef(_text(namespace) or "", _text(pod) or "", _text(uid)) if pod else None,
        _text(container),
        _text(source) or "",
        bool(certain),
        bool(sure),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _true(value: object) -> bool:
    return value is True or (isinstance(value, str) and value.lower() == "true")
