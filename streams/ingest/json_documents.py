"""JSON as shippers batch and break it: arrays, one object a line, objects glued together, lines of text in between, cut ends.

What the fast parser refuses is put to the standard library's, which takes NaN, halves of surrogate pairs and raw control
characters, as many writers let through. An object that was cut is completed with what is left of it, and named as unreadable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

_BEGINS = re.compile(
    rb"\s{0,16}(?:\{\s{0,16}[\"}]|\[\s{0,16}\{|\[{1,2}\s{0,4}\d{10}(?:\.\d{1,9})?\s{0,4},\s{0,4}\{"
    rb"|\[\s{0,4}\"[\w./*-]{1,128}\"\s{0,4},\s{0,4}\[\s{0,4}\[\s{0,4}\[?\d{10})"
)
_MARKS = re.compile(r'[\\"{}\[\]]')
_DANGLING = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?$")
_MAX_SALVAGE = 64 * 1024
_MAX_OPEN = 64
_MAX_DIGITS = 19


def _integer(digits: str) -> int | float:
    """As the fast parser has it: what does not fit 64 bits is a float, and so nothing that no float could hold."""
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


_RELAXED = json.JSONDecoder(strict=False, parse_int=_integer)


@dataclass(frozen=True, slots=True)
class Broken:
    """A document of which only a part could be read (`rest`, perhaps None), and why."""

    reason: str
    rest: object


def looks_like_json(value: bytes) -> bool:
    """True for an object, an array of them or a pair of a time and one; a dmesg line begins with a bracket too, and is text."""
    return _BEGINS.match(value) is not None


def documents(value: bytes) -> Iterator[object]:
    """What the bytes hold, in order: documents, stretches of text as `str`, and what is `Broken`."""
    try:
        yield orjson.loads(value)
        return
    except orjson.JSONDecodeError as error:
        whole = str(error)
    lines = [line for line in value.splitlines() if line.strip()]
    if len(lines) > 1 and _parsed(lines[0]) is None and (glued := _glued(value)) is not None:
        yield from glued  # printed over several lines
        return
    for number, line in enumerate(lines, 1):
        if not looks_like_json(line):
            yield line.decode("utf-8", "replace")
        elif (document := _parsed(line)) is not None:
            yield document
        elif (several := _glued(line)) is not None:
            yield from several
        else:
            where = f"line {number} is " if len(lines) > 1 else ""
            yield Broken(
                f"{where}not JSON: {whole}" if not where else f"{where}not JSON: {_reason(line)}",
                _salvaged(line),
            )


def parsed(text: str) -> object | None:
    """The document that a text is, read as leniently as anything; None when it is none."""
    return _parsed(text.encode("utf-8", "surrogatepass"))


def _parsed(raw: bytes) -> object | None:
    try:
        document: object = orjson.loads(raw)
    except orjson.JSONDecodeError:
        try:
            document = _whole(_RELAXED.decode(_text(raw)))
        except (ValueError, RecursionError):
            return None
    return document


def _whole(value: object) -> object:
    """The same with a replacement for each half of a surrogate pair, which nothing that is written on could hold."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {_whole(name): _whole(item) for name, item in value.items()}
    return value


def _reason(raw: bytes) -> str:
    try:
        orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        return str(error)
    return "nothing"


def _glued(raw: bytes) -> list[object] | None:
    """Several documents with nothing but blanks in between; None for anything else."""
    text, found = _text(raw), []
    position = 0
    while position < len(text):
        try:
            document, position = _RELAXED.raw_decode(text, position)
            found.append(_whole(document))
        except (ValueError, RecursionError):
            return None
        while position < len(text) and text[position] in " \t\r\n,\x1e":
            position += 1
    return found


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").strip()


def _salvaged(raw: bytes) -> object | None:
    """What is left of a document that was cut: its last string is closed, and everything around it."""
    text = raw[:_MAX_SALVAGE].decode("utf-8", "ignore")
    closers: list[str] = []
    opened_at, skip = -1, -1
    for mark in _MARKS.finditer(text):
        symbol, position = mark.group(), mark.start()
        if opened_at >= 0:
            if position == skip:
                continue
            if symbol == "\\":
                skip = position + 1
            elif symbol == '"':
                opened_at = -1
        elif symbol == '"':
            opened_at = position
        elif symbol in ("{", "["):
            closers.append("}" if symbol == "{" else "]")
        elif not closers or closers.pop() != symbol:
            return None
        if len(closers) > _MAX_OPEN:
            return None
    tail = "".join(reversed(closers))
    ends = [text] if opened_at < 0 else [_DANGLING.sub("", text) + '"', text[:opened_at]]
    for end in ends:
        form = end.rstrip().rstrip(",")
        for candidate in (form, form + ":null", form + "null", form.rpartition(",")[0]):
            try:
                document = _whole(_RELAXED.decode(candidate + tail))
            except (ValueError, RecursionError):
                continue
            return document or None
    return None
