"""Which envelope a record is in, decided by its bytes and never by its topic.

JSON objects, arrays of them, and one object a line (all three are how shippers batch) go to the first reader of `READERS`
that knows the shape; everything else is text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import orjson

from streams.envelopes import event_exporter, fluent_bit, prometheus_adapter, telegraf, text
from streams.envelopes.opened import JsonObject, Opened, Outside

READERS: tuple[Callable[[JsonObject, Outside, Opened], bool], ...] = (
    event_exporter.read,
    prometheus_adapter.read,
    telegraf.read,
    fluent_bit.read,
)
"""The most particular shape first: nearly everything has a `message`."""

_JSON = re.compile(rb"\s{0,16}(?:\{\s{0,16}[\"}]|\[\s{0,16}\{)")
_MAX_REASONS = 20


def open_record(value: bytes, outside: Outside) -> Opened:
    """Everything in one record's value. Never raises for what the bytes hold: what is unreadable is listed in the result."""
    opened = Opened()
    if looks_like_json(value):
        _read_json(value, outside, opened)
    else:
        text.read(value.decode("utf-8", "replace").lstrip("\ufeff"), outside, opened)
    if len(opened.unreadable) > _MAX_REASONS:
        more = len(opened.unreadable) - _MAX_REASONS
        opened.unreadable[_MAX_REASONS:] = [f"and {more} more"]
    return opened


def looks_like_json(value: bytes) -> bool:
    """True for an object or an array of objects; a dmesg line begins with a bracket too, and is text."""
    return _JSON.match(value) is not None


def _read_json(value: bytes, outside: Outside, into: Opened) -> None:
    try:
        document = orjson.loads(value)
    except orjson.JSONDecodeError as whole:
        lines = [line for line in value.splitlines() if line.strip()]
        if len(lines) < 2:
            into.unreadable.append(f"not JSON: {whole}")
            return
        for number, line in enumerate(lines, 1):
            if not looks_like_json(line):
                text.read(line.decode("utf-8", "replace"), outside, into)
                continue
            try:
                document = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                into.unreadable.append(f"line {number} is not JSON: {error}")
            else:
                _read_document(document, outside, into)
    else:
        _read_document(document, outside, into)


def _read_document(document: object, outside: Outside, into: Opened) -> None:
    if isinstance(document, dict) and isinstance(items := document.get("items"), list) and "kind" in document:
        document = items  # a List of the Kubernetes API
    for record in document if isinstance(document, list) else [document]:
        if not isinstance(record, dict):
            into.unreadable.append(f"JSON {type(record).__name__} where a record should be")
        elif not any(reader(record, outside, into) for reader in READERS):
            keys = ", ".join(sorted(map(str, record))[:12])[:200]
            into.unreadable.append(f"JSON of no known shape, with the keys: {keys}")
