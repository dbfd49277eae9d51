from __future__ import annotations

import asyncio

import pytest

from streams.config.settings import KafkaSettings
from streams.kafka.clients import admin, started


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
