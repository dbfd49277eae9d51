"""The archive process: reads what the other processes publish and writes it to Parquet, each record once.

A partition's offset is committed after its files are in place. What a crash lets it read again is known by its offset from the
names of the files (`pending`). Before it writes, the broker is asked, by a commit of what is written, whether the partition is
still owned: a process that lost it writes nothing more of it. One that was frozen between that answer and the file's name leaves
a file whose records another one has written as well; readers take each offset once, and the next merge deletes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError

from faultline.archive.folder import Archive, Place
from faultline.archive.merge import MOST_FILES, merge
from faultline.archive.pending import PendingRows
from faultline.archive.rows import TOPICS
from faultline.archive.upkeep import keep_up
from streams.config.archive_settings import ArchiveSettings
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.consumer_lag import ConsumerLag
from streams.model.clock import Clock, utc_now
from streams.model.crash_points import ARCHIVE_COMMITTED, CrashHook, ignore
from streams.model.errors import BadInput, ConfigError, Unreachable
from streams.model.pulse import PARTITIONS, Pulse
from streams.telemetry import metrics as shown
from streams.telemetry.registry import Metrics

log = structlog.get_logger(__name__)

PROCESS = "archive"
UPKEEP_S = 3600.0
"""How often days that are over are looked through."""
RETRY_S = 5.0
"""How long to wait while the archive does not answer."""
_POLL_RECORDS = 50
"""A record of signals holds up to 500 of them."""
_MOST_BYTES = 64 * 1024 * 1024
"""What is held unwritten at most, in bytes of values, however few rows that is."""
_LOST = (CommitFailedError, IllegalStateError)
"""What a commit raises when the partition belongs to somebody else."""


class Archiver(ConsumerRebalanceListener):  # type: ignore[misc]
    """The archive process. `run` until cancelled; what is unwritten then is read again by the next one."""

    def __init__(
        self,
        kafka: KafkaSettings,
        settings: ArchiveSettings,
        *,
        clock: Clock = utc_now,
        at: CrashHook = ignore,
        pulse: Pulse | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._kafka = kafka
        self._settings = settings
        self._archive = Archive.at(settings.url or "")
        self._clock = clock
        self._at = at
        self._pulse = pulse or Pulse()
        self._metrics = metrics or Metrics(PROCESS)
        self._is_away = False
        self._written_ms: dict[TopicPartition, int] = {}
        self._lag = ConsumerLag(
            kafka,
            self._metrics,
            self._pulse,
            written_ms=self._written_ms.get,
            waits=lambda place: self._is_away,
        )
        self._topics = {clients.topic_name(kafka, topic): topic for topic in TOPICS}
        for topic in TOPICS:
            self._metrics.begin(shown.RECORDS, topic.name)
            self._metrics.begin(shown.ARCHIVE_ROWS, topic.name)
        self._pending: dict[TopicPartition, PendingRows] = {}
        self._written: dict[TopicPartition, dict[Place, int]] = {}
        self._upkeep_at_s = 0.0

    async def run(self) -> NoReturn:
        """Read and write.

        Raises:
            Unreachable: when no broker answers.
            ConfigError: when the archive is of other topics.
        """
        client = clients.consumer(self._kafka, group=PROCESS, fetch_max_wait_ms=500)
        clients.subscribe(client, self._topics, self)
        self._pulse.lag = lambda: clients.lag(client)
        with self._pulse.waiting(PARTITIONS):
            await clients.started(client, self._kafka)
        self._lag.consumer = client
        try:
            while True:
                try:
                    await self._step(client)
                    self._is_away = False
                except Unreachable as error:
                    self._is_away = True
                    # Nothing is read meanwhile, so what is held does not grow.
                    log.warning("the archive does not answer", reason=str(error))
                    self._pulse.ready(False)
                    self._pulse.state("archive", str(error))
                    await asyncio.sleep(RETRY_S)
                clients.honour_cancellation()
        finally:
            await clients.stopped(client)

    async def _step(self, client: AIOKafkaConsumer) -> None:
        due = self._due()
        if not due:
            batches = await client.getmany(timeout_ms=500, max_records=_POLL_RECORDS)
            for place, records in batches.items():
                self._take(place, records)
        for place in due:
            await self._write(client, place)
        if self._now_s() >= (due_s := self._upkeep_at_s):
            await self._keep_up(client)
            # Else partitions were assigned meanwhile, and are looked after at once.
            if self._upkeep_at_s == due_s:
                self._upkeep_at_s = self._now_s() + UPKEEP_S
        self._pulse.state("archive", None)
        self._pulse.ready(bool(client.assignment()))

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Drop what is unwritten: the next owner reads it again from the committed offset."""
        self._pending.clear()
        self._written.clear()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Begin anew; positions are those that are committed."""
        self._upkeep_at_s = self._now_s()
        self._pending.clear()
        self._written.clear()

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def _take(self, place: TopicPartition, records: list[ConsumerRecord[bytes, bytes]]) -> None:
        if not records:
            return
        name = self._topics[place.topic].name
        pending = self._pending.get(place)
        if pending is None:
            pending = PendingRows(name, place.partition, records[0].offset, self._now_s())
            self._pending[place] = pending
        for record in records:
            pending.take(clients.raw_record(record, name))
        self._pulse.count("records", len(records))
        self._written_ms[place] = records[-1].timestamp
        self._metrics.add(shown.RECORDS, len(records), name, "handled")

    def _due(self) -> list[TopicPartition]:
        """What must be written now: what is old enough, and the largest while too much is held."""
        oldest_s = self._now_s() - self._settings.flush_s
        due = [place for place, pending in self._pending.items() if pending.since_s <= oldest_s]
        left = {place: pending for place, pending in self._pending.items() if place not in due}
        while left and (
            sum(one.rows for one in left.values()) >= self._settings.flush_rows
            or sum(one.bytes for one in left.values()) >= _MOST_BYTES
        ):
            largest = max(left, key=lambda place: left[place].bytes)
            due.append(largest)
            del left[largest]
        return due

    async def _write(self, client: AIOKafkaConsumer, place: TopicPartition) -> None:
        """Write what is pending of a partition and commit it, unless the partition is lost."""
        pending = self._pending.get(place)
        if pending is None:  # a rebalance came in between
            return
        written = self._written.setdefault(place, {})
        try:
            await client.commit({place: pending.start})
            end = max(pending.next, client.highwater(place) or 0)
            try:
                files = await asyncio.to_thread(pending.write, self._archive, written, end, self._at)
            except ConfigError:
                # There are records behind the end as it was known: those of the next owner, where this process was frozen.
                await client.commit({place: pending.start})
                end = (await client.end_offsets([place]))[place]
                files = await asyncio.to_thread(pending.write, self._archive, written, end, self._at)
            await client.commit({place: pending.next})
        except _LOST as error:
            log.warning("partition lost", topic=place.topic, partition=place.partition, reason=str(error))
            self._drop(place, pending)
            return
        self._at(ARCHIVE_COMMITTED)
        self._drop(place, pending)
        self._pulse.count("rows", pending.rows)
        self._metrics.add(shown.ARCHIVE_ROWS, pending.rows, self._topics[place.topic].name)
        self._pulse.count("files", len(files))
        for part in files:
            await self._tidy(
                merge, self._archive, part.place, part.partition, most_files=MOST_FILES, at=self._at
            )

    def _drop(self, place: TopicPartition, pending: PendingRows) -> None:
        if self._pending.get(place) is pending:
            del self._pending[place]

    async def _keep_up(self, client: AIOKafkaConsumer) -> None:
        """Look after the files of every partition that is owned."""
        fewer = 0
        for place in sorted(client.assignment()):
            fewer += await self._tidy(
                keep_up,
                self._archive,
                self._topics[place.topic],
                place.partition,
                self._clock(),
                keep_days=self._settings.keep_days,
                beat=self._pulse.beat,
                at=self._at,
            )
        if fewer:
            log.info("files merged or deleted", files=fewer)

    async def _tidy(self, work: Callable[..., int], *args: Any, **more: Any) -> int:
        """Do something for the files that can wait: one that is not readable keeps nothing else from being written."""
        try:
            return await asyncio.to_thread(work, *args, **more)
        except BadInput as error:
            log.error("a file of the archive is not readable", reason=str(error))
            return 0
