"""Records that Faust fetches and drops while a rebalance ends are read again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox.emulated import broker
from streams.config.settings import KafkaSettings
from streams.correlate.faust_app import build_app
from streams.kafka import clients
from streams.kafka.topics import SIGNALS
from tests.testbed.waiting import PATIENCE_S, eventually, patience

pytestmark = pytest.mark.embedded


COUNT = 12


@pytest.fixture
async def settings(tmp_path: Path) -> AsyncIterator[KafkaSettings]:
    base = KafkaSettings(cluster_partitions=1)
    async with broker.running(base, log=tmp_path / "broker.log") as running:
        writer = await clients.started(clients.producer(running.settings), running.settings)
        batch = writer.create_batch()
        for i in range(COUNT):
            batch.append(key=None, value=b"%d" % i, timestamp=None)
        await (await writer.send_batch(batch, SIGNALS.name, partition=0))
        await writer.stop()
        # No rebalance but the first: who gets no CPU for a session joins its group anew, in the middle of what is made here.
        yield running.settings.model_copy(update={"session_timeout_ms": 60_000})


class Reading:
    """An application that notes what it reads, and acknowledges it."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.read: list[int] = []
        self.app = build_app(settings)
        source = self.app.topic(
            clients.topic_name(settings, SIGNALS), key_serializer="raw", value_serializer="raw"
        )
        self.app.agent(source, name="read", concurrency=1)(self._read)
        self.app.finalize()
        self.consumer: Any = self.app.consumer

    async def _read(self, stream: Any) -> AsyncIterator[None]:
        async for event in stream.events():
            self.read.append(int(event.value))
            yield

    def at(self, offset: int, do: Any) -> None:
        """Do something, once, when the record of this offset is about to be handed out."""
        before = self.consumer.callback
        done: list[bool] = []

        async def callback(message: Any) -> None:
            if message.topic == SIGNALS.name and message.offset == offset and not done:
                done.append(True)
                await do()
            await before(message)

        self.consumer.callback = callback

    async def everything(self) -> None:
        """Wait until every record was read."""

        async def all_of_them() -> bool:
            return set(self.read) == set(range(COUNT))

        await eventually(all_of_them, "every record is read")

    async def committed(self, offset: int) -> None:
        """Wait until this offset is committed."""

        async def it_is() -> bool:
            return bool(
                await self.consumer.commit()
                or self.consumer._committed_offset.get((SIGNALS.name, 0)) == offset
            )

        await eventually(it_is, "the last record's offset is committed")


@asynccontextmanager
async def started(reading: Reading) -> AsyncIterator[None]:
    await reading.app.start()
    try:
        yield
    finally:
        await reading.app.stop()


async def test_what_was_fetched_before_the_flow_stopped_is_read_again_without_any_commit(
    settings: KafkaSettings,
) -> None:
    reading = Reading(settings)
    stopped = asyncio.Event()

    async def stop() -> None:
        reading.consumer.stop_flow()
        stopped.set()

    reading.at(0, stop)
    async with started(reading):
        await asyncio.wait_for(stopped.wait(), patience(PATIENCE_S))
        await reading.consumer.perform_seek()
        reading.consumer.resume_flow()
        await reading.everything()


async def test_a_batch_that_was_fetched_before_the_return_hides_nothing_that_was_dropped(
    settings: KafkaSettings,
) -> None:
    reading = Reading(settings)
    fetched = reading.consumer._wait_next_records
    returned: list[bool] = []

    async def behind_the_first_ones(timeout: float) -> Any:
        records, active = await fetched(timeout)
        if not records or returned:
            return records, active
        returned.append(True)
        await reading.consumer.perform_seek()
        return {tp: [r for r in them if r.offset > 4] for tp, them in records.items()}, active

    reading.consumer._wait_next_records = behind_the_first_ones
    async with started(reading):
        await reading.everything()
        await reading.committed(COUNT)


async def test_nothing_is_handed_out_between_an_assignment_and_the_return(settings: KafkaSettings) -> None:
    reading = Reading(settings)
    handed_out: list[bool] = []

    async def note() -> None:
        handed_out.append(reading.consumer.placed)

    for offset in range(COUNT):
        reading.at(offset, note)
    async with started(reading):
        await reading.everything()
    assert handed_out == [True] * COUNT


async def test_a_return_from_the_middle_of_a_rebalance_hands_nothing_out_before_it_ends(
    settings: KafkaSettings,
) -> None:
    reading = Reading(settings)
    assigned, resume = reading.consumer._on_partitions_assigned, reading.consumer.resume_partitions
    placed: list[bool] = []

    async def return_first(*args: Any) -> None:
        await reading.consumer.perform_seek()
        await assigned(*args)

    def note(tps: Any) -> None:
        placed.append(reading.consumer.placed)
        resume(tps)

    reading.consumer._on_partitions_assigned = return_first
    reading.consumer.resume_partitions = note
    async with started(reading):
        await reading.everything()
    assert placed
    assert not any(placed)
