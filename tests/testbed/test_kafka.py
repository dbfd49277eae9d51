"""The broker is a real one: it keeps what it took, commits transactions, and fences who was replaced."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import ProducerFenced

from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

pytestmark = [pytest.mark.machinery, pytest.mark.kafka]


async def new_topic(kafka: Kafka, partitions: int = 1) -> str:
    """Make a topic and wait until each partition has a leader."""
    name = f"testbed-{uuid.uuid4().hex[:8]}"
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, partitions, 1)])

        async def has_leaders() -> bool:
            (topic,) = await admin.describe_topics([name])
            return len(topic["partitions"]) == partitions and all(
                p["leader"] >= 0 for p in topic["partitions"]
            )

        await eventually(has_leaders, f"{name} has leaders")
    finally:
        await admin.close()
    return name


@asynccontextmanager
async def producer(kafka: Kafka, transactional_id: str | None = None) -> AsyncIterator[AIOKafkaProducer]:
    client = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=transactional_id)
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def end_of_log(kafka: Kafka, partition: TopicPartition) -> int:
    """The offset after the last record, whether or not its transaction is over."""
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap)
    await consumer.start()
    try:
        return int((await consumer.end_offsets([partition]))[partition])
    finally:
        await consumer.stop()


async def values(kafka: Kafka, topic: str) -> list[bytes]:
    """Read all that a read-committed reader can see in partition 0, up to the end of the log itself.

    A commit is answered before its marker is in the log, and until then such a reader is held back.
    """
    partition = TopicPartition(topic, 0)
    end = await end_of_log(kafka, partition)
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap, isolation_level="read_committed")
    await consumer.start()
    try:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        read: list[bytes] = []
        while await consumer.position(partition) < end:
            batches = await consumer.getmany(partition, timeout_ms=200)
            read += [record.value for batch in batches.values() for record in batch]
        return read
    finally:
        await consumer.stop()


async def test_what_was_acknowledged_survives_a_crash_of_the_broker(tmp_path: Path) -> None:
    with Kafka.running(tmp_path) as kafka:
        topic = await new_topic(kafka)
        async with producer(kafka) as sender:
            await sender.send_and_wait(topic, b"before", partition=0)
        kafka.kill()
        kafka.start()
        assert await values(kafka, topic) == [b"before"]


async def test_a_transaction_is_seen_whole_or_not_at_all(kafka: Kafka) -> None:
    topic = await new_topic(kafka)
    async with producer(kafka, f"tx-{topic}") as sender:
        async with sender.transaction():
            await sender.send_and_wait(topic, b"kept", partition=0)
        await sender.begin_transaction()
        await sender.send_and_wait(topic, b"dropped", partition=0)
        await sender.abort_transaction()
    assert await values(kafka, topic) == [b"kept"]


async def test_a_replaced_producer_is_fenced_and_its_record_is_never_seen(kafka: Kafka) -> None:
    topic = await new_topic(kafka)
    async with producer(kafka, f"tx-{topic}") as old:
        await old.begin_transaction()
        await old.send_and_wait(topic, b"old, open", partition=0)
        async with producer(kafka, f"tx-{topic}") as new, new.transaction():
            await new.send_and_wait(topic, b"new", partition=0)
        with pytest.raises(ProducerFenced):
            await old.commit_transaction()
    assert await values(kafka, topic) == [b"new"]
