"""Loki: what is pushed to it and what it answers, lines under the labels of their stream.

`{"streams": [{"stream": {"host": …}, "values": [["1795245195000000000", "line", {…}]]}]}`; before version 1 of the API
`{"labels": "{host=\"…\"}", "entries": [{"ts", "line"}]}`; a query answers `{"data": {"resultType": "streams", "result": […]}}`.
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
    """Add the lines to what is opened next; False when the record is of another shape."""
    streams = record.get("streams")
    if (
        streams is None
        and isinstance(data := record.get("data"), dict)
        and data.get("resultType") == "streams"
    ):
        streams = data.get("result")
    if not isinstance(streams, list) or not all(isinstance(stream, dict) for stream in streams):
        return False
    for stream in streams:
        labels = stream.get("stream")
        if not isinstance(labels, dict):
            labels = dict(_LABEL.findall(text)) if isinstance(text := stream.get("labels"), str) else {}
        said = _origin(labels)
        for at, line in _lines(stream, into):
            origin = Origin(at, said.node, said.pod, said.container, said.source, at is not None, said.sure)
            into.nested.append((line, context.within(merged(origin, context.origin))))
    return True


def _origin(labels: dict[str, Any]) -> Origin:
    said = fields(labels).origin()
    if said.source or not _KERNEL_UNITS & {
        str(labels.get("unit")),
        str(labels.get("job")),
        str(labels.get("service_name")),
    }:
        return said
    return Origin(None, said.node, said.pod, said.container, "kernel", sure=said.sure)


def _lines(stream: JsonObject, into: Opened) -> Iterator[tuple[Any, str]]:
    for entry in _list(stream.get("values")):
        if isinstance(entry, list) and len(entry) >= 2 and isinstance(entry[1], str):
            yield timestamps.any_form(entry[0]), entry[1]
        else:
            into.unreadable.append(f"an entry of a Loki stream that is no time and line: {str(entry)[:80]}")
    for entry in _list(stream.get("entries")):
        if isinstance(entry, dict) and isinstance(entry.get("line"), str):
            yield timestamps.any_form(entry.get("ts") or entry.get("timestamp")), entry["line"]
        else:
            into.unreadable.append(f"an entry of a Loki stream without a line: {str(entry)[:80]}")


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
