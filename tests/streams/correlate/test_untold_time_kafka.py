"""On a real broker, with a correlator that tells the time once and then not for an hour: what is decisive needs no tick."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaProducer, TopicPartition

from streams.kafka import clients, provisioning
from streams.kafka.topics import SIGNALS, TICKS, partition_of
from streams.model.codec import encode
from streams.model.incident import Incident
from streams.model.signal import Signal, SignalBatch
from tests.streams.correlate.emitter import Stage, present, stage
from tests.streams.correlate.world import CLUSTER, FOUR, cluster, job, run, xid
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.kafka

HOUR_S = 3600.0


@pytest_asyncio.fixture
async def scene(kafka: Kafka, tmp_path: Path) -> AsyncIterator[Stage]:
    settings = kafka.settings("untold", session_timeout_ms=6000)
    await provisioning.apply(settings)
    with present():
        async with stage(settings, tmp_path) as found:
            yield found


@asynccontextmanager
async def transactions(scene: Stage) -> AsyncIterator[AIOKafkaProducer]:
    """A producer that writes as the responder does."""
    producer = clients.producer(scene.settings, transactional_id="a-responder")
    await clients.started(producer, scene.settings)
    try:
        yield producer
    finally:
        await producer.stop()


async def say(producer: AIOKafkaProducer, scene: Stage, told: Signal) -> None:
    """Write a signal into the transaction that is open."""
    value = encode(SignalBatch(CLUSTER, (told,)))
    partition = partition_of(CLUSTER, scene.settings.cluster_partitions)
    name = clients.topic_name(scene.settings, SIGNALS)
    await producer.send_and_wait(name, value, key=CLUSTER.encode(), partition=partition)


async def ticks(scene: Stage) -> list[int]:
    """How often the time was told, by partition."""
    name = clients.topic_name(scene.settings, TICKS)
    places = [TopicPartition(name, number) for number in range(scene.settings.cluster_partitions)]
    ends = await scene.reader.end_offsets(places)
    return [ends[place] for place in places]


async def opened(scene: Stage, node: str) -> Incident:
    """The first revision of the node's incident."""

    async def told() -> Incident | None:
        await scene.read()
        return next((i for i in scene.published if i.root.node == node and i.revision == 1), None)

    return await eventually(told, f"an incident of {node}", timeout_s=60)


async def test_decisive_lines_need_no_tick_also_where_transactions_of_others_lie_around_them(
    scene: Stage,
) -> None:
    await scene.tell(*cluster({"llama": FOUR}))
    async with transactions(scene) as other:
        with scene.correlator(tick_s=HOUR_S):

            async def is_at_work() -> bool:
                return all(await ticks(scene))

            await eventually(is_at_work, "the correlator works")
            told = await ticks(scene)
            await scene.see(xid("n1", 79, 0))
            assert (await opened(scene, "n1")).jobs == (job("llama"),)
            # The transaction is not over when the line is read: its marker comes to lie behind it.
            await other.begin_transaction()
            await say(other, scene, run("started", "inc-of-others", 1))
            await scene.see(xid("n2", 79, 2))
            await other.commit_transaction()
            await opened(scene, "n2")
            # The same with a record of it before the marker, and one transaction before and one after.
            await other.begin_transaction()
            await say(other, scene, run("step_done", "inc-of-others", 3))
            await scene.see(xid("n3", 79, 4))
            await say(other, scene, run("step_done", "inc-of-others", 5))
            await other.commit_transaction()
            await opened(scene, "n3")
            assert await ticks(scene) == told
