"""A broker's topics with a writer and a reader, and correlators as child processes."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.dead_letters import why_buried
from streams.kafka.topics import (
    DEAD_LETTERS,
    INCIDENTS,
    INVENTORY,
    SIGNALS,
    TICKS,
    TIMELINE,
    Topic,
    partition_of,
)
from streams.model.clock import to_millis
from streams.model.codec import decode, encode
from streams.model.conversation import DeadLetter, TimelineEntry
from streams.model.facts import Fact, FactRecord
from streams.model.incident import Incident
from streams.model.signal import Signal, SignalBatch
from tests.streams.correlate import world
from tests.testbed.children import Child
from tests.testbed.waiting import eventually


@dataclass
class Stage:
    """What the other processes would write, and what they would read."""

    settings: KafkaSettings
    writer: AIOKafkaProducer
    reader: AIOKafkaConsumer
    folder: Path
    published: list[Incident] = field(default_factory=list)
    buried: list[DeadLetter] = field(default_factory=list)
    timeline: list[tuple[str, TimelineEntry]] = field(default_factory=list)
    """With the keys of the records."""
    started: int = 0

    async def tell(self, *facts: Fact) -> None:
        """Write facts."""
        for fact in facts:
            await self.write(INVENTORY, fact.cluster, encode(FactRecord(fact)), key=fact.key)

    async def see(self, *signals: Signal, at: datetime | None = None) -> None:
        """Write signals of one cluster as a batch, now or as if it had been written then."""
        cluster = signals[0].entity.cluster
        await self.write(SIGNALS, cluster, encode(SignalBatch(cluster, signals)), key=cluster, at=at)

    async def write(
        self, topic: Topic, cluster: str, value: bytes | None, *, key: str, at: datetime | None = None
    ) -> None:
        """Write one record where the cluster's belong."""
        partition = partition_of(cluster, self.settings.cluster_partitions)
        await self.writer.send_and_wait(
            clients.topic_name(self.settings, topic),
            value,
            key=key.encode(),
            partition=partition,
            timestamp_ms=None if at is None else to_millis(at),
        )

    async def read(self) -> None:
        """Take in what was published since."""
        for records in (await self.reader.getmany(timeout_ms=100)).values():
            for record in records:
                if record.topic.endswith(INCIDENTS.name):
                    self.published.append(decode(Incident, record.value))
                elif record.topic.endswith(DEAD_LETTERS.name):
                    self.buried.append(why_buried(record.headers))
                else:
                    self.timeline.append((record.key.decode(), decode(TimelineEntry, record.value)))

    async def latest(self) -> dict[str, Incident]:
        """The latest revision of every incident."""
        await self.read()
        return {i.id: i for i in self.published}

    async def ticked(self, times: int) -> None:
        """Wait until some correlator has told the time so often from now on: it does while it works."""
        begun = await self.end(TICKS)

        async def enough() -> bool:
            return await self.end(TICKS) >= begun + times

        await eventually(enough, f"{times} ticks")

    async def end(self, topic: Topic) -> int:
        """How many records were ever written to a topic."""
        name = clients.topic_name(self.settings, topic)
        parts = [TopicPartition(name, p) for p in range(self.settings.cluster_partitions)]
        return sum((await self.reader.end_offsets(parts)).values())

    @contextmanager
    def correlator(self, **wishes: object) -> Iterator[Child]:
        """Run one correlator."""
        self.started += 1
        said = {"kafka": self.settings.model_dump(mode="json", exclude_defaults=True)} | wishes
        command = [sys.executable, "-m", "tests.streams.correlate.correlator_process", json.dumps(said)]
        child = Child("correlator", command, log=self.folder / f"correlator-{self.started}.log")
        try:
            yield child
        finally:
            child.kill()


@asynccontextmanager
async def stage(settings: KafkaSettings, folder: Path) -> AsyncIterator[Stage]:
    """A writer and a reader on these topics, with the stories' clock set to now."""
    writer = await clients.started(clients.producer(settings), settings)
    reader = clients.consumer(settings, group=None, fetch_max_wait_ms=100)
    names = [clients.topic_name(settings, topic) for topic in (INCIDENTS, TIMELINE, DEAD_LETTERS)]
    reader.subscribe(names)
    await clients.started(reader, settings)
    try:
        yield Stage(settings, writer, reader, folder)
    finally:
        await reader.stop()
        await writer.stop()


@contextmanager
def present() -> Iterator[None]:
    """Let stories begin ten minutes ago, for processes that live in the real time."""
    before = world.START
    world.START = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=11)
    try:
        yield
    finally:
        world.START = before
