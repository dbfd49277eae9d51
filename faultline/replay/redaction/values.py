"""Replaces names in the bytes of a record, whatever they are: text, JSON, JSON within JSON, compressed, or protobuf messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from streams.ingest.compression import is_packed, unpacked
from streams.model.errors import BadInput

Text = Callable[[str], str]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}
_DEEPEST = 12


class Unreadable(Exception):
    """Bytes in which nobody can tell where a name begins."""


def redacted(value: bytes, text: Text) -> bytes:
    """The bytes with `text` applied to every text in them. What was compressed no longer is.

    Raises:
        Unreadable: for bytes of no known kind; they may hold names.
    """
    if is_packed(value):
        try:
            value = unpacked(value)
        except BadInput as error:
            raise Unreadable(str(error)) from error
    try:
        return _of_text(value.decode(), text).encode()
    except UnicodeDecodeError:
        return _of_message(value, text, 0)


def _of_text(value: str, text: Text) -> str:
    # A name may stand behind an escape, `\\ngpu-07`, or be written with them: only the parsed text shows it.
    if "\\" in value and value.lstrip()[:1] in ("{", "[", '"'):
        try:
            return orjson.dumps(_of_json(orjson.loads(value), text)).decode()
        except orjson.JSONDecodeError:
            pass  # more than one document, or only something like JSON
        lines = value.split("\n")
        if len(lines) > 1:
            return "\n".join(_of_text(line, text) for line in lines)
    return text(value)


def _of_json(value: Any, text: Text) -> Any:
    match value:
        case str():
            return _of_text(value, text)
        case list():
            return [_of_json(one, text) for one in value]
        case dict():
            return {text(name): _of_json(one, text) for name, one in value.items()}
    return value


def _of_message(value: bytes, text: Text, depth: int) -> bytes:
    """A protobuf message with its texts replaced, and the lengths around them.

    What is both a text and a message is a text when all of it can be printed.
    """
    if depth > _DEEPEST:
        raise Unreadable("nested too deep")
    made, at = bytearray(), 0
    while at < len(value):
        tag_at = at
        tag, at = _number(value, at)
        wire = tag & 7
        if not tag >> 3:
            raise Unreadable("no protobuf message")
        if wire == _BYTES:
            size, at = _number(value, at)
            if at + size > len(value):
                raise Unreadable("no protobuf message")
            inner = _of_field(value[at : at + size], text, depth)
            made += _encoded(tag) + _encoded(len(inner)) + inner
            at += size
            continue
        if wire == _VARINT:
            _, at = _number(value, at)
        elif wire in _SIZES:
            at += _SIZES[wire]
        else:
            raise Unreadable("no protobuf message")
        if at > len(value):
            raise Unreadable("no protobuf message")
        made += value[tag_at:at]
    return bytes(made)


def _of_field(value: bytes, text: Text, depth: int) -> bytes:
    try:
        read = value.decode()
    except UnicodeDecodeError:
        read = None
    if read is not None and (read.isprintable() or not read):
        return _of_text(read, text).encode()
    try:
        return _of_message(value, text, depth + 1)
    except Unreadable:
        # Ids of traces are bytes, and no texts. Of others, those that are not text hold no name that a reader would find.
        return _of_text(read, text).encode() if read is not None else value


def _number(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(value) and shift < 70:
        byte = value[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    raise Unreadable("no protobuf message")


def _encoded(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)
