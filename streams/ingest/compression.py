"""Compressed records: gzip, zstd and LZ4 frames, snappy framed or as the bare block of Prometheus remote-write.

At most `MAX_UNPACKED` bytes are unpacked: a few kilobytes can be made to unpack to gigabytes, and such a record is refused before
it takes memory.
"""

from __future__ import annotations

import zlib
from typing import Any

import cramjam
import zstandard

from streams.model.errors import BadInput

MAX_UNPACKED = 16 * 1024 * 1024
_MAX_LAYERS = 2
"""A payload that a second program compressed again, and no more."""

_GZIP = b"\x1f\x8b\x08"
_ZSTD = b"\x28\xb5\x2f\xfd"
_LZ4 = b"\x04\x22\x4d\x18"
_SNAPPY = b"\xff\x06\x00\x00sNaPpY"

BEGINNINGS = frozenset(bytes([first]) for first in (0x1F, 0x28, 0x04, *range(0x80, 0x100)))
"""First bytes for which `is_packed` is worth a call: nearly no text begins so. A snappy block of under 128 bytes can begin with
any byte, but so short a block is not really compressed, and the prefilter finds its words."""

_LITERALS_OF_MESSAGES = frozenset(b"\x0a\x1a\x22")
"""First bytes of messages in snappy blocks: the tags of the first fields of both remote-write versions."""


def is_packed(value: bytes) -> bool:
    """True when the bytes begin like a compressed record."""
    return value.startswith((_GZIP, _ZSTD, _LZ4, _SNAPPY)) or _is_block(value)


def unpacked(value: bytes) -> bytes:
    """The unpacked bytes, or `value` itself when it only looked compressed.

    Raises:
        BadInput: when it is damaged, unpacks to more than `MAX_UNPACKED` bytes, or is compressed more than twice.
    """
    for _ in range(_MAX_LAYERS):
        inner = _layer(value)
        if inner is None:
            return value
        value = inner
    if is_packed(value):
        raise BadInput(f"compressed more than {_MAX_LAYERS} times")
    return value


def _layer(value: bytes) -> bytes | None:
    if value.startswith(_GZIP):
        return _gunzipped(value)
    if value.startswith(_ZSTD):
        return _unzstd(value)
    if value.startswith(_LZ4):
        return _into_buffer("lz4", cramjam.lz4, value)
    if value.startswith(_SNAPPY):
        return _into_buffer("snappy", cramjam.snappy, value)
    return _unblocked(value) if _is_block(value) else None


def _gunzipped(value: bytes) -> bytes:
    parts, size, rest = [], 0, value
    while rest.startswith(_GZIP):  # members can follow one another
        stream = zlib.decompressobj(wbits=31)
        try:
            part = stream.decompress(rest, MAX_UNPACKED + 1 - size)
        except zlib.error as error:
            raise BadInput(f"gzip: {error}") from error
        parts.append(part)
        size += len(part)
        if size > MAX_UNPACKED:
            raise _too_large("gzip")
        if not stream.eof:
            raise BadInput("gzip: the data is truncated")
        rest = stream.unused_data
    return b"".join(parts)


def _unzstd(value: bytes) -> bytes:
    # The window is held in memory, and the frame's own header asks for its size.
    reader = zstandard.ZstdDecompressor(max_window_size=MAX_UNPACKED).stream_reader(
        value, read_across_frames=True
    )
    parts, size = [], 0
    try:
        while part := reader.read(1 << 20):
            parts.append(part)
            size += len(part)
            if size > MAX_UNPACKED:
                raise _too_large("zstd")
        claimed = zstandard.frame_content_size(value)  # -1 when the frame does not say
    except zstandard.ZstdError as error:
        raise BadInput(f"zstd: {error}") from error
    if size < claimed:
        raise BadInput("zstd: the data is truncated")
    return b"".join(parts)


def _into_buffer(name: str, codec: Any, value: bytes) -> bytes:
    buffer = bytearray(MAX_UNPACKED)
    try:
        size = codec.decompress_into(value, buffer)
    except cramjam.DecompressionError as error:
        raise BadInput(f"{name}: {error}, or more than {MAX_UNPACKED} bytes unpacked") from error
    return bytes(memoryview(buffer)[:size])


def _unblocked(value: bytes) -> bytes | None:
    """The unpacked block, None when it is no snappy block after all: blocks have no magic bytes."""
    try:
        if cramjam.snappy.decompress_raw_len(value) > MAX_UNPACKED:
            raise _too_large("snappy")
        return bytes(cramjam.snappy.decompress_raw(value))
    except cramjam.DecompressionError:
        return None


def _is_block(value: bytes) -> bool:
    """True for a snappy block that can hold a remote-write message: the unpacked length, then a literal with its first byte.

    Format: google/snappy, format_description.txt. A block is at most a sixth longer than its content, and never shorter than a
    twenty-second of it.
    """
    size = 0
    for position, byte in enumerate(value[:5]):
        size |= (byte & 0x7F) << 7 * position
        if byte < 0x80:
            break
    else:
        return False
    if not len(value) - 32 <= size * 7 // 6 or not size <= 22 * len(value):
        return False
    tag = position + 1
    if len(value) <= tag or value[tag] & 3:  # a block cannot begin with a copy
        return False
    first = tag + 1 + max(0, (value[tag] >> 2) - 59)
    return len(value) > first and value[first] in _LITERALS_OF_MESSAGES


def _too_large(name: str) -> BadInput:
    return BadInput(f"{name}: more than {MAX_UNPACKED} bytes unpacked")
