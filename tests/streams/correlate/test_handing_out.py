"""A record that finds room is handed out at once; one that does not is waited for, whatever comes of that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

import pytest

from streams.config.settings import KafkaSettings
from streams.correlate.faust_app import AsTheyAre, build_app
from streams.correlate.faust_consumer import Consumer


@pytest.fixture
async def consumer() -> Consumer:
    made: Any = build_app(KafkaSettings()).consumer
    assert isinstance(made, Consumer)
    return made


async def never() -> None:
    await asyncio.Event().wait()


async def placed(room: Awaitable[object]) -> str:
    await room
    return "placed"


async def no_wait() -> None:
    """Room that is there already."""


async def test_a_record_that_finds_room_takes_no_task(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio, "wait", None)  # what Faust would wait for its tasks with
    assert (await consumer.wait_first(placed(no_wait()), never())).results == ["placed"]


async def test_one_that_does_not_is_waited_for(consumer: Consumer) -> None:
    room = asyncio.Event()
    waiting = asyncio.ensure_future(consumer.wait_first(placed(room.wait()), never()))
    await asyncio.sleep(0)
    assert not waiting.done()
    room.set()
    assert (await waiting).results == ["placed"]


async def test_it_is_given_up_when_the_flow_is_suspended(consumer: Consumer) -> None:
    suspended, told = asyncio.Event(), []

    async def place() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append("given up")
            raise

    waiting = asyncio.ensure_future(consumer.wait_first(place(), suspended.wait()))
    await asyncio.sleep(0)
    suspended.set()
    assert (await waiting).results == [True]
    await asyncio.sleep(0)
    assert told == ["given up"]


@pytest.mark.parametrize("waits", [False, True])
async def test_an_error_of_it_is_raised(consumer: Consumer, waits: bool) -> None:
    async def fail() -> None:
        if waits:
            await asyncio.sleep(0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await consumer.wait_first(fail(), never())


async def test_keys_and_values_are_handed_out_as_they_are() -> None:
    app = build_app(KafkaSettings())
    decode = AsTheyAre().compile(app)
    for key, value in [(b"\xff", b"{}"), (None, b""), (b"key", None)]:
        message = SimpleNamespace(key=key, value=value, headers=None)
        event = await decode(message)
        assert (event.key, event.value, event.message) == (key, value, message)
