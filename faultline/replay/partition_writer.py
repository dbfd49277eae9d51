"""Writes the records of one partition to its file, a frame at a time, and goes on where an earlier process was killed.

After each frame a note says what is in the file so far. What lies behind that is cut off when the file is opened again, and the
records in it are read from Kafka again; a file that is not what its note says is begun anew.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from faultline.replay.capture import Capture, write_rest
from faultline.replay.frames import FRAME_BYTES, compressed
from faultline.replay.manifest import MANIFEST, Manifest, PartitionPart, TopicPart, write_manifest
from faultline.replay.record_format import record_line
from faultline.replay.topic_records import in_time_order
from streams.model.clock import to_millis
from streams.model.codec import decode, encode
from streams.model.errors import BadInput
from streams.model.record import RawRecord

NOTES = ".progress"
"""The folder of the notes, inside the capture until it is complete."""


@dataclass(frozen=True, slots=True)
class PartitionNote:
    """What is in the file of a partition, where reading goes on, and whether that is the end of it."""

    part: PartitionPart
    next_offset: int
    is_done: bool = False


class PartitionWriter:
    """A file of one partition while it is written: `DIRECTORY/TOPIC/PARTITION.jsonl.zst`.

    Records with a time from `end_ms` on are left out, those before `lead_ms` are counted as late.
    """

    def __init__(
        self, directory: Path, topic: str, partition: int, part: PartitionPart, *, lead_ms: int, end_ms: int
    ) -> None:
        self._path = directory / topic / f"{partition}.jsonl.zst"
        self._note = directory / NOTES / topic / f"{partition}.json"
        self._lead_ms, self._end_ms = lead_ms, end_ms
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._note.parent.mkdir(parents=True, exist_ok=True)
        note, self._digest, self._file = self._opened(PartitionNote(part, part.begin))
        self.is_done = note.is_done
        self.next_offset = note.next_offset
        """The offset of the first record that has not been added."""
        self.ahead_in_a_row = 0
        """How many of the last records were left out because they are ahead."""
        self._part = note.part
        self._records, self._bytes = note.part.records, note.part.bytes
        self._first_ms, self._last_ms = note.part.first_ms, note.part.last_ms
        self._late, self._ahead = note.part.late, note.part.ahead

    @property
    def records(self) -> int:
        """How many records were added, those in the file from earlier included."""
        return self._records + len(self._pending)

    def add(self, records: Iterable[RawRecord]) -> None:
        """Add records in the order of their offsets. A frame that is full is written."""
        for record in records:
            self.next_offset = record.offset + 1
            at = to_millis(record.timestamp)
            if at >= self._end_ms:
                self._ahead += 1
                self.ahead_in_a_row += 1
                continue
            self.ahead_in_a_row = 0
            self._late += at < self._lead_ms
            self._first_ms = at if self._first_ms is None else self._first_ms
            self._last_ms = at if self._last_ms is None else max(at, self._last_ms)
            line = record_line(record)
            self._pending.append(line)
            self._pending_bytes += len(line)
            if self._pending_bytes >= FRAME_BYTES:
                self.flush()

    def flush(self, *, is_done: bool = False) -> None:
        """Write what was added as a frame, and note it."""
        size = self._part.size
        if self._pending:
            frame = compressed(b"".join(self._pending))
            self._file.write(frame)
            self._file.flush()
            self._digest.update(frame)
            size += len(frame)
        self._records += len(self._pending)
        self._bytes += self._pending_bytes
        self._pending, self._pending_bytes = [], 0
        self._part = replace(
            self._part,
            records=self._records,
            first_ms=self._first_ms,
            last_ms=self._last_ms,
            bytes=self._bytes,
            size=size,
            sha256=self._digest.hexdigest(),
            late=self._late,
            ahead=self._ahead,
        )
        self.is_done = is_done
        draft = self._note.with_suffix(".new")
        draft.write_bytes(encode(PartitionNote(self._part, self.next_offset, is_done)))
        draft.replace(self._note)

    def close(self) -> None:
        """Close the file; what is not in a frame is left out, and read again when the capture goes on."""
        self._file.close()

    def finish(self) -> PartitionPart:
        """Write the rest, and close the file; returns what is in it."""
        self.flush(is_done=True)
        self.close()
        return self._part

    def _opened(self, fresh: PartitionNote) -> tuple[PartitionNote, hashlib._Hash, BinaryIO]:
        """The note that holds, the digest of the file so far, and the file at its end."""
        digest = hashlib.sha256()
        if self._note.exists() and self._path.exists():
            try:
                note = decode(PartitionNote, self._note.read_bytes())
            except BadInput:
                note = fresh
            file = self._path.open("r+b")
            left = note.part.size
            while left and (chunk := file.read(min(left, 1024 * 1024))):
                digest.update(chunk)
                left -= len(chunk)
            if note.part.begin == fresh.part.begin and digest.hexdigest() == note.part.sha256:
                file.truncate()
                return note, digest, file
            file.close()
        return fresh, hashlib.sha256(), self._path.open("wb")


def write_by_partition(directory: Path, capture: Capture) -> None:
    """Write the records of a capture as one taken from Kafka has them: a file for each partition, and a manifest."""
    topics: dict[str, TopicPart] = {}
    for topic, records in capture.records.items():
        by_partition: dict[int, list[RawRecord]] = {}
        for record in in_time_order(records):
            by_partition.setdefault(record.partition, []).append(record)
        parts: dict[int, PartitionPart] = {}
        for partition, mine in sorted(by_partition.items()):
            part = PartitionPart(mine[0].offset, mine[-1].offset + 1)
            last_ms = max(to_millis(record.timestamp) for record in mine)
            lead_ms = to_millis(capture.meta.lead)
            writer = PartitionWriter(directory, topic, partition, part, lead_ms=lead_ms, end_ms=last_ms + 1)
            writer.add(mine)
            parts[partition] = writer.finish()
        topics[topic] = TopicPart(parts)
    meta = capture.meta
    manifest = Manifest(meta.cluster, meta.begin, meta.end, meta.lead, topics, complete=True)
    write_rest(directory, capture)
    write_manifest(directory / MANIFEST, manifest)
    shutil.rmtree(directory / NOTES, ignore_errors=True)
