"""What a process does when it is told to end, or that a partition is no longer its own, at a moment that is easily lost."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
from aiokafka import TopicPartition
from structlog.testing import capture_logs

from runbooks.engine.process import Responder
from streams.config.settings import KafkaSettings, ResponderSettings
from streams.kafka.fenced_store import DocumentType, FencedStore
from streams.kafka.partition_owner import OwnedPartition, PartitionOwner
from streams.kafka.topics import COMMANDS, RUNS
from streams.model.control import Control
from streams.model.errors import Fenced
from streams.model.run import Run


class TakingUp(PartitionOwner[Control]):
    """An owner that is asked to end while it takes a partition up, in the middle of something that swallows that."""

    def __init__(self) -> None:
        super().__init__(
            KafkaSettings(), DocumentType(process="busy", topic=RUNS, kind=Control, key=lambda c: c.cluster),
            replayed=(), followed=(COMMANDS,),
        )  # fmt: skip
        self.taking_up = asyncio.Event()
        self.polled = False

    async def _join(self) -> None:
        self._consumer = self

    async def _acquire(self, consumer: Any) -> None:
        self.taking_up.set()
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
    await owner.taking_up.wait()
    poll.cancel()
    with pytest.raises(asyncio.CancelledError):
        await poll
    assert not owner.polled


class Replaced:
    """A store that somebody else owns by now; there is nothing to write into it."""

    documents: dict[str, Run] = {}  # noqa: RUF012
    unreadable: dict[str, Any] = {}  # noqa: RUF012

    async def commit(self, *documents: Any, **more: Any) -> None:
        """Write nothing."""


async def test_who_is_fenced_in_a_commit_while_it_lets_go_says_that_it_was_not_written_down() -> None:
    responder = Responder(KafkaSettings(), ResponderSettings(), [], [])
    store: Any = Replaced()
    worker = responder._worker(OwnedPartition(3, store))

    async def commit() -> None:
        raise Fenced("another owner has runs[3]")

    worker.task = asyncio.create_task(commit())
    with capture_logs() as said:
        await worker.finish_calls()
    assert said == [
        {
            "event": "partition lost before commit; changes dropped",
            "log_level": "info",
            "partition": 3,
            "reason": "another owner has runs[3]",
        }
    ]


class Rebalancing:
    """A consumer whose group rebalances while a partition is taken up; it shows the old assignment until that is over."""

    def __init__(self, owner: PartitionOwner[Control], place: TopicPartition, *, comes_back: bool) -> None:
        self._owner, self._place, self._comes_back = owner, place, comes_back
        self._begun = False

    async def end_offsets(self, places: Any) -> dict[TopicPartition, int]:
        if not self._begun:
            self._begun = True
            await self._owner.on_partitions_revoked({self._place})
            if self._comes_back:
                await self._owner.on_partitions_assigned({self._place})
        return dict.fromkeys(places, 0)

    async def committed(self, place: TopicPartition) -> int:
        return 0

    async def seek_to_beginning(self, *places: TopicPartition) -> None:
        """Go nowhere."""

    def seek(self, place: TopicPartition, offset: int) -> None:
        """Go nowhere."""

    def assignment(self) -> set[TopicPartition]:
        return {self._place}


@pytest.mark.parametrize(("comes_back", "opened"), [(False, 1), (True, 2)])
async def test_a_partition_that_is_revoked_while_its_store_is_opened_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, comes_back: bool, opened: int
) -> None:
    owner = PartitionOwner(
        KafkaSettings(), DocumentType(process="busy", topic=RUNS, kind=Control, key=lambda c: c.cluster),
        replayed=(), followed=(COMMANDS,),
    )  # fmt: skip
    stores: list[Any] = []

    async def open_store(*_: Any, **__: Any) -> Any:
        stores.append(AsyncMock())
        return stores[-1]

    monkeypatch.setattr(FencedStore, "open", open_store)
    place = owner.place(COMMANDS, 0)
    await owner.on_partitions_assigned({place})
    await owner._acquire(cast(Any, Rebalancing(owner, place, comes_back=comes_back)))
    assert len(stores) == opened
    stores[0].close.assert_awaited_once()
    assert [owned.store for owned in owner.owned.values()] == stores[1:]
