"""Fluent Bit's Kafka output (format json): a flat map whose text field is named by the input plugin.

`in_kmsg` writes `msg` with `priority`, `sequence`, `sec`, `usec` and no host; `in_systemd` writes `MESSAGE` and
`_HOSTNAME` (or lower case, or without the underscore); `in_tail` writes `log` or `message`, for pods with a nested
`kubernetes` map; `in_syslog` writes `message`, `host`, `ident`. Field names: docs of the plugins, fluent/fluent-bit.
"""

from __future__ import annotations

import re

from streams.envelopes import text, times
from streams.envelopes.header import KERNEL_TAGS
from streams.envelopes.opened import JsonObject, Opened, Outside
from streams.model.entity import PodRef

_TEXT = ("MESSAGE", "message", "msg", "log")
_HOST = ("_HOSTNAME", "_hostname", "HOSTNAME", "hostname", "host", "node", "node_name", "nodename")
_TIME = ("@timestamp", "date", "timestamp", "time", "ts")
_PROGRAM = ("SYSLOG_IDENTIFIER", "syslog_identifier", "ident", "appname")
_TRANSPORT = ("_TRANSPORT", "_transport", "TRANSPORT", "transport")
_NOT_A_HOST = re.compile(r"[\s\"'{}<>]")

FIELDS = "MESSAGE, message, msg or log"


def read(record: JsonObject, outside: Outside, into: Opened) -> bool:
    """Add the record's lines to `into`; False when it has none of the text fields, so is of another shape."""
    body = _body(record)
    if body is None:
        return False
    kubernetes = record.get("kubernetes")
    kubernetes = kubernetes if isinstance(kubernetes, dict) else {}
    pod = _pod(kubernetes)
    host = _text(kubernetes, ("host", "node_name", "pod_node_name")) or _host(record)
    text.read(
        body,
        outside,
        into,
        at=next((at for name in _TIME if (at := times.any_form(record.get(name)))), None),
        node=host,
        pod=pod,
        container=_text(kubernetes, ("container_name",)),
        source="container" if pod else _source(record),
    )
    return True


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
