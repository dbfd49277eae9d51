"""One record as one line of a capture's topic file: `{"partition","offset","timestamp","key","value","headers"}`.

`timestamp` is in milliseconds. `value` and `key` are strings, null, or {"base64": …} for bytes that are not UTF-8.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import orjson

from streams.model.clock import from_millis, to_millis
from streams.model.errors import BadInput
from streams.model.record import RawRecord

MAX_MILLIS = 99_999_999_999_999
"""In the year 5138: a longer number is in microseconds, or damaged."""


def record_line(record: RawRecord) -> bytes:
    """One record as one line of a topic's file, line end included."""
    headers = [[name, _text(value)] for name, value in record.headers]
    line = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": to_millis(record.timestamp),
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": headers,
    }
    return orjson.dumps(line) + b"\n"


def json_of(line: bytes, where: str) -> Any:
    """The JSON of a line; raises BadInput that says `where` when it is none."""
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"{where}: {error}") from error


def record_of(topic: str, line: Any, where: str) -> RawRecord:
    """The record that a line's JSON holds; raises BadInput that says `where` when it holds none."""
    match line:
        case {"partition": int(partition), "offset": int(offset), "timestamp": int(millis), "value": value}:
            headers = tuple(_header(pair, where) for pair in _list(line.get("headers"), where))
            if not 0 <= millis <= MAX_MILLIS:
                raise BadInput(f"{where}: `timestamp` is {millis}: needs milliseconds since 1970")
            key = _raw(line.get("key"), f"{where}: key")
            return RawRecord(
                topic, partition, offset, from_millis(millis), key, _raw(value, f"{where}: value"), headers
            )
        case _:
            raise BadInput(f'{where}: needs "partition", "offset", "timestamp" (ms) and "value"')


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list | None):
        raise BadInput(f"{where}: headers must be a list of [name, value]")
    return value or []


def _header(pair: Any, where: str) -> tuple[str, bytes]:
    if not isinstance(pair, list) or len(pair) != 2:
        raise BadInput(f"{where}: a header must be [name, value]")
    return str(pair[0]), _raw(pair[1], f"{where}: header {str(pair[0])[:40]}") or b""


def _text(raw: bytes | None) -> Any:
    if raw is None:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(raw).decode()}


def _raw(value: Any, where: str) -> bytes | None:
    match value:
        case None:
            return None
        case str():
            return value.encode()
        case {"base64": str(encoded)}:
            try:
                return base64.b64decode(encoded, validate=True)
            except binascii.Error as error:
                raise BadInput(f"{where}: not base64: {error}") from error
        case _:
            raise BadInput(f'{where}: must be a string, null or {{"base64": …}}')
