"""Prometheus remote-write, versions 1 and 2, as a relay puts the request's body on a topic (Telegraf: `prometheusremotewrite`).

The snappy block around it is unpacked before (`compression.py`). The messages are declared here, because no maintained package
has them: the few fields that count, from prometheus/prompb (remote.proto, types.proto) and io.prometheus.write.v2.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from streams.ingest import timestamps
from streams.ingest.metrics.labels import CACHED, bounded, node_of
from streams.ingest.records import Opened, RecordContext
from streams.model.record import Sample

NAME = "__name__"
_NAMED = b"\x0a\x08__name__"
_STALE = struct.pack("<Q", 0x7FF0000000000002)
"""The NaN that ends a series (prometheus/model/value, StaleNaN)."""

_Of = descriptor_pb2.FieldDescriptorProto
_MESSAGES: dict[str, list[tuple[str, int, Any, str]]] = {
    "Label": [("name", 1, _Of.TYPE_STRING, ""), ("value", 2, _Of.TYPE_STRING, "")],
    "Sample": [("value", 1, _Of.TYPE_DOUBLE, ""), ("timestamp", 2, _Of.TYPE_INT64, "")],
    "Series": [("labels", 1, _Of.TYPE_BYTES, "repeated"), ("samples", 2, _Of.TYPE_MESSAGE, "Sample")],
    "Request": [("series", 1, _Of.TYPE_MESSAGE, "Series")],
    "Series2": [("refs", 1, _Of.TYPE_UINT32, "repeated"), ("samples", 2, _Of.TYPE_MESSAGE, "Sample")],
    "Request2": [("symbols", 4, _Of.TYPE_STRING, "repeated"), ("series", 5, _Of.TYPE_MESSAGE, "Series2")],
}
"""Fields of each message: name, number, type, and the name of a message type (always repeated) or `repeated`. Labels stay bytes,
which are the cache key of the parsed labels."""

_Raw = tuple[Any, ...]
_Place = tuple[dict[str, str], str | None]
"""Labels, and the node they name."""


def read(value: bytes, context: RecordContext, into: Opened) -> None:
    """Add the samples of a WriteRequest of version 1."""
    request = _parsed("Request", value, into)
    for series in request.series if request is not None else ():
        raw = tuple(series.labels)
        try:
            named = next((label for label in raw if label.startswith(_NAMED)), None)
            name = _pair(named)[1] if named is not None else ""
            if (
                name
                and context.interest.metric(name)
                and not _add(name, raw, _of_pairs, series, context, into)
            ):
                return
        except DecodeError as error:
            into.unreadable.append(f"remote-write protobuf: a series with an unreadable label: {error}")


def read_v2(value: bytes, context: RecordContext, into: Opened) -> None:
    """Add the samples of a Request of version 2, whose labels are pairs of indexes into one table of texts."""
    request = _parsed("Request2", value, into)
    if request is None:
        return
    symbols = list(request.symbols)
    for series in request.series:
        refs = series.refs
        if len(refs) % 2 or any(ref >= len(symbols) for ref in refs):
            into.unreadable.append(
                "remote-write 2: a series with labels that are not in the table of symbols"
            )
            continue
        texts = tuple(symbols[ref] for ref in refs)
        name = next((texts[at + 1] for at in range(0, len(texts), 2) if texts[at] == NAME), None)
        if name and context.interest.metric(name) and not _add(name, texts, _of_texts, series, context, into):
            return


def _add(
    name: str,
    raw: _Raw,
    labels_of: Callable[[_Raw], _Place],
    series: Any,
    context: RecordContext,
    into: Opened,
) -> bool:
    """Add the samples of a series; False when the record has given all that it may."""
    if into.full():
        return False
    labels, node = labels_of(raw)
    for sample in series.samples:
        value = sample.value
        if value == value or struct.pack("<d", value) != _STALE:
            at = timestamps.at_nanos(sample.timestamp)
            into.observations.append(Sample(name, value, at, node or context.node, labels))
    return True


@lru_cache(CACHED)
def _of_pairs(raw: tuple[bytes, ...]) -> _Place:
    return _place(_pair(label) for label in raw)


@lru_cache(CACHED)
def _of_texts(texts: tuple[str, ...]) -> _Place:
    return _place(zip(texts[::2], texts[1::2], strict=True))


def _place(pairs: Iterable[tuple[str, str]]) -> _Place:
    labels = bounded((name, text) for name, text in pairs if name != NAME)
    return labels, node_of(labels)


@lru_cache(CACHED)
def _pair(label: bytes) -> tuple[str, str]:
    parsed = _classes()["Label"].FromString(label)
    return parsed.name, parsed.value


def _parsed(message: str, value: bytes, into: Opened) -> Any:
    try:
        return _classes()[message].FromString(value)
    except DecodeError as error:
        into.unreadable.append(f"remote-write protobuf: {error}")
        return None


@cache
def _classes() -> dict[str, Any]:
    package = "faultline.remote_write"
    file = descriptor_pb2.FileDescriptorProto(
        name="faultline/remote_write.proto", package=package, syntax="proto3"
    )
    for message, fields in _MESSAGES.items():
        declared = file.message_type.add(name=message)
        for name, number, kind, of in fields:
            field = declared.field.add(name=name, number=number, type=kind)
            field.label = _Of.LABEL_REPEATED if of else _Of.LABEL_OPTIONAL
            if kind == _Of.TYPE_MESSAGE:
                field.type_name = f".{package}.{of}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
        for name in _MESSAGES
    }
