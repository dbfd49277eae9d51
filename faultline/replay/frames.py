"""Files of many zstd frames, each of whole lines, so that they can be read, and written on, a frame at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import zstandard

from streams.model.errors import BadInput

FRAME_BYTES = 2 * 1024 * 1024
"""About as many bytes of lines are in one frame."""
LARGEST_FRAME_BYTES = 64 * 1024 * 1024
"""A frame that holds more was not written here, and is not taken into memory at once."""
LEVEL = 3
_CHUNK = 256 * 1024
_PIECE = 4 * 1024
"""Compressed bytes that are taken at once: at worst they hold 128 MiB."""
_HEADER_BYTES = 18


def compressed(lines: bytes) -> bytes:
    """Lines as one frame, with their size and a checksum."""
    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=True, write_content_size=True).compress(lines)


def frames(path: Path) -> Iterator[bytes]:
    """What the frames of a file hold, one after the other.

    Raises:
        BadInput: naming the file, when a frame is damaged or cut off, or cannot be held in memory.
    """
    with opened(path) as file:
        while True:
            begin = file.tell()
            try:
                content = _next(file)
            except (zstandard.ZstdError, EOFError) as error:
                raise BadInput(f"{path}: damaged from byte {begin} on: {error}") from error
            if content is None:
                return
            yield content


def has_small_frames(path: Path) -> bool:
    """Whether the first frame of a file says that it can be held in memory, as all do that are written here."""
    with opened(path) as file:
        header = file.read(_HEADER_BYTES)
    try:
        size = zstandard.get_frame_parameters(header).content_size
    except zstandard.ZstdError:
        return False
    return size not in {zstandard.CONTENTSIZE_UNKNOWN, zstandard.CONTENTSIZE_ERROR} and (
        size <= LARGEST_FRAME_BYTES
    )


def _next(file: BinaryIO) -> bytes | None:
    """What the next frame holds, with the file at its end; None at the end of the file."""
    frame = zstandard.ZstdDecompressor().decompressobj()
    pieces: list[bytes] = []
    size = 0
    while chunk := file.read(_CHUNK):
        pieces.append(frame.decompress(chunk))
        size += len(pieces[-1])
        if frame.eof:
            file.seek(-len(frame.unused_data), 1)
            return b"".join(pieces)
        if size > LARGEST_FRAME_BYTES:
            raise zstandard.ZstdError(f"a frame holds more than {LARGEST_FRAME_BYTES} bytes")
    if pieces:
        raise EOFError("a frame is cut off")
    return None


def pieces(path: Path) -> Iterator[bytes]:
    """What the frames of a file hold, however large they are, some bytes at a time.

    Raises:
        BadInput: naming the file, when it holds no frame, or one is damaged or cut off.
    """
    frame, is_whole = zstandard.ZstdDecompressor().decompressobj(), False
    with opened(path) as file:
        while chunk := file.read(_PIECE):
            while chunk:
                if is_whole:
                    frame = zstandard.ZstdDecompressor().decompressobj()
                try:
                    piece = frame.decompress(chunk)
                except zstandard.ZstdError as error:
                    raise BadInput(f"{path}: cannot be read: {error}") from error
                chunk, is_whole = frame.unused_data, frame.eof
                if piece:
                    yield piece
    if not is_whole:
        why = "the last frame does not end" if path.stat().st_size else "not even an empty frame is there"
        raise BadInput(f"{path}: cut off: {why}")


def opened(path: Path) -> BinaryIO:
    """A regular file to read from. Raises BadInput for any other, which might never end: a named pipe, a device."""
    try:
        if path.exists() and not path.is_file():
            raise BadInput(f"{path}: is no regular file")
        return path.open("rb")
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
