"""Reads a redacted capture once more for the names that were learned: with one left it does not become complete."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson

from faultline.replay.capture import SETTINGS, TOPOLOGY
from faultline.replay.frames import frames
from faultline.replay.record_format import record_of
from faultline.replay.redaction.encodings import texts_within
from faultline.replay.redaction.redaction import Redaction
from streams.model.errors import FaultlineError
from streams.model.record import RawRecord

TOLD = 20
"""Places that are named; the rest is counted."""
_LAYERS = 6


class NamesLeft(FaultlineError):
    """Names that should have been replaced stand in what was written."""


def prove(directory: Path, redaction: Redaction) -> None:
    """Look for every name that cannot be taken for a word, in all that was written and in what is encoded in it.

    Raises:
        NamesLeft: with the places.
    """
    found: list[str] = []
    count = 0
    for place, text in _texts(directory):
        if name := name_in(text, redaction):
            count += 1
            found += [f"  {place}: {name}"] if count <= TOLD else []
    if count:
        more = [f"  and {count - TOLD} more"] if count > TOLD else []
        what = "names are left in the capture, which is not complete and must not be given away:"
        raise NamesLeft("\n".join([f"{count} {what}", *found, *more]))


def name_in(text: str, redaction: Redaction, depth: int = 0) -> str:
    """The first such name in a text or in what is encoded in it; empty without one."""
    if name := redaction.text.known_in(text):
        return name
    if depth < _LAYERS:
        for inner in texts_within(text):
            if name := name_in(inner, redaction, depth + 1):
                return name
    return ""


def _texts(directory: Path) -> Iterator[tuple[str, str]]:
    for path in (directory / SETTINGS, directory / TOPOLOGY):
        if path.exists():
            yield path.name, path.read_text()
    for path in sorted(directory.rglob("*.jsonl.zst")):
        name = str(path.relative_to(directory))
        lines = (line for frame in frames(path) for line in frame.splitlines())
        for number, line in enumerate(lines, 1):
            where = f"{name}:{number}"
            for part in _parts(record_of(name, orjson.loads(line), where)):
                yield where, part.decode(errors="replace")


def _parts(record: RawRecord) -> Iterator[bytes]:
    for part in (
        record.key,
        record.value,
        *(one for pair in record.headers for one in (pair[0].encode(), pair[1])),
    ):
        if part:
            yield part
