"""Prefetch: polls the next batch while the previous one is still being produced.

Parsing needs the CPU and waiting for acknowledgements does not: a reader that does one after the other is idle half of the
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, Self, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Calls `take` over and over, one call after the other, and returns the results in order; at most two are buffered.

    `next` raises what `take` raised, after all earlier results.
    """

    def __init__(self, take: Callable[[], Awaitable[T]]) -> None:
        self._take = take
        self._taken: asyncio.Queue[T | Exception] = asyncio.Queue(maxsize=1)
        self._taking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._taking = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._taking is not None
        self._taking.cancel()
        with suppress(asyncio.CancelledError):
            await self._taking

    async def next(self) -> T:
        """The next result."""
        taken = await self._taken.get()
        if isinstance(taken, Exception):
            raise taken
        return taken

    async def _run(self) -> None:
        while True:
            try:
                taken: T | Exception = await self._take()
            except Exception as error:  # noqa: BLE001 - raised again where the results are taken
                taken = error
            await self._taken.put(taken)
            if isinstance(taken, Exception):
                return
