"""JSON maps with a text: what Fluent Bit, Fluentd, Vector, Filebeat, rsyslog and most others write.

Fluent Bit: `in_kmsg` writes `msg` with `priority`, `sequence`, `sec`, `usec` and no host; `in_systemd` writes `MESSAGE` and
`_HOSTNAME` (or lower case, or without the underscore); `in_tail` writes `log` or `message`, for pods with a `kubernetes` map,
nested or lifted. Fluentd writes the same map for pods and `host`, `ident`, `message` for syslog. Vector names the pod's parts
`pod_name`, `pod_namespace`, `pod_uid`, `pod_node_name`; its syslog source has the relay in `host` and the origin in `hostname`;
with `native_json` the record is in `log`. Filebeat's names are nested (`host.name`, `kubernetes.pod.name`, `log.syslog.appname`).
An rsyslog template for omkafka has what its author wrote, after rsyslog's properties: `host`, `severity`, `facility`, `tag`,
`syslogtag`, `programname`, `msg`. GELF has `short_message`. Names: the shippers' documentation of these plugins.

Programs log JSON and shippers wrap it, so a text that is a JSON object is opened again.
"""

from __future__ import annotations

from typing import Any

from streams.ingest import line_reassembly
from streams.ingest.fields import NAMES, Fields, fields, is_chat_record
from streams.ingest.logs import quotation
from streams.ingest.records import JsonObject, Opened, Origin, RecordContext, merged

HINTS = (rb'"(?i:message|msg|log)"\s{0,4}:\s{0,4}\[\s{0,4}\d',)
"""Bytes (RE2) of a text written as an array of byte values."""

_ERRORS = frozenset(NAMES.errors)
_BESIDE = frozenset(NAMES.beside)
_MAX_SHORT = 80
"""Characters of a text that may leave its point to a field."""
_HARMLESS = frozenset({"info", "debug", "trace", "notice", "information"})
_MAX_DEPTH = 4
"""Lists in lists."""


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add the record's text to `into`; False when it has none."""
    known = fields(record)
    body = text_of(known)
    if body is None:
        return _read_nested(record, known, context, into) or _read_error(known, context, into)
    body = _completed(known, body)
    origin = merged(known.origin(), context.origin)
    if is_chat_record(record):
        origin = Origin(origin.at, origin.node, origin.pod, origin.container, quotation.SOURCE)
    part = line_reassembly.part_of(known, body)
    if part is None and not context.unfinished:
        into.nested.append((body, context.within(origin)))
    else:
        # Unmarked text completes a waiting line: some writers mark all pieces but the last.
        name = line_reassembly.name_of(known, origin, context)
        line_reassembly.add_piece(name, body, part or line_reassembly.LAST, origin, context, into)
    if (error := _error_in(known, body)) is not None:
        into.nested.append((error, context.within(origin)))
    return True


def _error_in(known: Fields, body: str) -> str | None:
    """The error that a structured logger puts beside its text, unless either repeats the other."""
    if _ERRORS.isdisjoint(known) or str(known.get("level", known.get("severity", ""))).lower() in _HARMLESS:
        return None
    errors = (known.get(name) for name in NAMES.errors)
    error = next((error for error in errors if isinstance(error, str) and " " in error), None)
    return error if error is not None and error not in body and (not body or body not in error) else None


def _read_error(known: Fields, context: RecordContext, into: Opened) -> bool:
    """Add the error of a record that has no text besides; False when it has none."""
    if (error := _error_in(known, "")) is None:
        return False
    into.nested.append((error, context.within(merged(known.origin(), context.origin))))
    return True


def _completed(known: Fields, body: str) -> str:
    """The text with what it leaves to a field beside it."""
    if _BESIDE.isdisjoint(known) or len(body) > _MAX_SHORT:
        return body
    said = [f"{name}={value}" for name in NAMES.beside if isinstance(value := known.get(name), str) and value]
    return " ".join((body, *said))


def text_of(known: Fields) -> str | None:
    """The text, also from the journal's arrays of bytes and repeated fields; None without a text field."""
    for name in NAMES.texts:
        if (value := known.get(name)) is not None and (text := _as_text(value)) is not None:
            return text
    return None


def _as_text(value: object, depth: int = _MAX_DEPTH) -> str | None:
    """A string, an array of byte values (the journal's form of what is not UTF-8), or a list of either; else None."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value or not depth:
        return None
    if all(type(byte) is int and 0 <= byte < 256 for byte in value):
        return bytes(value).decode("utf-8", "replace")
    parts = [_as_text(part, depth - 1) for part in value]
    return "\n".join(part for part in parts if part) if all(part is not None for part in parts) else None


def in_one_line(record: JsonObject) -> str:
    """A map without a text as one line of `name=value`: how training loops log their figures."""
    scalars = ((name, value) for name, value in record.items() if isinstance(value, (str, int, float)))
    return " ".join(f"{name}={value}" for name, value in scalars)


def _read_nested(record: JsonObject, known: Fields, context: RecordContext, into: Opened) -> bool:
    inner: Any = next((record[name] for name in NAMES.nested_texts if _is_record(record.get(name))), None)
    if inner is None:
        return False
    into.nested.append((inner, context.within(merged(known.origin(), context.origin))))
    return True


def _is_record(value: object) -> bool:
    return isinstance(value, dict) and text_of(fields(value)) is not None
