"""Installations for blocks, one after the other: what a block finds does not depend on which ones ran before it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from tests.docs.pages import Block
from tests.docs.prepared import Prepared


class Installations:
    """One installation at a time. It runs blocks until one has changed it, or failed; the next block gets a new one.

    That takes ten seconds. Undoing the changes would be faster, and would have to know all of them: a freeze, a closed node,
    jobs that have moved, faults that count towards the next step of an escalation.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._running = AsyncExitStack()
        self._prepared: Prepared | None = None

    async def run(self, block: Block) -> None:
        """Run a block on an installation that is as it was when it started.

        Raises:
            AssertionError: when a command of the block ended with a code that is no success.
        """
        if self._prepared is None:
            self._count += 1
            folder = self._folder / str(self._count)
            folder.mkdir()
            self._prepared = await self._running.enter_async_context(Prepared.installation(folder))
        is_as_before = False
        try:
            await self._prepared.run(block)
            is_as_before = await self._prepared.is_as_before()
        finally:
            if not is_as_before:
                await self.stop()

    async def stop(self) -> None:
        """Stop the one that runs, if any."""
        self._prepared = None
        await self._running.aclose()
