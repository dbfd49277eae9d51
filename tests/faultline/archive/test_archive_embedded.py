"""The archive process on the embedded broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from faultline.archive import process
from faultline.archive.folder import Archive
from faultline.archive.process import Archiver
from faultline.archive.reader import ArchivedRecords
from faultline.archive.rows import TOPICS
from sandbox.emulated import broker
from streams.config.archive_settings import ArchiveSettings
from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.topics import INVENTORY, SIGNALS, partition_of
from streams.model.clock import to_millis
from streams.model.pulse import Pulse
from streams.model.record import RawRecord
from tests.faultline.archive.documents import CLUSTER, batch, one_of_each, xid
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.embedded


@dataclass
class World:
    """Topics, and an archive."""

    kafka: KafkaSettings
    producer: AIOKafkaProducer
    archive: Archive
    pulse: Pulse

    async def publish(self, records: Iterable[RawRecord]) -> None:
        for record in records:
            await self.producer.send_and_wait(
                self.kafka.topic_prefix + record.topic,
                record.value,
                key=record.key,
                partition=self.partition,
                timestamp_ms=to_millis(record.timestamp),
                headers=record.headers,
            )

    @property
    def partition(self) -> int:
        return partition_of(CLUSTER, self.kafka.cluster_partitions)

    @asynccontextmanager
    async def archiver(self, **wishes: float) -> AsyncIterator[asyncio.Task[None]]:
        settings = ArchiveSettings.model_validate({"url": self.archive.url, "flush_s": 0.1} | wishes)
        archiver = Archiver(self.kafka, settings, pulse=self.pulse)
        task = asyncio.ensure_future(archiver.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])

    def read(self, topic: str) -> list[bytes | None]:
        records = ArchivedRecords(self.archive, topic, CLUSTER, None, None)
        return [record.value for record in records.of(self.partition)]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with broker.running(log=tmp_path / "broker.log") as embedded:
        producer = await clients.started(clients.producer(embedded.settings), embedded.settings)
        yield World(embedded.settings, producer, Archive.at(str(tmp_path / "archive")), Pulse())
        await producer.stop()


async def seen(condition: Callable[[], object], what: str) -> None:
    async def is_so() -> bool:
        return bool(await asyncio.to_thread(condition))

    await eventually(is_so, what, timeout_s=60)


async def test_what_is_published_is_archived_once_over_a_restart(world: World) -> None:
    await world.publish(one_of_each())
    async with world.archiver():
        await seen(lambda: all(world.read(topic.name) for topic in TOPICS), "every topic is archived")
        await seen(lambda: world.pulse.is_ready, "it is ready")
    more = [batch(n, xid(n)) for n in range(2, 30)]
    await world.publish(more)
    async with world.archiver():
        await seen(lambda: len(world.read(SIGNALS.name)) >= 29, "the rest is archived")
    assert world.read(SIGNALS.name) == [record.value for record in (one_of_each()[0], *more)]
    assert [world.read(topic.name) for topic in TOPICS[1:]] == [
        [record.value] for record in one_of_each()[1:]
    ]


async def test_rows_are_written_once_there_are_enough_however_young_they_are(world: World) -> None:
    await world.publish(batch(n, xid(2 * n), xid(2 * n + 1)) for n in range(10))
    async with world.archiver(flush_s=86_400, flush_rows=10):
        await seen(lambda: world.read(SIGNALS.name), "rows are archived")


async def test_while_the_archive_does_not_answer_nothing_is_lost_and_it_says_so(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "RETRY_S", 0.1)
    in_its_way = tmp_path / "archive"
    in_its_way.write_text("not a folder")
    await world.publish(one_of_each())
    async with world.archiver() as running:
        await seen(lambda: "archive" in world.pulse.states, "it says what is wrong")
        assert not world.pulse.is_ready
        assert not running.done()
        in_its_way.unlink()
        await seen(lambda: all(world.read(topic.name) for topic in TOPICS), "every topic is archived")
        await seen(lambda: world.pulse.is_ready and not world.pulse.states, "all is well")


async def test_files_of_days_that_are_over_are_looked_after_once_partitions_are_assigned(
    world: World,
) -> None:
    for record in one_of_each():
        await world.publish([record])
    async with world.archiver(keep_days=36_500):
        await seen(lambda: all(world.read(topic.name) for topic in TOPICS), "every topic is archived")
    async with world.archiver():
        await seen(lambda: world.archive.states(INVENTORY.name), "the state of today is written")
    (state,) = world.archive.states(INVENTORY.name)
    assert state.place.day == datetime.now(UTC).date()
