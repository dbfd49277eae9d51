"""Deliveries: one at a time, in order, and while one is under way everything else that is found is gathered for the next.

Writing and committing take as long for ten thousand records as for a hundred thousand, and longer than reading ten thousand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from streams.detect.batch import Batch


class Delivery:
    """Hands what was gathered to `deliver`, batch after batch, until nothing is left. After a failure nothing more is delivered.

    A batch is taken between two steps of the reader, so what is added to `gathered` without an await in between stays together.
    """

    def __init__(self, deliver: Callable[[Batch], Awaitable[None]]) -> None:
        self._deliver = deliver
        self._task: asyncio.Task[None] | None = None
        self._taken = asyncio.Event()
        self.gathered = Batch()

    async def go_on(self) -> None:
        """Have what is gathered delivered: now, or as soon as the delivery under way is done. Waits while too much is gathered.

        Raises:
            Exception: what a delivery before has raised.
        """
        if self._task is not None and self._task.done():
            await self.done()
        if self._task is None and self.gathered:
            self._task = asyncio.create_task(self._run())
        while self.gathered.full and self._task is not None and not self._task.done():
            self._taken.clear()
            await self._taken.wait()

    async def wait(self) -> None:
        """Wait until all that was gathered is delivered, or a delivery has failed."""
        if self._task is not None:
            await asyncio.wait({self._task})

    async def done(self) -> None:
        """Wait until all that was gathered is delivered.

        Raises:
            Exception: what a delivery has raised, once.
        """
        task, self._task = self._task, None
        if task is not None:
            await task

    async def _run(self) -> None:
        try:
            while self.gathered:
                batch, self.gathered = self.gathered, Batch()
                self._taken.set()
                await self._deliver(batch)
        finally:
            self._taken.set()
