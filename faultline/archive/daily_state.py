"""What compacted topics held at the beginning of a day: the latest record of each key, and which records it is made of.

It spares a reader months of records. It is made of the files alone, and says of each directory up to which offset it has read
it: what comes later, however late, is read besides. So it is right whenever it was made, and may be deleted.

    state/TOPIC/day=YYYY-MM-DD/cluster=NAME/part-PARTITION.parquet
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

import orjson

from faultline.archive.folder import Archive, Place, StatePart, place_of
from faultline.archive.parquet import encoded
from faultline.archive.reader import ArchivedRecords
from faultline.archive.rows import SCHEMA, STORED, entry_of, records_of, table_of
from streams.kafka.topics import Topic
from streams.model.record import RawRecord

_READ = b"faultline.read"
_TOMBSTONES_KEPT = timedelta(days=2)
"""As long as that a deletion may be needed: a record with a lower offset that is written later, in another day's directory."""

_BEAT_RECORDS = 10_000

Latest = dict[bytes | None, RawRecord]
"""The latest record of each key; tombstones are still in it."""


class _Known(NamedTuple):
    latest: Latest
    read: dict[Place, int]
    """The last offset of each directory that it is made of."""


def state_at(archive: Archive, topic: Topic, cluster: str, at: datetime) -> list[RawRecord]:
    """The latest record of each key before a time, without those that were deleted by then, by partition and offset.

    Raises:
        Unreachable: when the archive does not answer.
    """
    records = ArchivedRecords(archive, topic.name, cluster, None, at)
    parts = _newest(archive, topic.name, cluster, at.date())
    found: list[RawRecord] = []
    for partition in sorted({*records.partitions, *parts}):
        latest = _brought_up(archive, records, partition, parts.get(partition)).latest
        found += (record for record in latest.values() if record.value is not None)
    return sorted(found, key=lambda record: (record.partition, record.offset))


def write_daily_state(
    archive: Archive,
    topic: Topic,
    cluster: str,
    partition: int,
    day: date,
    beat: Callable[[], None] = lambda: None,
) -> bool:
    """Write what a partition held of a cluster when a day began, if that is not there yet; returns whether it was written.

    `beat` is called now and then: without earlier states all records are read.

    Raises:
        Unreachable: when the archive does not answer.
    """
    part = StatePart(Place(topic.name, day, cluster), partition)
    newest = _newest(archive, topic.name, cluster, day).get(partition)
    if newest == part:
        return False
    begin = datetime.combine(day, time(), UTC)
    records = ArchivedRecords(archive, topic.name, cluster, None, begin)
    known = _brought_up(archive, records, partition, newest, beat)
    since = begin - _TOMBSTONES_KEPT
    kept = [one for one in known.latest.values() if one.value is not None or one.timestamp >= since]
    rows = [row for record in kept for row in entry_of(record).rows]
    read = {place.path: offset for place, offset in known.read.items()}
    schema = SCHEMA.with_metadata({_READ: orjson.dumps(read)})
    archive.put(part.path, encoded(schema, [table_of(rows).cast(schema)]))
    return True


def _newest(archive: Archive, topic: str, cluster: str, until: date) -> dict[int, StatePart]:
    """The newest state of each partition that is not younger than a day."""
    states = [
        part for part in archive.states(topic) if part.place.cluster == cluster and part.place.day <= until
    ]
    return {part.partition: part for part in sorted(states, key=lambda part: part.place.day)}


def _brought_up(
    archive: Archive,
    records: ArchivedRecords,
    partition: int,
    newest: StatePart | None,
    beat: Callable[[], None] = lambda: None,
) -> _Known:
    """A state with all that was written since."""
    known = _read(archive, newest) if newest is not None else _Known({}, {})
    for number, record in enumerate(records.of(partition, after=known.read)):
        if number % _BEAT_RECORDS == 0:
            beat()
        before = known.latest.get(record.key)
        if before is None or before.offset < record.offset:
            known.latest[record.key] = record
    known.read.update(records.last_offsets(partition))
    return known


def _read(archive: Archive, part: StatePart) -> _Known:
    with archive.opened(part.path) as file:
        read = orjson.loads(file.schema_arrow.metadata[_READ])
        tables = (file.read_row_group(number, columns=STORED) for number in range(file.num_row_groups))
        latest = {one.key: one for one in records_of(part.place.topic, part.partition, tables)}
    places = {place.path: place for place in map(place_of, read) if place is not None}
    return _Known(latest, {place: read[path] for path, place in places.items()})
