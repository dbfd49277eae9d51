"""Fluent Bit's Kafka output (format json): a flat map whose text field is named by the input plugin.

`in_kmsg` writes `msg` with `priority`, `sequence`, `sec`, `usec` and no host; `in_systemd` writes `MESSAGE` and
`_HOSTNAME` (or lower case, or without the underscore); `in_tail` writes `log` or `message`, for pods with a nested
`kubernetes` map; `in_syslog` writes `message`, `host`, `ident`. Field names: docs of the plugins, fluent/fluent-bit. Other
shippers' flat maps (`line`, GELF's `short_message`, a cloud's `textPayload`) are read in the same way, and so is a text that
is itself such a map, because programs log JSON and shippers wrap it.
"""

from __future__ import annotations

import re
from datetime import datetime

import orjson

from streams.envelopes import event_exporter, quotation, text, times
from streams.envelopes.header import KERNEL_TAGS
from streams.envelopes.opened import MAX_LINE, JsonObject, Opened, Outside
from streams.model.entity import PodRef

_TEXT = ("MESSAGE", "message", "msg", "log", "line", "short_message", "textPayload")
_HOST = ("_HOSTNAME", "_hostname", "HOSTNAME", "hostname", "host", "node", "node_name", "nodename")
_TIME = ("@timestamp", "date", "timestamp", "time", "ts")
_PROGRAM = ("SYSLOG_IDENTIFIER", "syslog_identifier", "ident", "appname")
_TRANSPORT = ("_TRANSPORT", "_transport", "TRANSPORT", "transport")
_SPEAKER = frozenset({"channel", "thread_ts", "author", "username", "role", "sender", "assignee", "reporter"})
"""Fields of what people say; programs have none of them."""
_MAX_NESTED = 4
_NOT_A_HOST = re.compile(r"[\s\"'{}<>]")

FIELDS = ", ".join(_TEXT)


def read(record: JsonObject, outside: Outside, into: Opened) -> bool:
    """Add the record's lines to `into`; False when it has none of the text fields, so is of another shape."""
    body = _body(record)
    if body is None:
        return False
    kubernetes = record.get("kubernetes")
    kubernetes = kubernetes if isinstance(kubernetes, dict) else {}
    pod = _pod(kubernetes)
    host = _text(kubernetes, ("host", "node_name", "pod_node_name")) or _host(record)
    at = _at(record)
    source = "container" if pod else _source(record)
    people = spoken(record)
    for _ in range(_MAX_NESTED):
        if (inner := _inner(body)) is None or event_exporter.read(inner, outside, into):
            break
        host, at, source = host or _host(inner), at or _at(inner), source or _source(inner)
        people = people or spoken(inner)
        nested = _body(inner)
        if nested is None:
            body = _flat(inner)
            break
        body = nested
    if inner is not None and event_exporter.about(inner) is not None:
        return True
    text.read(
        body,
        outside,
        into,
        at=at,
        node=host,
        pod=pod,
        container=_text(kubernetes, ("container_name",)),
        source=quotation.SOURCE if people else source,
    )
    return True


def spoken(record: JsonObject) -> bool:
    """True for what people said, retold by a chat, a forum or a model's prompt."""
    return not _SPEAKER.isdisjoint(record)


def _inner(body: str) -> JsonObject | None:
    """The object that a text is."""
    if not body.startswith("{") or len(body) > MAX_LINE:
        return None
    try:
        inner = orjson.loads(body.encode("utf-8", "replace"))
    except orjson.JSONDecodeError:
        return None
    return inner if isinstance(inner, dict) else None


def _flat(record: JsonObject) -> str:
    """A map without a text, in one line: how loops log their figures."""
    scalars = ((name, value) for name, value in record.items() if isinstance(value, (str, int, float)))
    return " ".join(f"{name}={value}" for name, value in scalars)


def _at(record: JsonObject) -> datetime | None:
    return next((at for name in _TIME if (at := times.any_form(record.get(name)))), None)


def _body(record: JsonObject) -> str | None:
    for name in _TEXT:
        value = record.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value and all(isinstance(b, int) and 0 <= b < 256 for b in value):
            return bytes(value).decode("utf-8", "replace")  # the journal's way with bytes that are not UTF-8
    return None


def _pod(kubernetes: JsonObject) -> PodRef | None:
    name = _text(kubernetes, ("pod_name", "name"))
    namespace = _text(kubernetes, ("namespace_name", "pod_namespace", "namespace"))
    if name is None or namespace is None:
        return None
    return PodRef(namespace, name, _text(kubernetes, ("pod_id", "pod_uid", "uid")))


def _host(record: JsonObject) -> str | None:
    named = record.get("host")
    if isinstance(named, dict):
        return _text(named, ("name", "hostname"))
    return _text(record, _HOST)


def _source(record: JsonObject) -> str:
    if _text(record, _TRANSPORT) == "kernel" or {"priority", "sequence", "sec"} <= record.keys():
        return "kernel"
    program = _text(record, _PROGRAM) or ""
    return "kernel" if program in KERNEL_TAGS else program


def _text(mapping: JsonObject, names: tuple[str, ...]) -> str | None:
    for name in names:
        value = mapping.get(name)
        if isinstance(value, str) and 0 < len(value) <= 253 and not _NOT_A_HOST.search(value):
            return value
    return None
