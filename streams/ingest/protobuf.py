"""Protobuf records, recognised by their bytes: OTLP logs, metrics and traces, and both versions of Prometheus remote-write.

Protobuf names no type, but the fields differ: an export request has only fields 1, one after the other; what is in them differs
between logs, metrics and traces (opentelemetry-proto, *.proto), and every series of remote-write has a name.
"""

from __future__ import annotations

from collections.abc import Iterator

from streams.ingest.records import Opened, RecordContext

BEGINNINGS = (b"\x0a", b"\x1a", b"\x22\x00")
"""Tags of the first field. A text begins with the first one only after an empty line, never with the others."""

_NAME = b"__name__"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_LOOKED_AT = 512
_TEXT = bytes(byte for byte in range(256) if byte >= 32 or chr(byte) in "\t\n\r\f\x1b")
_TRACE_ID_BYTES = 16

Field = tuple[int, int, int, int]
"""Number, wire type, start and end of its content."""


class _NotProtobuf(ValueError):
    pass


def read(value: bytes, context: RecordContext, into: Opened) -> bool:
    """Add the content of a protobuf record to `into`; False when the bytes are no protobuf message."""
    try:
        numbers = _numbers(value)
        if not numbers:
            return False
        kind = _kind(value, numbers)
    except _NotProtobuf:
        return _is_binary(value, into)
    # Imported here, because most detectors never get such a record.
    from streams.ingest.metrics import remote_write
    from streams.ingest.otlp import protobuf_encoding

    match kind:
        case "logs":
            protobuf_encoding.read_logs(value, context, into)
        case "metrics":
            protobuf_encoding.read_metrics(value, context, into)
        case "write":
            remote_write.read(value, context, into)
        case "write v2":
            remote_write.read_v2(value, context, into)
        case "traces":
            into.unreadable.append("OpenTelemetry traces are not read: send logs and metrics")
        case _:
            return _is_binary(value, into)
    return True


def _kind(value: bytes, numbers: set[int]) -> str | None:
    if numbers <= {4, 5}:
        return "write v2"
    if not numbers <= {1, 3}:
        return None
    if 3 in numbers:
        return "write"  # metadata of metrics, which no export request has
    for resource in _fields(value, 0, len(value), _MAX_LOOKED_AT):
        if _is_series(value, resource):
            return "write"
        for scope in _within(value, resource):
            if scope[0] != 2:
                continue
            for record in _within(value, scope):
                if record[0] == 2 and (kind := _kind_of_record(value, record)) is not None:
                    return kind
    return "metrics"  # resources with nothing in them


def _is_series(value: bytes, field: Field) -> bool:
    """True when one of the labels is the metric's name. Attributes of a resource are one level deeper."""
    if _NAME not in value[field[2] : field[3]]:
        return False
    return any(
        value[start:end] == _NAME
        for label in _within(value, field)
        if label[0] == 1
        for number, _, start, end in _within(value, label)
        if number == 1
    )


def _kind_of_record(value: bytes, record: Field) -> str | None:
    parts = {(number, wire): end - start for number, wire, start, end in _within(value, record)}
    if not parts:
        return None
    if (1, _BYTES) not in parts:
        return "logs"
    if parts[1, _BYTES] == _TRACE_ID_BYTES and (7, _FIXED64) in parts:
        return "traces"
    return "metrics"


def _within(value: bytes, field: Field) -> Iterator[Field]:
    number, wire, start, end = field
    if wire != _BYTES:
        raise _NotProtobuf(f"field {number} is no message")
    return _fields(value, start, end, _MAX_LOOKED_AT)


def _numbers(value: bytes) -> set[int]:
    """The field numbers of a message that holds only messages and texts."""
    numbers = set()
    for number, wire, _, _ in _fields(value, 0, len(value), len(value)):
        if wire != _BYTES:
            raise _NotProtobuf(f"field {number} is no message")
        numbers.add(number)
    return numbers


def _fields(value: bytes, start: int, end: int, most: int) -> Iterator[Field]:
    """The first `most` fields of a message.

    Raises:
        _NotProtobuf: when the bytes are no message.
    """
    for _ in range(most):
        if start >= end:
            return
        tag, start = _varint(value, start, end)
        wire = tag & 7
        if wire == _VARINT:
            _, stop = _varint(value, start, end)
        elif wire == _BYTES:
            length, start = _varint(value, start, end)
            stop = start + length
        elif wire in (_FIXED64, _FIXED32):
            stop = start + (8 if wire == _FIXED64 else 4)
        else:
            raise _NotProtobuf(f"wire type {wire}")
        if stop > end or not tag >> 3:
            raise _NotProtobuf("a field that ends after its message")
        yield tag >> 3, wire, start, stop
        start = stop


def _varint(value: bytes, start: int, end: int) -> tuple[int, int]:
    number = shift = 0
    while start < end and shift < 70:
        byte = value[start]
        start += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, start
        shift += 7
    raise _NotProtobuf("a number that does not end")


def _is_binary(value: bytes, into: Opened) -> bool:
    """True, with a reason in `into`, for bytes that begin like a nested message and are no text."""
    try:
        _, inner = _varint(value, 1, len(value))
    except _NotProtobuf:
        return False
    if value[inner : inner + 1] not in (b"\x0a", b"\x12") or not value[:4096].translate(None, _TEXT):
        return False
    into.unreadable.append("binary data: a message of an unknown type, or a truncated one")
    return True
