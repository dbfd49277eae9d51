"""What is taken ahead comes in order, is bounded, and fails in its turn."""

from __future__ import annotations

import asyncio

import pytest

from streams.kafka.prefetch import Ahead


async def test_results_come_in_order_and_one_is_taken_while_another_is_used() -> None:
    taken: list[int] = []

    async def take() -> int:
        await asyncio.sleep(0)
        taken.append(len(taken))
        return taken[-1]

    async with Ahead(take) as ahead:
        for number in range(50):
            assert await ahead.next() == number
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(taken) == number + 3  # the one in hand, one that waits and one that waits to wait


async def test_what_was_taken_before_an_error_comes_before_it() -> None:
    results = iter((1, 2))

    async def take() -> int:
        for result in results:
            return result
        raise ConnectionError("gone")

    async with Ahead(take) as ahead:
        assert [await ahead.next(), await ahead.next()] == [1, 2]
        with pytest.raises(ConnectionError, match="gone"):
            await ahead.next()


async def test_nothing_is_taken_any_more_after_the_end() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def take() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with Ahead(take):
        await begun.wait()
    assert ended.is_set()
