"""The bundle of `faultline support`: one archive that may be given away, with pseudonyms for every name that is known.

Everything is gathered in memory first, within bounds, because the names in all of it have to be known before the first byte may
be written. Then every text is redacted, read once more for names that are left, as by `capture --redact`, and only then packed.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from faultline.replay.kafka_capture.proof import TOLD, NamesLeft, name_in
from faultline.replay.redaction.redaction import Learning, Redaction
from faultline.replay.redaction.values import Unreadable, redacted
from streams.model.clock import rfc3339
from streams.model.errors import BadInput

MAX_BYTES = 64 * 1024 * 1024
"""Of all parts together, before they are packed."""

MAX_PART_BYTES = 16 * 1024 * 1024

MANIFEST = "manifest.json"


@dataclass(slots=True)
class Gathered:
    """The parts of a bundle as they were read, by their names in the archive, and why others are not there."""

    parts: dict[str, bytes] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, content: bytes) -> None:
        """Add a part. Of one that is too long the end is kept, by whole lines; nothing is added once the bundle is full."""
        if len(content) > MAX_PART_BYTES:
            self.left_out[name] = f"only the last {MAX_PART_BYTES} of {len(content)} bytes are in it"
            content = content[-MAX_PART_BYTES:].partition(b"\n")[2]
        if sum(map(len, self.parts.values())) + len(content) > MAX_BYTES:
            self.left_out[name] = f"the bundle has {MAX_BYTES} bytes without it"
            return
        self.parts[name] = content

    def add_rows(self, name: str, rows: list[Any]) -> None:
        """Add documents, one a line."""
        self.add(name, b"".join(orjson.dumps(row, option=orjson.OPT_NON_STR_KEYS) + b"\n" for row in rows))

    def miss(self, name: str, why: str) -> None:
        """Say why a part is not there."""
        self.left_out[name] = why


def redact(gathered: Gathered, learning: Learning) -> dict[str, bytes]:
    """Every part with pseudonyms, line by line. Lines that nobody can read are left out, and counted.

    Raises:
        NamesLeft: a known name is left; nothing may be given away.
    """
    for content in gathered.parts.values():
        for line in content.splitlines():
            try:
                learning.learn_document(orjson.loads(line))
            except orjson.JSONDecodeError:
                learning.learn_document({"message": line.decode(errors="replace")})
    redaction = learning.learned()
    made: dict[str, bytes] = {}
    for name, content in gathered.parts.items():
        lines, unreadable = [], 0
        for line in content.splitlines():
            try:
                lines.append(redacted(line, redaction.text) if line else line)
            except Unreadable:
                unreadable += 1
        if unreadable:
            gathered.left_out[name] = f"{unreadable} lines that nobody can read"
        made[name] = b"".join(line + b"\n" for line in lines)
    _prove(made, redaction)
    return made


def _prove(parts: Mapping[str, bytes], redaction: Redaction) -> None:
    found = [
        f"  {name}:{number}: {left}"
        for name, content in parts.items()
        for number, line in enumerate(content.decode(errors="replace").splitlines(), 1)
        if (left := name_in(line, redaction))
    ]
    if found:
        more = [f"  and {len(found) - TOLD} more"] if len(found) > TOLD else []
        what = "names are left, and no bundle is written:"
        raise NamesLeft("\n".join([f"{len(found)} {what}", *found[:TOLD], *more]))


def name_of(at: datetime) -> str:
    """The file's name, by the time alone."""
    return f"faultline-support-{at:%Y%m%dT%H%M%SZ}.tar.gz"


def write(
    file: Path,
    parts: Mapping[str, bytes],
    left_out: Mapping[str, str],
    about: Mapping[str, Any],
    at: datetime,
) -> int:
    """Write the archive, readable by its owner alone; returns its size in bytes. The same parts give the same bytes.

    Raises:
        BadInput: there is such a file already, or it cannot be written.
    """
    folder = file.name.removesuffix(".tar.gz")
    listed = [
        {"file": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in sorted(parts.items())
    ]
    manifest = {**about, "at": rfc3339(at), "files": listed, "left_out": dict(sorted(left_out.items()))}
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=int(at.timestamp())) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, content in _members(parts, manifest):
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size, member.mtime, member.mode = len(content), int(at.timestamp()), 0o600
            archive.addfile(member, io.BytesIO(content))
    try:
        # O_EXCL takes neither a file that is there nor a link that somebody put there.
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise BadInput(f"{file} is there already, and is not written over") from error
    except OSError as error:
        raise BadInput(f"{file} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(packed.getvalue())
    except OSError as error:
        file.unlink(missing_ok=True)
        raise BadInput(f"{file} cannot be written: {error.strerror}") from error
    return len(packed.getvalue())


def _members(parts: Mapping[str, bytes], manifest: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    yield MANIFEST, orjson.dumps(manifest, option=orjson.OPT_INDENT_2) + b"\n"
    yield from sorted(parts.items())
