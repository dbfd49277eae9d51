"""JSON as shippers batch and break it: arrays, one object a line, concatenated objects, lines of text in between, cut ends.

What the fast parser refuses goes to the standard library's, which accepts NaN, unpaired surrogates and raw control characters, as
many writers let through. A truncated object is completed with what is left of it, and reported as unreadable.
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
CUT = "…"
"""Stands at the end of a text that goes on where it was cut: a number there is not whole."""
_MAX_SALVAGE = 64 * 1024
_MAX_OPEN = 64
_MAX_DIGITS = 19


def _integer(digits: str) -> int | float:
    """An integer as the fast parser reads it: a float when it does not fit 64 bits."""
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


_RELAXED = json.JSONDecoder(strict=False, parse_int=_integer)


@dataclass(frozen=True, slots=True)
class Broken:
    """A broken document: the reason, and the part that could be read (`rest`, may be None)."""

    reason: str
    rest: object


def looks_like_json(value: bytes) -> bool:
    """True for an object, an array of them, or a pair of a time and one; not for text in brackets, such as a dmesg line."""
    return _BEGINS.match(value) is not None


def documents(value: bytes) -> Iterator[object]:
    """The documents in the bytes, in order, with text between them as `str` and `Broken` ones."""
    try:
        yield orjson.loads(value)
        return
    except orjson.JSONDecodeError as error:
        whole = str(error)
    lines = [line for line in value.splitlines() if line.strip()]
    if len(lines) > 1 and _parsed(lines[0]) is None and (glued := _glued(value)) is not None:
        yield from glued  # pretty-printed over several lines
        return
    for number, line in enumerate(lines, 1):
        if not looks_like_json(line):
            yield line.decode("utf-8", "replace")
        elif (document := _parsed(line)) is not None:
            yield document
        elif (several := _glued(line)) is not None:
            yield from several
        else:
            several_lines = len(lines) > 1
            reason = f"line {number} is not JSON: {_reason(line)}" if several_lines else f"not JSON: {whole}"
            yield Broken(reason, _salvaged(line))


def parsed(text: str) -> object | None:
    """The JSON document in a text, read leniently; None when it is none."""
    return _parsed(text.encode("utf-8", "surrogatepass"))


def salvaged(text: str) -> object | None:
    """What is left of a JSON document that was cut; None when nothing can be read of it."""
    return _salvaged(text.encode("utf-8", "surrogatepass"))


def string(value: object) -> str | None:
    """The value of a field when it is a text and not empty, else None."""
    return value if isinstance(value, str) and value else None


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
    """The value with a replacement for unpaired surrogates, which cannot be written on as UTF-8."""
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
    """Concatenated documents with only blanks in between; None for anything else."""
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
    """What is left of a truncated document, with its last string and all brackets closed; None when that is no document."""
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
    ends = [text] if opened_at < 0 else [_DANGLING.sub("", text) + CUT + '"', text[:opened_at]]
    for end in ends:
        form = end.rstrip().rstrip(",")
        for candidate in (form, form + ":null", form + "null", form.rpartition(",")[0]):
            try:
                document = _whole(_RELAXED.decode(candidate + tail))
            except (ValueError, RecursionError):
                continue
            return document or None
    return None
