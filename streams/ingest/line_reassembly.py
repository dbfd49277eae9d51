"""Lines that a container runtime split into pieces, joined again.

containerd tags a piece `P` and the last one `F`; Docker writes a piece without its line feed (json-file) or marks it
(`partial_message` of its fluentd driver, `CONTAINER_PARTIAL_MESSAGE` of its journald driver). Pieces of one stream follow one
another, so a stream has one unfinished line at most.

A piece waits until its line is complete; then the whole line is read, once. A line that stays incomplete is read as it is, also
once: when it grows beyond `MAX_JOINED` (the rest is a line of its own), when more than `MAX_WAITING` streams have one, when a
record is read by itself, or when it is `OVERDUE` by the clock of its partition's records.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from streams.ingest import header
from streams.ingest.fields import NAMES
from streams.ingest.json_documents import string
from streams.ingest.records import Opened, Origin, RecordContext, Row, Unfinished
from streams.model.clock import from_millis, to_millis
from streams.model.entity import PodRef

MAX_JOINED = 32 * 1024
"""Characters of a joined line."""

MAX_WAITING = 16
"""Unfinished lines of one source partition."""

OVERDUE = timedelta(seconds=10)
"""How long a line waits for its next piece: shippers flush every few seconds."""

HINTS = (
    rb" std(?:out|err) P[ :]",
    rb'"(?:logtag|_p)"\s?:\s?"P',
    rb'(?i)partial_message"\s?:\s?"?true',
    rb'(?:[^n\n]|[^\\\n]n)","stream":"std(?:out|err)","time":"[0-9TZ:.+-]{20,40}"\}',
)
"""Bytes (RE2) of a piece that another one follows."""

_DOCKERS_BUFFER = 16_000
"""Characters that a piece of 16 KiB has at least, unless most are multi-byte."""

_OPENING = re.compile(r'\{\s{0,4}"[\w.@-]{1,48}"\s{0,4}:')
"""How a logger's JSON objects begin, one as the other."""
_RUNTIMES = re.compile(r"^\d{4}-\S{10,40} std(?:out|err) F(?::\w{1,16}){0,4} ")
"""What containerd puts before a line."""
_EPOCH = from_millis(0)

_PARTS = 12
"""Fields of a row; the mark follows them."""

_DOCKER = frozenset({"log", "stream", "time"})
_MARKS = ("partial_message", "container_partial_message")
_LAST = ("partial_last", "container_partial_last")


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a line: `last` when none follows, `certain` when its writer marks it as a piece."""

    last: bool
    certain: bool = True


LAST = Part(last=True)


def part_of(known: Mapping[str, Any], body: str) -> Part | None:
    """The piece that a record is; None for a whole line."""
    tag = known.get("logtag") or known.get("p")
    if isinstance(tag, str) and tag[:1] in ("F", "P"):
        return Part(tag[0] == "F")
    if any(_true(known.get(mark)) for mark in _MARKS):
        return Part(any(_true(known.get(mark)) for mark in _LAST))
    if known.keys() >= _DOCKER and all(name in _DOCKER or name.startswith("attrs_") for name in known):
        return Part(body.endswith("\n"), certain=len(body) >= _DOCKERS_BUFFER)
    return None


def name_of(known: Mapping[str, Any], origin: Origin, context: RecordContext) -> Row:
    """The stream of a record's text."""
    place = origin.pod.key if origin.pod else ""
    place = place or next((value for name in NAMES.streams if isinstance(value := known.get(name), str)), "")
    return origin.node or context.node, place, origin.container, str(known.get("stream", ""))


def add_piece(
    name: Row,
    piece: str,
    part: Part,
    origin: Origin,
    context: RecordContext,
    into: Opened,
    *,
    first: str | None = None,
) -> None:
    """Add `piece` to the line of the stream `name`, and open the line when it is complete or cannot be.

    Args:
        first: The piece with what stands before the first one of a line, if anything does.
    """
    waiting = context.unfinished
    if waiting is None:
        into.nested.append((piece, context.within(origin)))
        return
    row = waiting.pop(name, None)
    if row is not None and _starts_a_new_line(row, piece, part):
        flush(row, context, into)
        row, piece = None, first or piece
    elif row is not None and len(str(row[0])) + len(piece) > MAX_JOINED:
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
    """True for a line of its own: the rest of the waiting one was lost, or it was whole after all.

    Docker marks no piece, and splits only what fills its buffer. Where pieces are marked, the rest of a line does not begin as
    the whole line did: with a time, or with the same first field of a JSON object.
    """
    waiting = str(row[0])
    if part.certain:
        waiting = _RUNTIMES.sub("", waiting, count=1)
        opening = _OPENING.match(waiting)
        if opening is not None:
            return piece.startswith(opening[0])
        return header.read(waiting, _EPOCH).at is not None and header.read(piece, _EPOCH).at is not None
    if len(waiting) >= _DOCKERS_BUFFER:
        return False
    return piece[:1].isupper() or piece[:1] in "[<{(" or header.read(piece, _EPOCH).start > 0


def may_continue(value: bytes, waiting: Unfinished) -> bool:
    """True for a record that may hold the rest of a waiting line: it names the same place and stream."""
    for _, place, _, stream in waiting:
        if str(stream).encode() in value and str(place).rpartition("/")[2].encode() in value:
            return True
    return False


def due(waiting: Unfinished, at: datetime | None) -> list[Row]:
    """Removes and returns the lines that are overdue at `at`; all of them when that is None."""
    names = [name for name, row in waiting.items() if at is None or at - since(row) > OVERDUE]
    return [waiting.pop(name) for name in names]


def flush(row: Row, context: RecordContext, into: Opened) -> None:
    """Open an unfinished line as it is."""
    node = string(row[2])
    alone = RecordContext(context.received_at, node, context.interest, depth=context.depth, mark=mark(row))
    into.nested.append((row[0], alone.within(_origin_in(row), max_line=MAX_JOINED, cut=True)))


def since(row: Row) -> datetime:
    """When its last piece was received."""
    return from_millis(row[1]) if isinstance(row[1], int) else from_millis(0)


def mark(row: Row) -> Row:
    """The mark of the record with its last piece."""
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
        string(node),
        PodRef(string(namespace) or "", string(pod) or "", string(uid)) if pod else None,
        string(container),
        string(source) or "",
        bool(certain),
        bool(sure),
    )


def _true(value: object) -> bool:
    return value is True or (isinstance(value, str) and value.lower() == "true")
