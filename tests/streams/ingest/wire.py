"""Protobuf written by hand, for messages that no library here declares: remote-write requests and hostile nesting."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence


def varint(number: int) -> bytes:
    out = bytearray()
    number &= 2**64 - 1
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def message(number: int, content: bytes | str) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(content)) + content


def sample(value: float | bytes, millis: int) -> bytes:
    raw = value if isinstance(value, bytes) else struct.pack("<d", value)
    return b"\x09" + raw + b"\x10" + varint(millis)


def series(labels: Mapping[str, str], *samples: bytes) -> bytes:
    pairs = [message(1, message(1, name) + message(2, value)) for name, value in labels.items()]
    return b"".join(pairs) + b"".join(message(2, one) for one in samples)


def write_request(*all_series: bytes) -> bytes:
    return b"".join(message(1, one) for one in all_series)


def write_request_2(symbols: Sequence[str], *all_series: tuple[Sequence[int], Sequence[bytes]]) -> bytes:
    table = b"".join(message(4, symbol) for symbol in symbols)
    return table + b"".join(
        message(5, message(1, b"".join(map(varint, refs))) + b"".join(message(2, one) for one in samples))
        for refs, samples in all_series
    )
