"""Loki: its push requests and query answers, lines under the labels of their stream.

`{"streams": [{"stream": {"host": …}, "values": [["1795245195000000000", "line", {…}]]}]}`; before version 1 of the API
`{"labels": "{host=\"…\"}", "entries": [{"ts", "line"}]}`; agents write `{"ts", "line", "labels": {…}}` to other outputs; a query
answers `{"data": {"resultType": "streams", "result": […]}}`.
Shape: grafana/loki, HTTP API.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from streams.ingest import timestamps
from streams.ingest.fields import fields
from streams.ingest.records import JsonObject, Opened, Origin, RecordContext, merged

_LABEL = re.compile(r"([A-Za-z_]\w{0,127})\s{0,4}=\s{0,4}\"((?:[^\"\\]|\\.){0,1024})\"")
_KERNEL_UNITS = frozenset({"kernel", "kmsg"})


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add the lines to `into.nested`; False for any other format."""
    streams = record.get("streams")
    data = record.get("data")
    if streams is None and isinstance(data, dict) and data.get("resultType") == "streams":
        streams = data.get("result")
    if streams is None and isinstance(record.get("stream"), dict) and isinstance(record.get("values"), list):
        streams = [record]  # one stream by itself, as pipelines split a push
    if streams is None and isinstance(record.get("line"), str) and isinstance(record.get("labels"), dict):
        # An entry with its labels, as agents write it to other outputs.
        streams = [{"stream": record["labels"], "entries": [record]}]
    if not isinstance(streams, list) or not all(isinstance(stream, dict) for stream in streams):
        return False
    for stream in streams:
        labels = stream.get("stream")
        if not isinstance(labels, dict):
            labels = dict(_LABEL.findall(text)) if isinstance(text := stream.get("labels"), str) else {}
        of_labels = _origin(labels)
        for at, line in _lines(stream, into):
            origin = of_labels._replace(at=at, certain=at is not None)
            into.nested.append((line, context.within(merged(origin, context.origin))))
    return True


def _origin(labels: dict[str, Any]) -> Origin:
    origin = fields(labels).origin()
    units = {str(labels.get(name)) for name in ("unit", "job", "service_name")}
    return origin if origin.source or not _KERNEL_UNITS & units else origin._replace(source="kernel")


def _lines(stream: JsonObject, into: Opened) -> Iterator[tuple[Any, str]]:
    for entry in _list(stream.get("values")):
        if isinstance(entry, list) and len(entry) >= 2 and isinstance(entry[1], str):
            yield timestamps.any_form(entry[0]), entry[1]
        else:
            into.unreadable.append(f"an entry of a Loki stream without time and line: {str(entry)[:80]}")
    for entry in _list(stream.get("entries")):
        if isinstance(entry, dict) and isinstance(entry.get("line"), str):
            yield timestamps.any_form(entry.get("ts") or entry.get("timestamp")), entry["line"]
        else:
            into.unreadable.append(f"an entry of a Loki stream without a line: {str(entry)[:80]}")


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
