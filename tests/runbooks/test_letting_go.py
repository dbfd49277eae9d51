"""What a process does when it is told to end at a moment that is easily lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runbooks.ownership import Owner
from streams.model.control import Control
from streams.model.settings import KafkaSettings
from streams.topics import COMMANDS, RUNS


class TakingUp(Owner[Control]):
    """An owner that is asked to end while it takes a partition up, in the middle of something that swallows that."""

    def __init__(self) -> None:
        super().__init__(
            KafkaSettings(), name="busy", topic=RUNS, kind=Control, key=lambda c: c.cluster,
            replayed=(), followed=(COMMANDS,),
        )  # fmt: skip
        self.polled = False

    async def _join(self) -> None:
        self._consumer = self

    async def _take_up(self, consumer: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return  # as aiokafka does while a client stops

    async def getmany(self, **how: Any) -> dict[Any, Any]:
        self.polled = True
        return {}


async def test_who_is_asked_to_end_while_it_takes_a_partition_up_ends() -> None:
    owner = TakingUp()
    poll = asyncio.create_task(owner.poll())
    await asyncio.sleep(0)
    poll.cancel()
    with pytest.raises(asyncio.CancelledError):
        await poll
    assert not owner.polled
