"""What compacted topics stood at when a capture begins: the last record of each key until then, as far as it is still there.

They are read twice, and only the keys are held: what a topic keeps of a year may be larger than memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka import AIOKafkaConsumer, TopicPartition

from faultline.replay.frames import FRAME_BYTES, compressed
from faultline.replay.kafka_capture.partitions import batches_between
from faultline.replay.manifest import StatePart
from faultline.replay.partition_writer import Change
from faultline.replay.record_format import record_line
from streams.kafka.clients import raw_record

_MARKS = 1
"""So many offsets between two records are no sign of a compaction: each transaction ends with a mark of its own."""


@dataclass(slots=True)
class Keys:
    """The keys of one partition. `begin` is the offset of the first record after the time, `latest` that of the last before."""

    begin: int
    latest: dict[bytes, int] = field(default_factory=dict)
    known: set[bytes] = field(default_factory=set)
    """Keys that had a record before the time, those deleted by then included."""
    unknown: set[bytes] = field(default_factory=set)
    """Keys whose first record is after the time, where records before them are gone."""
    has_gaps: bool = False
    """Whether records of the partition are gone, as far as its offsets tell."""
    _next: int = 0

    def see(self, offset: int, key: bytes, *, is_gone: bool, is_later: bool) -> None:
        """Take the next record that is there. `is_gone` says that it deletes its key, `is_later` that it is after the time."""
        self.has_gaps = self.has_gaps or offset > self._next + _MARKS
        self._next = offset + 1
        if is_later and offset < self.begin:
            self.begin = offset
        if offset >= self.begin:
            if self.has_gaps and key not in self.known:
                self.unknown.add(key)
            return
        self.known.add(key)
        if is_gone:
            self.latest.pop(key, None)
        else:
            self.latest[key] = offset


async def write_state(
    client: AIOKafkaConsumer,
    topic: str,
    ends: Mapping[TopicPartition, int],
    lead_ms: int,
    path: Path,
    change: Change,
) -> StatePart:
    """Write the state of a topic at a time to a file, which is there whole or not at all; returns what is in it."""
    oldest = await client.beginning_offsets(list(ends))
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}")
    records = lines_bytes = size = unknown = 0
    whole = hashlib.sha256()
    with draft.open("wb") as out:
        for place, end in ends.items():
            keys = await _keys(client, place, oldest[place], end, lead_ms)
            unknown += len(keys.unknown)
            async for lines in _frames(client, place, oldest[place], keys, topic, change):
                records += len(lines)
                frame = compressed(b"".join(lines))
                lines_bytes += sum(map(len, lines))
                size += len(frame)
                whole.update(frame)
                out.write(frame)
        if not size:  # a file that zstd can read
            frame = compressed(b"")
            size = out.write(frame)
            whole.update(frame)
    draft.replace(path)
    return StatePart(records, unknown, lines_bytes, size, whole.hexdigest())


async def _keys(client: AIOKafkaConsumer, place: TopicPartition, oldest: int, end: int, lead_ms: int) -> Keys:
    keys = Keys(end)
    async for batch in batches_between(client, place, oldest, end):
        for record in batch:
            keys.see(
                record.offset,
                record.key or b"",
                is_gone=record.value is None,
                is_later=record.timestamp >= lead_ms,
            )
    return keys


async def _frames(
    client: AIOKafkaConsumer,
    place: TopicPartition,
    oldest: int,
    keys: Keys,
    topic: str,
    change: Change,
) -> AsyncIterator[list[bytes]]:
    """The lines of the records that hold, as many at once as a frame takes."""
    lines: list[bytes] = []
    waiting = 0
    async for batch in batches_between(client, place, oldest, keys.begin):
        for record in batch:
            if keys.latest.get(record.key or b"") != record.offset:
                continue
            if (changed := change(raw_record(record, topic))) is None:
                continue
            lines.append(record_line(changed))
            waiting += len(lines[-1])
            if waiting >= FRAME_BYTES:
                yield lines
                lines, waiting = [], 0
    if lines:
        yield lines
