"""The archive process on a real broker: killed at every point, killed at any time, frozen while another one takes over."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from faultline.archive.folder import Archive
from faultline.archive.merge import merge
from faultline.archive.reader import ArchivedRecords
from faultline.archive.rows import TOPICS
from streams.kafka.topics import INVENTORY, SIGNALS, partition_of
from streams.model.clock import to_millis
from streams.model.crash_points import (
    ARCHIVE_COMMITTED,
    ARCHIVE_FILE_IN_PLACE,
    ARCHIVE_FILE_WRITTEN,
    ARCHIVE_MERGED,
)
from streams.model.record import RawRecord
from tests.faultline.archive.documents import CLUSTER, T0, batch, node, one_of_each, xid
from tests.testbed.children import Child
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually
from tests.tiers import sample

pytestmark = pytest.mark.kafka

PARTITIONS = 2
HOUR = timedelta(hours=1)
POINTS = (ARCHIVE_FILE_WRITTEN, ARCHIVE_FILE_IN_PLACE, ARCHIVE_COMMITTED, ARCHIVE_MERGED)


@dataclass
class World:
    """Topics of a broker, what was published in them, and an archive."""

    bootstrap: str
    prefix: str
    producer: AIOKafkaProducer
    folder: Path
    sent: dict[str, list[bytes | None]] = field(default_factory=dict)
    started: int = 0

    @property
    def archive(self) -> Archive:
        return Archive.at(str(self.folder / "archive"))

    async def publish(self, records: Sequence[RawRecord]) -> None:
        for record in records:
            await self.producer.send_and_wait(
                self.prefix + record.topic,
                record.value,
                key=record.key,
                partition=partition_of(CLUSTER, PARTITIONS),
                timestamp_ms=to_millis(record.timestamp),
            )
            self.sent.setdefault(record.topic, []).append(record.value)

    @contextmanager
    def archiver(self, **wishes: object) -> Iterator[Child]:
        self.started += 1
        said: dict[str, Any] = {
            "bootstrap": self.bootstrap,
            "prefix": self.prefix,
            "partitions": PARTITIONS,
            "url": self.archive.url,
        }
        command = [sys.executable, "-m", "tests.faultline.archive.archive_process", json.dumps(said | wishes)]
        child = Child("archive", command, log=self.folder / f"archive-{self.started}.log")
        try:
            yield child
        finally:
            child.signal(signal.SIGCONT)
            child.kill()

    def archived(self) -> dict[str, list[bytes | None]]:
        """The values in the archive, of each topic by offset."""
        found = {}
        for topic in TOPICS:
            records = ArchivedRecords(self.archive, topic.name, CLUSTER, None, None)
            if values := [record.value for record in records.of(partition_of(CLUSTER, PARTITIONS))]:
                found[topic.name] = values
        return found

    async def see(self, condition: Callable[[], object], what: str) -> None:
        async def is_so() -> bool:
            return bool(await asyncio.to_thread(condition))

        try:
            await eventually(is_so, what, timeout_s=120)
        except TimeoutError as late:
            logs = "\n".join(p.read_text()[-3000:] for p in sorted(self.folder.glob("archive-*.log")))
            raise AssertionError(f"{late}; {logs}") from late

    async def is_archived(self) -> None:
        """Wait until all that was sent is there, and check that it is there once."""

        def counts() -> dict[str, int]:
            return {name: len(values) for name, values in self.archived().items()}

        wanted = {name: len(values) for name, values in self.sent.items()}
        await self.see(lambda: counts() == wanted, f"{wanted} are archived")
        assert self.archived() == self.sent


@pytest.fixture
async def world(kafka: Kafka, tmp_path: Path) -> AsyncIterator[World]:
    prefix = f"archive-{uuid.uuid4().hex[:8]}."
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    names = [prefix + topic.name for topic in TOPICS]
    # The broker's own limits would delete records with times of long ago while the test runs.
    kept = {"retention.ms": "-1"}
    await admin.create_topics([NewTopic(name, PARTITIONS, 1, topic_configs=kept) for name in names])

    async def have_leaders() -> bool:
        return all(p["leader"] >= 0 for t in await admin.describe_topics(names) for p in t["partitions"])

    await eventually(have_leaders, "the topics have leaders")
    await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap)
    await producer.start()
    yield World(kafka.bootstrap, prefix, producer, tmp_path)
    await producer.stop()


def days(count: int, first: int = 0) -> list[RawRecord]:
    """Signals over some days, every third of them late by one."""
    return [
        batch(n, xid(2 * n), xid(2 * n + 1), at=T0 + 3 * n * HOUR - (n % 3 == 2) * 24 * HOUR)
        for n in range(first, first + count)
    ]


@pytest.mark.parametrize("label", sample(POINTS, ARCHIVE_FILE_WRITTEN, ARCHIVE_FILE_IN_PLACE))
@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.nightly)])
async def test_killed_at_any_point_it_loses_and_doubles_nothing(world: World, label: str, times: int) -> None:
    await world.publish([*one_of_each(), *days(20, first=1)])
    if label == ARCHIVE_MERGED:  # there must be something to merge
        with world.archiver():
            await world.is_archived()
        await world.publish(days(20, first=1))
        with world.archiver():
            await world.is_archived()
    with world.archiver(die_at=label, times=times) as dying:
        await world.see(lambda: dying.exit_code == -signal.SIGKILL, f"dies at {label}")
    await world.publish([*days(5, first=21), node(1, "gpu-0009")])
    with world.archiver():
        await world.is_archived()


async def test_killed_again_and_again_while_records_arrive_each_is_archived_once(world: World) -> None:
    chance = random.Random(7)
    for turn in range(6):
        with world.archiver() as dying:
            await world.see(lambda d=dying: "partitions assigned" in d.log.read_text(), "reads")  # type: ignore[misc]
            for _ in range(chance.randrange(1, 6)):
                await world.publish(days(chance.randrange(1, 10), first=turn * 100))
            dying.kill()
    with world.archiver():
        await world.is_archived()


async def test_one_that_was_frozen_before_its_file_had_a_name_doubles_nothing(world: World) -> None:
    await world.publish(days(12))
    with world.archiver(freeze_at=ARCHIVE_FILE_WRITTEN) as frozen:
        await world.see(lambda: frozen.is_stopped, "is frozen")
        await world.publish(days(3, first=12))
        with world.archiver():
            await world.is_archived()
            files = len(world.archive.parts(SIGNALS.name))
            frozen.signal(signal.SIGCONT)
            await world.see(
                lambda: "partition lost" in frozen.log.read_text(), "knows that it lost the partition"
            )
            await world.publish([*days(3, first=15), node(0, "gpu-1")])
            await world.is_archived()
    for place in {one.part.place for one in world.archive.parts(SIGNALS.name)}:
        merge(world.archive, place, partition_of(CLUSTER, PARTITIONS))
    assert world.archived() == world.sent
    assert len(world.archive.parts(SIGNALS.name)) <= files + 6
    assert world.archive.parts(INVENTORY.name)
