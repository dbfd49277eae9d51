from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from aiokafka import TopicPartition

from streams.config.settings import KafkaSettings
from streams.kafka import provisioning
from streams.kafka.clients import admin, consumer, started, stopped, topic_name
from streams.kafka.topics import TICKS
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually


class Swallows:
    """A client whose start loses a cancellation, as `asyncio.wait_for` may."""

    def __init__(self) -> None:
        self.starting = asyncio.Event()
        self.stopped = False

    async def start(self) -> None:
        self.starting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

    async def stop(self) -> None:
        self.stopped = True


async def ended_while_it_starts(client: object, lost: Swallows) -> None:
    """Cancel the start of a client whose cancellation gets lost, and see that the task ends all the same."""
    task = asyncio.create_task(started(client, KafkaSettings()))
    await lost.starting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancellation_lost_while_a_client_starts_still_ends_the_task_and_stops_the_client() -> None:
    client = Swallows()
    await ended_while_it_starts(client, client)
    assert client.stopped


async def test_a_cancellation_lost_while_an_admin_client_starts_closes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost, client = Swallows(), admin(KafkaSettings())
    monkeypatch.setattr(client, "start", lost.start)
    monkeypatch.setattr(client, "close", lost.stop)
    await ended_while_it_starts(client, lost)
    assert lost.stopped


@pytest.mark.kafka
async def test_who_stops_a_consumer_that_waits_for_its_next_try_is_not_cancelled_by_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Kafka.running(tmp_path) as broker:
        settings = broker.settings("stopped")
        await provisioning.apply(settings)
        place = TopicPartition(topic_name(settings, TICKS), 0)
        reader = consumer(settings, group=None)
        reader.assign([place])
        await started(reader, settings)
        await reader.seek_to_beginning(place)

        async def fetches() -> bool:
            return bool(reader._fetcher._pending_tasks)

        async def waits() -> bool:
            return "Failed fetch messages" in caplog.text

        await eventually(fetches, "it fetches")
        reader._fetcher._retry_backoff = 600.0
        with caplog.at_level(logging.ERROR, "aiokafka"):
            broker.kill()
            await eventually(waits, "its fetch has failed, and it waits")
        await stopped(reader)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        assert reader._client._conns == {}, "nothing of it is left open"


async def test_a_cancellation_of_the_caller_comes_out_of_stopping_a_consumer() -> None:
    class Hangs:
        begun = asyncio.Event()

        async def stop(self) -> None:
            self.begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(stopped(Hangs()))
    await Hangs.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
