"""The files of a container runtime (CRI): `TIME stdout|stderr F|P TEXT`, where `P` marks a line that goes on in the next one.

Kubernetes, CRI logging: tags are separated by colons, the first says whether the line is full or partial.
"""

from __future__ import annotations

import re

from streams.ingest import line_reassembly
from streams.ingest.logs import text
from streams.ingest.records import Opened, RecordContext

_LINE = re.compile(
    r"(?P<at>\d{4}-\d\d-\d\dT[0-9:.,]{8,20}(?:Z|[+-]\d\d:?\d\d)?) (?P<stream>stdout|stderr) "
    r"(?P<tag>[FP])(?::\w{1,16}){0,4}(?: |$)"
)
_PARTIAL = re.compile(r"\d(?:Z|[+-]\d\d:?\d\d)? std(?:out|err) P(?::\w{1,16}){0,4} ")


def concerns(body: str, context: RecordContext) -> bool:
    """True when the text holds a piece, or may be the rest of one that waits."""
    if context.unfinished:
        return _LINE.match(body) is not None or _PARTIAL.search(body) is not None
    return " P" in body and _PARTIAL.search(body) is not None


def read(body: str, context: RecordContext, into: Opened) -> None:
    """Add the text's lines to `into`, those in pieces as one."""
    whole: list[str] = []
    for raw in body.split("\n"):
        match = _LINE.match(raw)
        if match is None:
            whole.append(raw)
            continue
        origin = context.origin
        place = origin.pod.key if origin.pod else ""
        name = (origin.node or context.node, place, origin.container, match["stream"])
        going_on = context.unfinished is not None and name in context.unfinished
        if match["tag"] == "F" and not going_on:
            whole.append(raw)
            continue
        _flush(whole, context, into)
        piece = raw.rstrip("\r")
        # The line is kept as a full one, so that it is read as such whenever it is let go.
        piece = (
            piece[match.end() :] if going_on else f"{piece[: match.start('tag')]}F{piece[match.end('tag') :]}"
        )
        line_reassembly.add_piece(
            name, piece, line_reassembly.Part(match["tag"] == "F"), context.origin, context, into
        )
    _flush(whole, context, into)


def _flush(whole: list[str], context: RecordContext, into: Opened) -> None:
    if whole:
        text.read("\n".join(whole), context, into)
        whole.clear()
