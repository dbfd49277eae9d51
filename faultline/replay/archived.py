"""An archive as a capture: its records are read from the files when they are asked for, and never held."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterator
from datetime import datetime, timedelta
from functools import cached_property

from faultline.archive.daily_state import state_at
from faultline.archive.folder import Archive
from faultline.archive.reader import ArchivedRecords
from faultline.archive.rows import TOPICS
from faultline.replay.capture import Capture, Meta
from faultline.replay.topic_records import Batch, StoredTopic, Survey, to_micros
from streams.model.errors import BadInput
from streams.model.record import RawRecord

_BATCH_BYTES = 4 * 1024 * 1024
_BATCH_RECORDS = 5_000
_WITHOUT_VALUES = ("offset", "position", "timestamp")


def open_archive(
    url: str, cluster: str, begin: datetime, end: datetime, *, warm_up: timedelta = timedelta()
) -> Capture:
    """What an archive has of a cluster between two times. Records begin `warm_up` earlier, and with them the state of topics.

    Raises:
        ConfigError: when `url` names no place.
        Unreachable: when it does not answer; also while records are read.
        BadInput: when it has nothing of the cluster in that time.
    """
    archive, meta = Archive.at(url), Meta(cluster, begin, end, warm_up)
    topics = {topic.name: ArchivedTopic(archive, topic.name, meta) for topic in TOPICS}
    records = {name: topic for name, topic in topics.items() if topic.has_files}
    if not records:
        raise BadInput(f"{url}: the archive has nothing of cluster {cluster} from {begin} to {end}")
    state = {
        topic.name: state_at(archive, topic, cluster, meta.lead)
        for topic in TOPICS
        if topic.cleanup == "compact"
    }
    return Capture(meta, records, state={name: held for name, held in state.items() if held})


class ArchivedTopic(StoredTopic):
    """One topic of an archive between two times, in time order. No record is held."""

    def __init__(self, archive: Archive, topic: str, meta: Meta) -> None:
        self._records = ArchivedRecords(archive, topic, meta.cluster, meta.lead, meta.end)

    @property
    def has_files(self) -> bool:
        """Whether there are files of these days at all."""
        return bool(self._records.partitions)

    @property
    def must_be_sorted(self) -> bool:
        """Never: the archive keeps the order of offsets."""
        return False

    @cached_property
    def survey(self) -> Survey:
        """Where its records begin and end. Values are not read for that, so all weigh the same."""
        survey = Survey()
        for time, record in self._in_time_order(self._records.partitions, values=False):
            survey.first = time if survey.first is None else survey.first
            survey.last = time
            survey.records += 1
            survey.weights[record.partition] += 1
        return survey

    def __iter__(self) -> Iterator[RawRecord]:
        return (record for _, record in self._in_time_order(self._records.partitions))

    def __len__(self) -> int:
        return self.survey.records

    def batches(self, only: Container[int] | None = None) -> Iterator[Batch]:
        """All of them, or those of some partitions."""
        partitions = [one for one in self._records.partitions if only is None or one in only]
        batch: list[RawRecord] = []
        size = 0
        for _, record in self._in_time_order(partitions):
            batch.append(record)
            size += len(record.value or b"")
            if size >= _BATCH_BYTES or len(batch) >= _BATCH_RECORDS:
                yield _batch(batch)
                batch, size = [], 0
        if batch:
            yield _batch(batch)

    def where(self, record: RawRecord) -> str:
        """The archive and the record's coordinates."""
        return f"{self._records.archive.url}: {record.coordinates}"

    def _in_time_order(
        self, partitions: list[int], *, values: bool = True
    ) -> Iterator[tuple[int, RawRecord]]:
        """Time (µs) and record. Within a partition offsets keep their order, and time does not run backwards."""
        streams = [self._timed(partition, values) for partition in partitions]
        if len(streams) == 1:
            return streams[0]
        return heapq.merge(*streams, key=lambda one: (one[0], one[1].partition, one[1].offset))

    def _timed(self, partition: int, values: bool) -> Iterator[tuple[int, RawRecord]]:
        latest = 0
        records = (
            self._records.of(partition) if values else self._records.of(partition, columns=_WITHOUT_VALUES)
        )
        for record in records:
            latest = max(latest, to_micros(record.timestamp))
            yield latest, record


def _batch(records: list[RawRecord]) -> Batch:
    return Batch(
        [record.partition for record in records],
        [to_micros(record.timestamp) for record in records],
        [record.value or b"" for record in records],
        records.__getitem__,
    )
