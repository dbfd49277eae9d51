"""Writes the records of one partition to its file, a frame at a time, and goes on where an earlier process was killed.

After each frame a note says what is in the file so far. What lies behind that is cut off when the file is opened again, and the
records in it are read from Kafka again; a file that is not what its note says is begun anew.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from faultline.replay.capture import Capture, write_rest
from faultline.replay.frames import FRAME_BYTES, compressed
from faultline.replay.manifest import MANIFEST, Lineage, Manifest, PartitionPart, TopicPart, write_manifest
from faultline.replay.record_format import record_line
from faultline.replay.topic_records import in_time_order
from streams.model.clock import to_millis
from streams.model.codec import decode, encode
from streams.model.errors import BadInput
from streams.model.record import RawRecord

AHEAD_IN_A_ROW = 10_000
"""After so many records beyond the capture's end a partition is not read on, though a late shipper may still have more."""
NOTES = ".progress"
"""The folder of the notes, inside the capture until it is complete."""

Change = Callable[[RawRecord], RawRecord | None]
"""What is written instead of a record; None when it is left out."""


def as_it_is(record: RawRecord) -> RawRecord:
    """The record itself."""
    return record


@dataclass(frozen=True, slots=True)
class PartitionNote:
    """What is in the file of a partition, where reading goes on, and whether that is the end of it."""

    part: PartitionPart
    next_offset: int
    has_begun: bool = False
    """Whether a record was seen that is not before the capture's time."""
    is_done: bool = False


class PartitionWriter:
    """A file of one partition while it is written: `DIRECTORY/TOPIC/PARTITION.jsonl.zst`.

    Records with a time from `end_ms` on are left out. Those before `lead_ms` that come after one that is not are counted as late.
    `change` says what is written instead of a record.
    """

    def __init__(
        self,
        directory: Path,
        topic: str,
        partition: int,
        part: PartitionPart,
        *,
        lead_ms: int,
        end_ms: int,
        change: Change = as_it_is,
    ) -> None:
        self._path = directory / topic / f"{partition}.jsonl.zst"
        self._note = directory / NOTES / topic / f"{partition}.json"
        self._lead_ms, self._end_ms = lead_ms, end_ms
        self._change = change
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._note.parent.mkdir(parents=True, exist_ok=True)
        note, self._digest, self._file = self._opened(PartitionNote(part, part.begin))
        self._has_begun = note.has_begun
        self.is_done = note.is_done
        self.next_offset = note.next_offset
        """The offset of the first record that has not been added."""
        self._ahead_in_a_row = 0
        self._part = note.part
        self._records, self._bytes = note.part.records, note.part.bytes
        self._first_ms, self._last_ms = note.part.first_ms, note.part.last_ms
        self._late, self._ahead, self._lost = note.part.late, note.part.ahead, note.part.lost
        self._left_out = note.part.left_out

    @property
    def records(self) -> int:
        """How many records were added, those in the file from earlier included."""
        return self._records + len(self._pending)

    @property
    def has_all(self) -> bool:
        """Whether nothing that belongs into the file can come any more, as far as one can tell."""
        return self.next_offset >= self._part.end or self._ahead_in_a_row >= AHEAD_IN_A_ROW

    @property
    def offsets_left(self) -> int:
        """How many offsets of its part have not been passed."""
        return max(self._part.end - self.next_offset, 0)

    @property
    def offsets_passed(self) -> int:
        """How many offsets of its part are behind; all when it is done."""
        return self._part.end - self._part.begin - (0 if self.is_done else self.offsets_left)

    def reach(self, offset: int) -> None:
        """Note that there is no record before this offset: compaction and the marks of transactions leave gaps."""
        self.next_offset = max(self.next_offset, offset)

    def lose(self, offset: int) -> None:
        """Go on at this offset: the broker has deleted what was before it."""
        self._lost += offset - self.next_offset
        self.next_offset = offset

    def add(self, records: Iterable[RawRecord]) -> None:
        """Add records in the order of their offsets. A frame that is full is written."""
        for record in records:
            if record.offset >= self._part.end:
                break
            self.next_offset = record.offset + 1
            at = to_millis(record.timestamp)
            if at >= self._end_ms:
                self._ahead += 1
                self._ahead_in_a_row += 1
                continue
            self._ahead_in_a_row = 0
            self._has_begun = self._has_begun or at >= self._lead_ms
            if not self._has_begun:
                continue
            if (changed := self._change(record)) is None:
                self._left_out += 1
                continue
            self._late += at < self._lead_ms
            self._first_ms = at if self._first_ms is None else self._first_ms
            self._last_ms = at if self._last_ms is None else max(at, self._last_ms)
            line = record_line(changed)
            self._pending.append(line)
            self._pending_bytes += len(line)
            if self._pending_bytes >= FRAME_BYTES:
                self.flush()

    def flush(self, *, is_done: bool = False) -> None:
        """Write what was added as a frame, and note it."""
        size = self._part.size
        if self._pending or (is_done and not size):  # a file without records is one that zstd can read, too
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
            lost=self._lost,
            left_out=self._left_out,
        )
        self.is_done = is_done
        draft = self._note.with_suffix(".new")
        draft.write_bytes(encode(PartitionNote(self._part, self.next_offset, self._has_begun, is_done)))
        draft.replace(self._note)

    def close(self) -> None:
        """Close the file; what is not in a frame is read again when the capture goes on."""
        self._file.close()

    def finish(self) -> PartitionPart:
        """Write the rest, and close the file; returns what is in it."""
        if not self.is_done:
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
            writer = PartitionWriter(directory, topic, partition, part, lead_ms=0, end_ms=last_ms + 1)
            writer.add(mine)
            parts[partition] = writer.finish()
        topics[topic] = TopicPart(parts)
    meta = capture.meta
    manifest = Manifest(
        meta.cluster,
        meta.begin,
        meta.end,
        meta.lead,
        topics,
        lineage=Lineage(incident=capture.incident),
        complete=True,
    )
    write_rest(directory, capture)
    write_manifest(directory / MANIFEST, manifest)
    shutil.rmtree(directory / NOTES, ignore_errors=True)
