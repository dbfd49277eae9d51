"""Reads an archive: the records of a topic and cluster between two times, and what a compacted topic held at a time.

Records of a partition come in the order of their offsets, whatever files they lie in: a record around midnight may lie in the day
before or after its neighbours. One that lies in two files comes once. A group of rows is in memory at a time for each day that is
open, usually one.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from faultline.archive.folder import Archive, Part, Place, Stored, in_order
from faultline.archive.parquet import spans
from faultline.archive.rows import STORED, records_of
from streams.model.clock import to_millis
from streams.model.errors import BadInput
from streams.model.record import RawRecord

_FOREVER_MS = 2**62
_INSTANT = timedelta(milliseconds=1)


class Span(NamedTuple):
    """From `begin` to before `end`, in milliseconds since 1970."""

    begin: int
    end: int

    @classmethod
    def of(cls, begin: datetime | None, end: datetime | None) -> Span:
        """Between two times; None is open."""
        return cls(
            -_FOREVER_MS if begin is None else to_millis(begin),
            _FOREVER_MS if end is None else to_millis(end),
        )


class ArchivedRecords:
    """The records of one topic and cluster between two times. Its files are listed once, and opened when they are read."""

    def __init__(
        self, archive: Archive, topic: str, cluster: str, begin: datetime | None, end: datetime | None
    ) -> None:
        """None for a time is the archive's own."""
        self.archive = archive
        self.topic = topic
        self._span = Span.of(begin, end)
        days = (begin.date() if begin else date.min, (end - _INSTANT).date() if end else date.max)
        self._parts: dict[int, list[Stored]] = {}
        for stored in archive.parts(topic):
            place = stored.part.place
            if place.cluster in (cluster, None) and days[0] <= place.day <= days[1]:
                self._parts.setdefault(stored.part.partition, []).append(stored)

    @property
    def partitions(self) -> list[int]:
        """The partitions that have any records."""
        return sorted(self._parts)

    def of(
        self, partition: int, *, after: Mapping[Place, int] | None = None, columns: Collection[str] = STORED
    ) -> Iterator[RawRecord]:
        """The records of a partition by offset; of each directory those after the given one. Columns left out are null.

        Raises:
            Unreachable: when the archive does not answer.
            BadInput: naming a file that is not readable.
        """
        by_place: dict[Place, list[Stored]] = {}
        for stored in self._parts.get(partition, ()):
            by_place.setdefault(stored.part.place, []).append(stored)
        return _by_offset(
            _Directory(self.archive, found, (after or {}).get(place, -1), self._span, columns)
            for place, found in by_place.items()
        )

    def last_offsets(self, partition: int) -> dict[Place, int]:
        """The last offset of each directory."""
        last: dict[Place, int] = {}
        for stored in self._parts.get(partition, ()):
            last[stored.part.place] = max(stored.part.last, last.get(stored.part.place, -1))
        return last


class _Directory:
    """The records of a partition in one directory."""

    def __init__(
        self, archive: Archive, found: Sequence[Stored], after: int, span: Span, columns: Collection[str]
    ) -> None:
        self._archive = archive
        self._place, self._partition, _, _ = found[0].part
        self._parts = [stored.part for stored in sorted(found, key=in_order)]
        self._span = span
        self._columns = columns
        self._done = after
        left = self._left()
        self.first = max(left[0].first, after + 1) if left else None
        """No record has an offset before this; None when there are none."""

    def _left(self) -> list[Part]:
        return [part for part in self._parts if part.last > self._done]

    def records(self) -> Iterator[RawRecord]:
        """All of them. Files that have been merged into another one meanwhile are looked for again."""
        missing: set[Part] = set()
        while left := self._left():
            try:
                yield from self._of_file(left[0].path)
                self._done = max(self._done, left[0].last)
            except FileNotFoundError:
                if left[0] in missing:
                    raise
                missing.add(left[0])
                found = self._archive.parts_in(self._place, self._partition)
                self._parts = [stored.part for stored in found]

    def _of_file(self, path: str) -> Iterator[RawRecord]:
        with self._archive.opened(path) as file:
            for record in records_of(self._place.topic, self._partition, self._tables(file, path)):
                self._done = record.offset
                yield record

    def _tables(self, file: pq.ParquetFile, path: str) -> Iterator[pa.Table]:
        names = file.schema_arrow.names
        if not {"offset", "timestamp"} <= set(names):
            raise BadInput(f"{path}: has no columns `offset` and `timestamp`: nothing that the archive wrote")
        columns = [name for name in names if name in self._columns]
        after = self._done
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            if not spans(group, "timestamp", *self._span):
                continue
            table = file.read_row_group(number, columns=columns)
            millis = table["timestamp"].cast(pa.int64())
            wanted = pc.and_(
                pc.greater(table["offset"], after),
                pc.and_(pc.greater_equal(millis, self._span.begin), pc.less(millis, self._span.end)),
            )
            yield table if pc.all(wanted).as_py() else table.filter(wanted)


def _by_offset(directories: Iterable[_Directory]) -> Iterator[RawRecord]:
    """Records of a partition by offset; a directory is opened when its first record may be next."""
    waiting = sorted(
        (d for d in directories if d.first is not None), key=lambda d: d.first or 0, reverse=True
    )
    heads: list[tuple[int, int, RawRecord, Iterator[RawRecord]]] = []
    opened = 0
    while waiting or heads:
        while waiting and (not heads or (waiting[-1].first or 0) <= heads[0][0]):
            opened += 1
            _push(heads, opened, waiting.pop().records())
        if heads:
            _, number, record, rest = heapq.heappop(heads)
            yield record
            _push(heads, number, rest)


def _push(
    heads: list[tuple[int, int, RawRecord, Iterator[RawRecord]]], number: int, records: Iterator[RawRecord]
) -> None:
    record = next(records, None)
    if record is not None:
        heapq.heappush(heads, (record.offset, number, record, records))
