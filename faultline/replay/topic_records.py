"""The raw records of one topic, in batches with the offsets of each partition in order: of a capture's file, or in memory.

A topic is surveyed before it is read, which takes a quarter of the time of reading it: where it begins and ends, and whether its
file has the offsets of every partition in order, as whatever records a topic writes it. Such a file is read in blocks, and one
block is in memory at a time. Any other file is held whole and sorted; the others are not.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Protocol

import orjson

from faultline.replay.frames import opened, pieces
from faultline.replay.record_format import json_of, record_of
from faultline.replay.unread_records import Bounds
from streams.model.clock import from_millis
from streams.model.errors import BadInput
from streams.model.record import RawRecord

_BLOCK = 2 * 1024 * 1024
"""Bytes of a file that are read at once, and more when a line is longer."""
_BATCH = 5_000
"""Records of a batch in memory."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_HEAD = re.compile(rb'\{"partition":(\d+),"offset":(\d+),"timestamp":(\d{1,14}),"')
"""How `record_line` and most recorders begin a line. A line that begins otherwise is only slower to survey."""
_INTEGER, _STRING, _STRING_OR_NONE = {int}, {str}, {str, type(None)}
_FIELDS = itemgetter("partition", "offset", "timestamp", "value", "key")


def from_micros(micros: int) -> datetime:
    """Microseconds since the epoch as an aware datetime."""
    return _EPOCH + timedelta(microseconds=micros)


def to_micros(at: datetime) -> int:
    """An aware datetime in microseconds since the epoch."""
    return (at - _EPOCH) // _MICROSECOND


@dataclass(frozen=True, slots=True)
class Batch:
    """Some records as columns: partition, time (µs) and value of each. `record` gives one of them whole, by its index.

    No record of a later batch counts before the time `reached` (µs); None when only the topic's disorder tells.
    """

    partitions: Sequence[int]
    times: Sequence[int]
    values: Sequence[bytes]
    record: Callable[[int], RawRecord]
    reached: int | None = None


@dataclass(slots=True)
class Survey:
    """Where the records of a topic begin and end, and how they lie. Times are in µs.

    `disorder` is how far a record may come after a later one of another partition, `weights` the bytes of each partition.
    """

    records: int = 0
    first: int | None = None
    last: int | None = None
    disorder: int = 0
    is_ordered: bool = True
    weights: Counter[int] = field(default_factory=Counter)


class TopicRecords(Protocol):
    """The records of one raw topic, however they are kept."""

    @property
    def survey(self) -> Survey:
        """How they lie; found out once."""

    def batches(self, only: Container[int] | None = None) -> Iterator[Batch]:
        """All of them, or those of some partitions. The offsets of a partition ascend."""


class HeldRecords:
    """Records of a topic in memory, in any order."""

    def __init__(self, records: Iterable[RawRecord]) -> None:
        self._records = in_time_order(records)

    @cached_property
    def survey(self) -> Survey:
        """How they lie, once sorted."""
        return _surveyed(
            (record.partition, record.offset, to_micros(record.timestamp), len(record.value or b""))
            for record in self._records
        )

    def batches(self, only: Container[int] | None = None) -> Iterator[Batch]:
        """All of them, or those of some partitions."""
        for start in range(0, len(self._records), _BATCH):
            yield _batch(self._records[start : start + _BATCH], only)


class StoredTopic(Collection[RawRecord], ABC):
    """One topic of a capture, in one file or in several. It is opened when it is read, and can be read again."""

    @property
    @abstractmethod
    def survey(self) -> Survey:
        """How its records lie; found out once."""

    @property
    @abstractmethod
    def must_be_sorted(self) -> bool:
        """Whether anything of it is held whole, because the offsets of a partition are in another order."""

    @abstractmethod
    def batches(self, only: Container[int] | None = None) -> Iterator[Batch]:
        """All of its records, or those of some partitions. The offsets of a partition ascend."""

    @abstractmethod
    def where(self, record: RawRecord) -> str:
        """File and line of a record, found by its partition and offset."""

    def __contains__(self, record: object) -> bool:
        return any(record == mine for mine in self)


class TopicFile(StoredTopic):
    """One topic's file of a capture, `TOPIC.jsonl` or `TOPIC.jsonl.zst`. It is opened when it is read, and can be read again.

    Whatever reads an invalid line raises BadInput with file and line. Records outside of `bounds` are left out and counted there.
    """

    def __init__(self, topic: str, path: Path, bounds: Bounds | None = None) -> None:
        self._topic = topic
        self._path = path
        self._bounds = bounds

    def __iter__(self) -> Iterator[RawRecord]:
        return self._inside(self._records(self.blocks()))

    def __len__(self) -> int:
        return self._as_it_is.records

    def blocks(self) -> Iterator[tuple[int, list[bytes]]]:
        """The lines of the file, some at a time, with the number of the first."""
        return blocks(self._path)

    @property
    def survey(self) -> Survey:
        """How its records lie; those of a file that must be sorted, how they lie after that."""
        return self._sorted.survey if self.must_be_sorted else self._as_it_is

    @property
    def must_be_sorted(self) -> bool:
        """Whether the file is held whole, because it has the offsets of a partition in another order."""
        return not self._as_it_is.is_ordered

    def batches(self, only: Container[int] | None = None) -> Iterator[Batch]:
        """All of them, or those of some partitions."""
        if self.must_be_sorted:
            yield from self._sorted.batches(only)
            return
        for first, lines in self.blocks():
            batch = self._quickly(lines, only)
            if batch is None or not self._is_inside(batch):
                batch = _batch(list(self._inside(self._records([(first, lines)]))), only)
            yield batch

    def _inside(self, records: Iterable[RawRecord]) -> Iterator[RawRecord]:
        bounds = self._bounds
        return (one for one in records if bounds is None or bounds.holds(one))

    def _is_inside(self, batch: Batch) -> bool:
        bounds, times = self._bounds, batch.times
        return bounds is None or not times or (bounds.first <= min(times) and max(times) <= bounds.last)

    @cached_property
    def _as_it_is(self) -> Survey:
        heads, bounds = self._heads(), self._bounds
        if bounds is None:
            return _surveyed(heads)
        return _surveyed(head for head in heads if bounds.has(self._topic, *head[:3]))

    @cached_property
    def _sorted(self) -> HeldRecords:
        return HeldRecords(self)

    def where(self, record: RawRecord) -> str:
        """File and line of a record, found by its partition and offset."""
        for first, lines in self.blocks():
            for number, line in enumerate(lines, first):
                if line.strip():
                    where = f"{self._path}:{number}"
                    found = record_of(self._topic, json_of(line, where), where)
                    if (found.partition, found.offset) == (record.partition, record.offset):
                        return where
        return f"{self._path}: {record.coordinates}"

    def _records(self, found: Iterable[tuple[int, list[bytes]]]) -> Iterator[RawRecord]:
        for first, lines in found:
            for number, line in enumerate(lines, first):
                if line.strip():
                    where = f"{self._path}:{number}"
                    yield record_of(self._topic, json_of(line, where), where)

    def _heads(self) -> Iterator[tuple[int, int, int, int]]:
        """Partition, offset, time (µs) and size of each record."""
        for first, lines in self.blocks():
            for number, line in enumerate(lines, first):
                if found := _HEAD.match(line):
                    partition, offset, millis = found.groups()
                    yield int(partition), int(offset), int(millis) * 1000, len(line)
                else:
                    for record in self._records([(number, [line])]):
                        yield record.partition, record.offset, to_micros(record.timestamp), len(line)

    def _quickly(self, lines: list[bytes], only: Container[int] | None) -> Batch | None:
        """The records of some lines, all at once; None when there is anything in them that is not usual."""
        if only is not None:
            heads = list(map(_HEAD.match, lines))
            if not all(heads):
                return None
            lines = [line for line, head in zip(lines, heads, strict=True) if head and int(head[1]) in only]
        try:
            rows = orjson.loads(b"[%b]" % b",".join(lines))
            fields = list(map(_FIELDS, rows))
        except (orjson.JSONDecodeError, TypeError, LookupError):
            return None
        columns = zip(*fields, strict=True) if fields else ((),) * 5
        partitions, offsets, millis, values, keys = columns
        if (
            len(rows) != len(lines)
            or any(row.get("headers") for row in rows)
            or not _INTEGER.issuperset(map(type, chain(partitions, offsets, millis)))
            or not _STRING.issuperset(map(type, values))
            or not _STRING_OR_NONE.issuperset(map(type, keys))
        ):
            return None
        encoded = list(map(str.encode, values))

        def record(index: int) -> RawRecord:
            key, at = keys[index], from_millis(millis[index])
            raw_key = key.encode() if key is not None else None
            return RawRecord(self._topic, partitions[index], offsets[index], at, raw_key, encoded[index])

        return Batch(partitions, [time * 1000 for time in millis], encoded, record)


def in_time_order(records: Iterable[RawRecord]) -> list[RawRecord]:
    """Records in one order over all topics and partitions, however a file interleaves them.

    They are sorted by Kafka time, then by topic, partition and offset. Within a partition offsets keep their order even
    where a shipper's clock ran backwards.
    """
    latest: dict[tuple[str, int], datetime] = {}
    ordered: list[tuple[datetime, str, int, int, RawRecord]] = []
    for record in sorted(records, key=lambda r: (r.topic, r.partition, r.offset)):
        partition = (record.topic, record.partition)
        latest[partition] = max(record.timestamp, latest.get(partition, record.timestamp))
        ordered.append((latest[partition], record.topic, record.partition, record.offset, record))
    ordered.sort(key=lambda entry: entry[:4])
    return [entry[4] for entry in ordered]


def blocks(path: Path) -> Iterator[tuple[int, list[bytes]]]:
    """The lines of a file, some at a time, with the number of the first."""
    number, rest = 1, b""
    for block in _blocks(path):
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        yield number, lines
        number += len(lines)
    if rest:
        yield number, [rest]


def _blocks(path: Path) -> Iterator[bytes]:
    if path.suffix != ".zst":
        with opened(path) as file:
            try:
                yield from iter(lambda: file.read(_BLOCK), b"")
            except OSError as error:
                raise BadInput(f"{path}: cannot be read: {error.strerror}") from error
        return
    held: list[bytes] = []
    size = 0
    for piece in pieces(path):
        held.append(piece)
        size += len(piece)
        if size >= _BLOCK:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)


def _batch(records: Sequence[RawRecord], only: Container[int] | None) -> Batch:
    if only is not None:
        records = [record for record in records if record.partition in only]
    return Batch(
        [record.partition for record in records],
        [to_micros(record.timestamp) for record in records],
        [record.value or b"" for record in records],
        records.__getitem__,
    )


def _surveyed(heads: Iterable[tuple[int, int, int, int]]) -> Survey:
    """What partition, offset, time (µs) and size of each record say."""
    survey = Survey()
    offsets: dict[int, int] = {}
    times: dict[int, int] = {}
    first = last = None
    disorder = 0
    for partition, offset, time, size in heads:
        before = times.get(partition)
        if before is None:
            first = time if first is None else min(first, time)
        elif offset < offsets[partition]:
            survey.is_ordered = False
        elif time < before:
            time = before  # as `in_time_order` has it: a partition's time does not run backwards
        offsets[partition], times[partition] = offset, time
        if last is None or time > last:
            last = time
        elif last - time > disorder:
            disorder = last - time
        survey.records += 1
        survey.weights[partition] += size
    survey.first, survey.last, survey.disorder = first, last, disorder
    return survey
