"""Stuck or idle, as the real broker says where partitions end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from streams.config.settings import DetectorSettings, KafkaSettings
from streams.detect.process import DetectorProcess
from streams.kafka import clients, provisioning
from streams.kafka.consumer_lag import ConsumerLag
from streams.kafka.topics import COMMANDS, RAW_NODE_LOGS, TIMELINE
from streams.model.pulse import Pulse
from streams.telemetry import metrics as shown
from streams.telemetry.lag import LagMeter
from streams.telemetry.registry import Metrics
from tests.clocks import Watch
from tests.runbooks.topics import with_topics
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.kafka

PARTITION = 1


class Reader:
    """A consumer of one partition whose lag is measured, on a clock of the test's own."""

    def __init__(self, settings: KafkaSettings, consumer: AIOKafkaConsumer, place: TopicPartition) -> None:
        self.clock, self.pulse, self.metrics = Watch(1000.0), Pulse(), Metrics("chat")
        self.unfinished: int | None = None
        self.consumer = consumer
        self.series = (place.topic.removeprefix(settings.topic_prefix), str(place.partition))
        self.lag = ConsumerLag(
            settings,
            self.metrics,
            self.pulse,
            unfinished=lambda _: self.unfinished,
            meter=LagMeter(clock=self.clock),
        )
        self.lag.consumer = consumer

    async def look(self, times: int = 1, *, polls: bool = False) -> None:
        """Look every five seconds; `polls`: as a process does that goes on reading meanwhile."""
        for _ in range(times):
            if polls:
                await self.consumer.getmany(timeout_ms=1)
            self.clock.now += 5
            await self.lag.look()

    def told(self) -> tuple[float, float, float]:
        families = (shown.LAG_RECORDS, shown.LAG_SECONDS, shown.STUCK_SECONDS)
        records, seconds, stuck = (self.metrics.value(family, *self.series) for family in families)
        return records, seconds, stuck

    async def read_all(self) -> None:
        async def at_the_end() -> bool:
            await self.consumer.getmany(timeout_ms=50)
            await self.look()
            return self.told()[0] == 0

        await eventually(at_the_end, "everything is read")


@asynccontextmanager
async def reading(settings: KafkaSettings, place: TopicPartition) -> AsyncIterator[Reader]:
    consumer = await clients.started(clients.consumer(settings, group=None, fetch_max_wait_ms=50), settings)
    try:
        consumer.assign([place])
        yield Reader(settings, consumer, place)
    finally:
        await consumer.stop()


@asynccontextmanager
async def producing(settings: KafkaSettings, **more: Any) -> AsyncIterator[Any]:
    producer = await clients.started(clients.producer(settings, **more), settings)
    try:
        yield producer
    finally:
        await producer.stop()


async def test_markers_of_transactions_at_the_end_are_no_lag(kafka: Kafka) -> None:
    """Nobody ever processes a marker: counted as lag it would age for ever, and an idle process would be killed for it."""
    settings = await with_topics(kafka.bootstrap, TIMELINE)
    place = TopicPartition(clients.topic_name(settings, TIMELINE), PARTITION)
    async with (
        producing(settings, transactional_id="lag") as producer,
        reading(settings, place) as reader,
    ):
        async with producer.transaction():
            await producer.send_and_wait(place.topic, b"kept", partition=PARTITION)
        await producer.begin_transaction()
        await producer.send_and_wait(place.topic, b"aborted", partition=PARTITION)
        await producer.abort_transaction()

        async def whole() -> bool:  # the broker writes markers a moment after it has answered
            return bool((await reader.consumer.end_offsets([place]))[place] == 4)

        await eventually(whole, "there are two records and two markers")
        await reader.read_all()
        await reader.look(times=30, polls=True)
        assert reader.told() == (0, 0, 0)
        assert reader.pulse.is_alive


async def test_a_partition_whose_records_wait_ages_and_makes_its_process_dead(kafka: Kafka) -> None:
    settings = await with_topics(kafka.bootstrap, COMMANDS)
    place = TopicPartition(clients.topic_name(settings, COMMANDS), PARTITION)
    async with producing(settings) as producer, reading(settings, place) as reader:
        await producer.send_and_wait(place.topic, b"first", partition=PARTITION)
        await reader.read_all()
        await reader.look(times=30, polls=True)
        assert reader.told() == (0, 0, 0)
        await producer.send_and_wait(place.topic, b"second", partition=PARTITION)
        await reader.look()
        assert reader.told() == (1, 5, 0)
        await reader.look(times=20)
        assert reader.told() == (1, 105, 100)
        assert reader.pulse.is_alive
        await reader.look(times=10)
        assert f"{reader.series[0]}[{PARTITION}]" in reader.pulse.stalled
        reader.unfinished = 1  # it is read now, and what follows from it is not done
        await reader.consumer.getmany(timeout_ms=1000)
        await reader.look()
        assert reader.told()[0] == 1
        assert not reader.pulse.is_alive
        reader.unfinished = None
        await reader.read_all()
        assert reader.told() == (0, 0, 0)
        assert reader.pulse.is_alive


@pytest.mark.nightly
async def test_a_broker_that_is_frozen_makes_nobody_dead(kafka: Kafka, tmp_path: Any) -> None:
    with Kafka.running(tmp_path) as own:
        settings = await with_topics(own.bootstrap, COMMANDS)
        place = TopicPartition(clients.topic_name(settings, COMMANDS), PARTITION)
        async with producing(settings) as producer, reading(settings, place) as reader:
            await producer.send_and_wait(place.topic, b"first", partition=PARTITION)
            await reader.look()
            own.pause()
            try:
                for _ in range(2):
                    reader.clock.now += 600
                    await reader.lag.look()
            finally:
                own.resume()
            assert reader.pulse.is_alive
            assert reader.told()[2] <= 15
            assert reader.told()[1] >= 1200


async def test_a_detector_whose_delivery_hangs_is_told_of_and_an_idle_one_is_not(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = kafka.settings("lag", raw_partitions=2, session_timeout_ms=30_000)
    await provisioning.apply(settings)
    clock, pulse, metrics = Watch(1000.0), Pulse(silence_s=1e9), Metrics("detector")
    process = DetectorProcess(settings, DetectorSettings(), cluster="c1", pulse=pulse, metrics=metrics)
    process._lag.meter._clock = clock
    hangs, goes_on = asyncio.Event(), asyncio.Event()
    deliver: Callable[..., Awaitable[None]] = process._write

    async def write(*args: Any) -> None:
        if hangs.is_set():
            await goes_on.wait()
        await deliver(*args)

    monkeypatch.setattr(process, "_write", write)
    name = clients.topic_name(settings, RAW_NODE_LOGS)

    async def look(times: int) -> None:
        for _ in range(times):
            clock.now += 5
            await process._lag.look()

    def lag(partition: int) -> tuple[float, float]:
        series = (RAW_NODE_LOGS.name, str(partition))
        return metrics.value(shown.LAG_RECORDS, *series), metrics.value(shown.STUCK_SECONDS, *series)

    line = b"<3>kernel: NVRM: Xid (PCI:0000:9b:00): 79, pid=12, name=python, GPU has fallen off the bus."
    task = asyncio.create_task(process.run())
    try:
        async with producing(settings) as producer:
            await producer.send_and_wait(name, line, key=b"gpu-1", partition=0)

            async def delivered() -> bool:
                await look(1)
                return metrics.value(shown.RECORDS, RAW_NODE_LOGS.name, "signals") == 1 and lag(0)[0] == 0

            await eventually(delivered, "the signal is delivered")
            await look(30)
            assert (lag(0), lag(1), pulse.stalled) == ((0, 0), (0, 0), "")
            hangs.set()
            await producer.send_and_wait(name, line.replace(b"9b", b"9c"), key=b"gpu-1", partition=1)

            async def behind() -> bool:
                await look(1)
                return lag(1)[0] == 1

            await eventually(behind, "the record is read and not delivered")
            await look(30)
            assert lag(0) == (0, 0)
            assert lag(1)[1] >= 120
            assert "raw.node-logs[1]" in pulse.stalled
    finally:
        goes_on.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
