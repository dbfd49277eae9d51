from __future__ import annotations

import asyncio

import pytest

from streams.kafka import admin, started
from streams.model.settings import KafkaSettings


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


async def test_a_cancellation_lost_while_a_client_starts_still_ends_the_task_and_stops_the_client() -> None:
    client = Swallows()
    task = asyncio.create_task(started(client, KafkaSettings()))
    await client.starting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert client.stopped


async def test_a_cancellation_lost_while_an_admin_client_starts_closes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost, client = Swallows(), admin(KafkaSettings())
    monkeypatch.setattr(client, "start", lost.start)
    monkeypatch.setattr(client, "close", lost.stop)
    task = asyncio.create_task(started(client, KafkaSettings()))
    await lost.starting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert lost.stopped
