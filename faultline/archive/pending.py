"""Records of one partition that are not written yet, and how they are written.

A partition's records are written in the order of their offsets, all that are pending at a time. So for each directory the last
offset in the names of its files says what it holds: everything up to there. What is read again after a crash is left out by that,
and no other bookkeeping is needed: offsets are committed after the files are in place, and may be lost.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from faultline.archive.folder import Archive, Part, Place
from faultline.archive.parquet import encoded
from faultline.archive.rows import SCHEMA, Row, entry_of, table_of
from streams.model.clock import from_millis, to_millis
from streams.model.crash_points import ARCHIVE_FILE_IN_PLACE, ARCHIVE_FILE_WRITTEN, CrashHook, ignore
from streams.model.errors import ConfigError
from streams.model.record import RawRecord

_LAST_MILLIS = 253_402_300_799_999
"""The end of the year 9999: a record's timestamp is whatever its producer set."""

_AS_COLUMNS = 1_000
"""Rows that are held as they are before they become columns."""
_LONGEST_NAME = 120
"""Of a cluster, as settings take it; a longer one stands in the rows, and no file system would take it escaped."""


class _Held:
    """Rows of one directory. They become columns early, which take far less memory."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._tables: list[pa.Table] = []

    def add(self, rows: list[Row]) -> None:
        """Add the next rows."""
        self._rows += rows
        if len(self._rows) >= _AS_COLUMNS:
            self._tables.append(table_of(self._rows))
            self._rows = []

    def after(self, offset: int) -> pa.Table:
        """The rows of records behind an offset."""
        found = pa.concat_tables([*self._tables, table_of(self._rows)])
        return found.filter(pc.greater(found["offset"], offset))


class PendingRows:
    """What has been read of one partition of one topic since it was last written."""

    def __init__(self, topic: str, partition: int, start: int, now_s: float) -> None:
        self.topic = topic
        self.partition = partition
        self.start = start
        """Everything before this offset is written."""
        self.next = start
        """Where to go on reading once this is written."""
        self.since_s = now_s
        """When the first of it was read, on the clock of whoever reads."""
        self.rows = 0
        self.bytes = 0
        self._by_place: dict[Place, _Held] = {}

    def take(self, record: RawRecord) -> None:
        """Take the next record."""
        cluster, rows = entry_of(record)
        millis = min(max(to_millis(record.timestamp), 0), _LAST_MILLIS)
        if cluster is not None and len(cluster) > _LONGEST_NAME:
            cluster = None
        place = Place(self.topic, from_millis(millis).date(), cluster)
        self._by_place.setdefault(place, _Held()).add(rows)
        self.next = record.offset + 1
        self.rows += len(rows)
        self.bytes += len(record.value or b"")

    def write(
        self, archive: Archive, written: dict[Place, int], end: int, at: CrashHook = ignore
    ) -> list[Part]:
        """Write it, and return the files. `written` is the last offset of each directory known so far, and is kept up to date.

        `end` is the partition's own end.

        Raises:
            Unreachable: when the archive does not answer; calling it again then is fine.
            ConfigError: when the archive holds records that this partition cannot have: of another Kafka.
        """
        files = []
        for place, held in self._by_place.items():
            if place not in written:
                written[place] = _last_offset(archive, place, self.partition)
            if written[place] >= end:
                raise ConfigError(
                    f"archive.url: {archive.url} has offset {written[place]} of {self.topic}/{self.partition}, which ends at "
                    f"{end}: it is the archive of other topics; set another folder"
                )
            new = held.after(written[place])
            if not new.num_rows:
                continue
            part = Part(place, self.partition, new["offset"][0].as_py(), new["offset"][-1].as_py())
            content = encoded(SCHEMA, [new])
            archive.put(part.path, content, written=_calling(at, ARCHIVE_FILE_WRITTEN))
            at(ARCHIVE_FILE_IN_PLACE)
            written[place] = part.last
            files.append(part)
        return files


def _calling(at: CrashHook, label: str) -> Callable[[], None]:
    return lambda: at(label)


def _last_offset(archive: Archive, place: Place, partition: int) -> int:
    """The last offset of a partition that a directory holds; -1 when it holds none."""
    return max((stored.part.last for stored in archive.parts_in(place, partition)), default=-1)
