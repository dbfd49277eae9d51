"""Writes for those who wait: confirmed, or refused soon, and none piles up while Kafka is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka import TopicPartition

from sandbox.emulated import broker
from streams.config.settings import KafkaSettings
from streams.kafka import clients, durable_writer, provisioning
from streams.kafka.durable_writer import DurableWriter
from streams.kafka.topics import RAW_ALERTS
from streams.model.errors import Temporary, Unreachable
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

PRODUCE = 0
OUT_OF_ORDER_SEQUENCE = 45
MESSAGE_TOO_LARGE = 10


@asynccontextmanager
async def writing(settings: KafkaSettings, timeout_s: float = 5.0) -> AsyncIterator[DurableWriter]:
    writer = DurableWriter(settings, timeout_s=timeout_s)
    await writer.start()
    try:
        yield writer
    finally:
        await writer.close()


async def is_taken(writer: DurableWriter, value: bytes) -> bool:
    try:
        await writer.write(RAW_ALERTS, value)
    except Temporary:
        return False
    return True


async def written(settings: KafkaSettings) -> list[bytes]:
    client = await clients.started(clients.consumer(settings, group=None, fetch_max_wait_ms=50), settings)
    found: list[bytes] = []
    try:
        for number in range(settings.raw_partitions):
            place = TopicPartition(clients.topic_name(settings, RAW_ALERTS), number)
            async for batch in clients.batches_to_end(client, place):
                found += [record.value for record in batch if record.value is not None]
    finally:
        await client.stop()
    return found


@pytest.mark.embedded
async def test_a_record_is_where_and_under_what_it_was_said(tmp_path: Path) -> None:
    async with broker.running(log=tmp_path / "broker.log") as kafka, writing(kafka.settings) as writer:
        await writer.write(RAW_ALERTS, b"one", key=b"k", partition=lambda count: count - 1)
        client = await clients.started(clients.consumer(kafka.settings, group=None), kafka.settings)
        place = TopicPartition(RAW_ALERTS.name, kafka.settings.raw_partitions - 1)
        found = [record async for batch in clients.batches_to_end(client, place) for record in batch]
        await client.stop()
        assert [(record.key, record.value) for record in found] == [(b"k", b"one")]


@pytest.mark.embedded
async def test_while_a_write_has_no_outcome_further_ones_are_refused_at_once(tmp_path: Path) -> None:
    async with broker.running(log=tmp_path / "broker.log") as kafka, writing(kafka.settings, 0.2) as writer:
        assert await is_taken(writer, b"before")
        await kafka.down()
        assert not await is_taken(writer, b"first")
        refused = await asyncio.gather(*(is_taken(writer, b"later") for _ in range(1000)))
        assert not any(refused)
        await kafka.up()
        await eventually(lambda: is_taken(writer, b"after"), "Kafka takes records again")
        found = await written(kafka.settings)
        assert b"later" not in found, "what was refused at once never reached the producer"
        assert [found.count(value) for value in (b"before", b"after")] == [1, 1]


@pytest.mark.embedded
@pytest.mark.parametrize("code", [OUT_OF_ORDER_SEQUENCE, MESSAGE_TOO_LARGE])
async def test_a_producer_that_failed_is_replaced(tmp_path: Path, code: int) -> None:
    async with broker.running(log=tmp_path / "broker.log") as kafka, writing(kafka.settings) as writer:
        await kafka.fail_next(PRODUCE, code)
        assert not await is_taken(writer, b"failed")
        assert await is_taken(writer, b"after")
        assert (await written(kafka.settings)).count(b"after") == 1


@pytest.mark.embedded
async def test_a_writer_closes_while_kafka_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_writer, "CLOSE_S", 0.2)
    async with broker.running(log=tmp_path / "broker.log") as kafka:
        async with writing(kafka.settings, 0.2) as writer:
            assert await is_taken(writer, b"before")
            await kafka.down()
            assert not await is_taken(writer, b"first")
        await kafka.up()


@pytest.mark.embedded
async def test_no_broker_at_the_start_is_said(tmp_path: Path) -> None:
    async with broker.running(log=tmp_path / "broker.log") as kafka:
        await kafka.down()
        with pytest.raises(Unreachable):
            await DurableWriter(kafka.settings).start()


@pytest.mark.nightly
@pytest.mark.kafka
async def test_a_broker_that_is_away_for_over_a_minute_loses_nothing_that_was_confirmed(
    tmp_path: Path,
) -> None:
    with Kafka.running(tmp_path / "kafka") as kafka:
        settings = KafkaSettings(
            bootstrap=kafka.bootstrap,
            replication_factor=1,
            min_insync_replicas=1,
            raw_partitions=2,
            cluster_partitions=1,
        )
        await provisioning.apply(settings)
        async with writing(settings, 1.0) as writer:
            confirmed = [value for number in range(20) if await is_taken(writer, value := b"%d" % number)]
            assert len(confirmed) == 20
            kafka.kill()
            at_once = [is_taken(writer, b"in flight %d" % number) for number in range(20)]
            assert not any(await asyncio.gather(*at_once))
            loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()

            async def minute_is_over() -> bool:
                assert not await is_taken(writer, b"refused")
                return loop.time() - began > 70

            await eventually(minute_is_over, "the broker was away for over a minute", timeout_s=120)
            await asyncio.to_thread(kafka.start)
            await eventually(lambda: is_taken(writer, b"after"), "Kafka takes records again")
        found = await written(settings)
        assert set(confirmed) | {b"after"} <= set(found)
        assert b"refused" not in found
        assert len(found) == len(set(found))
