"""The files of a container runtime (CRI): `TIME stdout|stderr F|P TEXT`, where `P` marks a line that the next one continues.

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
    """True when the text holds a piece of a line, or may hold the rest of a waiting one."""
    if context.unfinished:
        return _LINE.match(body) is not None or _PARTIAL.search(body) is not None
    return " P" in body and _PARTIAL.search(body) is not None


def read(body: str, context: RecordContext, into: Opened) -> None:
    """Add the lines of the text to `into`, with pieces joined."""
    whole: list[str] = []
    for raw in body.split("\n"):
        match = _LINE.match(raw)
        if match is None:
            whole.append(raw)
            continue
        origin = context.origin
        place = origin.pod.key if origin.pod else ""
        name = (origin.node or context.node, place, origin.container, match["stream"])
        continues = context.unfinished is not None and name in context.unfinished
        if match["tag"] == "F" and not continues:
            whole.append(raw)
            continue
        _flush(whole, context, into)
        piece = raw.rstrip("\r")
        # Stored with the tag of a full line, so that it is read as one whenever it is flushed.
        first = f"{piece[: match.start('tag')]}F{piece[match.end('tag') :]}"
        part = line_reassembly.Part(match["tag"] == "F")
        rest = piece[match.end() :] if continues else first
        line_reassembly.add_piece(name, rest, part, context.origin, context, into, first=first)
    _flush(whole, context, into)


def _flush(whole: list[str], context: RecordContext, into: Opened) -> None:
    if whole:
        text.read("\n".join(whole), context, into)
        whole.clear()
