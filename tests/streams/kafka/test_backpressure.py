"""What waits to be handled is bounded by its bytes, for each partition by itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from faust.types import TP

from streams.config.settings import KafkaSettings
from streams.correlate.faust_app import build_app
from streams.kafka import clients, provisioning
from streams.kafka.backpressure import MAX_BYTES, FetchedBytes
from streams.kafka.topics import SIGNALS, TICKS
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

SIZE, COUNT = 50_000, 300
FETCH_BYTES = 1024 * 1024
"""What Faust asks for at once."""

LONG = TP(SIGNALS.name, 0)
IDLE = TP(TICKS.name, 1)


@pytest_asyncio.fixture
async def settings(kafka: Kafka) -> KafkaSettings:
    settings = kafka.settings("pressure")
    await provisioning.apply(settings)
    writer = await clients.started(clients.producer(settings), settings)
    name = clients.topic_name(settings, SIGNALS)
    for number in range(COUNT):
        await writer.send(name, b"%d" % number + bytes(SIZE), partition=0)
    await writer.stop()
    return settings


@pytest.mark.kafka
async def test_a_long_backlog_is_fetched_in_parts_and_holds_up_no_other_partition(
    settings: KafkaSettings,
) -> None:
    app = build_app(settings)
    long, idle = (clients.topic_name(settings, topic) for topic in (SIGNALS, TICKS))
    handed_out: Counter[str] = Counter()
    read: list[int] = []
    may_go_on = asyncio.Event()

    async def work(stream: Any) -> AsyncIterator[None]:
        stream.enable_acks = False
        async for event in stream.events():
            await may_go_on.wait()
            app.consumer.taken(event.message)  # type: ignore[attr-defined]
            if event.message.topic == long:
                read.append(event.message.offset)
            await stream.ack(event)
            yield

    source = app.topic(long, idle, key_serializer="raw", value_serializer="raw")
    app.agent(source, name="work", concurrency=1)(work)
    app.finalize()
    consumer: Any = app.consumer
    deliver = consumer.callback

    async def noted(message: Any) -> None:
        handed_out[message.topic] += 1
        await deliver(message)

    consumer.callback = noted
    await app.start()
    writer = await clients.started(clients.producer(settings), settings)
    try:

        async def enough_waits() -> bool:
            return handed_out[long] * SIZE >= MAX_BYTES

        async def the_tick_is_there() -> bool:
            return handed_out[idle] > 0

        async def everything_is_read() -> bool:
            return set(read) == set(range(COUNT))

        await eventually(enough_waits, "the backlog is begun")
        await writer.send_and_wait(idle, b"now", partition=1)
        await eventually(the_tick_is_there, "the other partition's record is there")
        assert handed_out[long] * SIZE < MAX_BYTES + 2 * FETCH_BYTES
        may_go_on.set()
        await eventually(everything_is_read, "everything is read")
    finally:
        await writer.stop()
        await app.stop()


def test_there_is_room_again_when_half_of_it_is_taken() -> None:
    waiting = FetchedBytes(limit=10_000)
    assert not waiting.put(LONG, 4_000)
    assert not waiting.put(IDLE, 4_000)
    assert waiting.put(LONG, 4_000)
    assert waiting.take(LONG, 4_000)
    assert waiting.put(LONG, 4_000)
    assert not waiting.take(LONG, 1_000)


def test_nothing_is_left_to_wait_for_after_a_rebalance() -> None:
    waiting = FetchedBytes(limit=10_000)
    assert waiting.put(LONG, 9_000)
    waiting.forget()
    assert waiting.take(LONG, 9_000)
    assert not waiting.put(LONG, 4_000)
