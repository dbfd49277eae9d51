"""Topics under a prefix of their own on the shared broker."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import NewTopic
from aiokafka.errors import KafkaError

from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.topics import Topic
from tests.testbed.waiting import eventually


async def with_topics(bootstrap: str, *topics: Topic, partitions: int = 2) -> KafkaSettings:
    """Make the topics and wait for their leaders; the settings carry the prefix."""
    settings = KafkaSettings(
        bootstrap=bootstrap,
        topic_prefix=f"t{uuid.uuid4().hex[:8]}.",
        cluster_partitions=partitions,
        session_timeout_ms=3000,
        replication_factor=1,
        min_insync_replicas=1,
    )
    names = [clients.topic_name(settings, topic) for topic in topics]
    admin = await clients.started(clients.admin(settings), settings)
    try:
        await admin.create_topics([NewTopic(name, partitions, 1) for name in names])
        await eventually(
            lambda: _led(settings, names, partitions), "every partition has a leader", timeout_s=90
        )
    finally:
        await admin.close()
    return settings


async def _led(settings: KafkaSettings, names: list[str], partitions: int) -> bool:
    reader: AIOKafkaConsumer = await clients.started(clients.consumer(settings, group=None), settings)
    try:
        wanted = [TopicPartition(name, p) for name in names for p in range(partitions)]
        return len(await reader.end_offsets(wanted)) == len(wanted)
    except KafkaError:
        return False
    finally:
        await reader.stop()


async def committed(settings: KafkaSettings, topic: Topic, partition: int) -> list[tuple[str, bytes | None]]:
    """Every record of one partition that can be read as committed by now, as key and value."""
    return _told(await committed_records(settings, topic, partition))


async def settled(settings: KafkaSettings, topic: Topic, partition: int) -> list[tuple[str, bytes | None]]:
    """Every committed record of one partition once each transaction has ended that has written there, as key and value.

    The broker answers a commit before it can be read, and then lets it be read in one partition after another. So whoever
    knows of a commit, be it from another topic, has to wait for it here. Not while the owner of an open transaction is
    dead: nobody ends that before a successor does.
    """
    place = TopicPartition(clients.topic_name(settings, topic), partition)
    looker: AIOKafkaConsumer = clients.consumer(settings, group=None, read_committed=False)
    await clients.started(looker, settings)
    try:
        end = (await looker.end_offsets([place]))[place]
    finally:
        await looker.stop()
    async with asyncio.timeout(60):
        return _told(await committed_records(settings, topic, partition, end))


async def committed_records(
    settings: KafkaSettings, topic: Topic, partition: int, end: int | None = None
) -> list[ConsumerRecord[bytes, bytes]]:
    """Every committed record of one partition, up to `end` or to what can be read as committed by now."""
    reader: AIOKafkaConsumer = await clients.started(clients.consumer(settings, group=None), settings)
    where = TopicPartition(clients.topic_name(settings, topic), partition)
    found: list[ConsumerRecord[bytes, bytes]] = []
    try:
        reader.assign([where])
        await reader.seek_to_beginning(where)
        if end is None:
            end = (await reader.end_offsets([where]))[where]
        while await reader.position(where) < end:
            found += (await reader.getmany(where, timeout_ms=200)).get(where, [])
        return found
    finally:
        await reader.stop()


def _told(records: Sequence[ConsumerRecord[bytes, bytes]]) -> list[tuple[str, bytes | None]]:
    return [(record.key.decode(), record.value) for record in records]


async def write(
    settings: KafkaSettings,
    topic: Topic,
    partition: int,
    *records: tuple[str, bytes | None],
    headers: Sequence[tuple[str, bytes]] = (),
) -> None:
    """Write plain records, as another process would."""
    producer: AIOKafkaProducer = await clients.started(clients.producer(settings), settings)
    try:
        for key, value in records:
            await producer.send_and_wait(
                clients.topic_name(settings, topic),
                key=key.encode(),
                value=value,
                partition=partition,
                headers=list(headers),
            )
    finally:
        await producer.stop()
