"""What a process does when it is told to end, or that a partition is no longer its own, at a moment that is easily lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
from aiokafka import TopicPartition
from structlog.testing import capture_logs

from faultline.chat.process import Chat
from faultline.notify.process import Notifier
from runbooks.engine.process import Responder
from streams.config.notifier_settings import NotifierSettings
from streams.config.settings import KafkaSettings, ResponderSettings
from streams.kafka.fenced_store import DocumentType, FencedStore
from streams.kafka.partition_owner import OwnedPartition, PartitionOwner
from streams.kafka.topics import COMMANDS, RUNS
from streams.model.control import Control
from streams.model.errors import Fenced, Permanent
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


def busy(**more: Any) -> PartitionOwner[Control]:
    """An owner that is driven by hand."""
    return PartitionOwner(
        KafkaSettings(), DocumentType(process="busy", topic=RUNS, kind=Control, key=lambda c: c.cluster),
        replayed=(), followed=(COMMANDS,), **more,
    )  # fmt: skip


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


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The stores that are opened from now on, in order; nothing is behind them."""
    opened: list[Any] = []

    async def open_store(*_: Any, **__: Any) -> Any:
        opened.append(AsyncMock())
        return opened[-1]

    monkeypatch.setattr(FencedStore, "open", open_store)
    return opened


@pytest.mark.parametrize(("comes_back", "opened"), [(False, 1), (True, 2)])
async def test_a_partition_that_is_revoked_while_its_store_is_opened_is_not_kept(
    stores: list[Any], comes_back: bool, opened: int
) -> None:
    owner = busy()
    place = owner.place(COMMANDS, 0)
    await owner.on_partitions_assigned({place})
    await owner._acquire(cast(Any, Rebalancing(owner, place, comes_back=comes_back)))
    assert len(stores) == opened
    stores[0].close.assert_awaited_once()
    assert [owned.store for owned in owner.owned.values()] == stores[1:]


class Leaving:
    """A consumer that is stopped while its group rebalances: the rebalance ends first, and assigns what another gets next."""

    def __init__(self, owner: PartitionOwner[Control], place: TopicPartition) -> None:
        self._owner, self._place = owner, place

    async def stop(self) -> None:
        await self._owner.on_partitions_revoked({self._place})
        await self._owner.on_partitions_assigned({self._place})


async def test_what_a_rebalance_assigns_to_who_is_leaving_the_group_is_not_taken_from_its_next_owner(
    stores: list[Any],
) -> None:
    owner = busy()
    place = owner.place(COMMANDS, 0)
    owner._consumer = cast(Any, Leaving(owner, place))
    await owner.stop()
    await owner._acquire(cast(Any, Rebalancing(owner, place, comes_back=False)))
    assert stores == [], "to open it fences whoever has it by now"


async def test_what_fails_while_a_partition_is_let_go_leaves_no_other_store_open() -> None:
    async def failing(_: Any) -> None:
        raise ValueError("a bug")

    owner = busy(on_revoked=failing)
    stores: list[Any] = [AsyncMock(), AsyncMock()]
    owner.owned = {number: OwnedPartition(number, store) for number, store in enumerate(stores)}
    with pytest.raises(ValueError, match="a bug"):
        await owner.on_partitions_revoked(set())
    for store in stores:
        store.close.assert_awaited_once()


class TooMuch(Replaced):
    """A store that does not take what it is given."""

    async def commit(self, *documents: Any, **more: Any) -> None:
        """Refuse it."""
        raise Permanent("runs: document r1 has 2000000 bytes, at most 1048576 fit")


async def test_a_failure_while_a_partition_is_let_go_ends_the_process_once_the_others_are_let_go() -> None:
    """The client of the group only logs what its listener raises, and the process would go on."""
    responder = Responder(KafkaSettings(), ResponderSettings(), [], [])
    stores: list[Any] = [TooMuch(), Replaced()]
    torn, whole = (responder._worker(OwnedPartition(*one)) for one in enumerate(stores))
    may_end = asyncio.Event()
    whole.task = asyncio.create_task(ended_after(may_end))
    asyncio.get_running_loop().call_soon(may_end.set)
    await responder._release([torn.owned.partition, whole.owned.partition])
    assert responder._workers == {}
    assert whole.task.done(), "what it had begun got its moment"
    with pytest.raises(Permanent, match="document r1"):
        responder._check_workers()


async def ended_after(event: asyncio.Event) -> None:
    await event.wait()


def chat() -> Chat:
    return Chat(KafkaSettings(), cast(Any, None), channel="C1", lease_s=30)


def notifier() -> Notifier:
    return Notifier(KafkaSettings(), NotifierSettings(), {}, lease_s=30, approval_expiry_s=60)


def publishers_of(process: Chat | Notifier) -> Any:
    return process._publishers if isinstance(process, Chat) else process._notices


@pytest.mark.parametrize("make", [chat, notifier])
async def test_a_worker_that_has_failed_when_the_process_is_asked_to_end_is_not_passed_over(
    make: Callable[[], Any],
) -> None:
    publishers = publishers_of(make())
    owned = OwnedPartition(0, cast(Any, AsyncMock(documents={})))

    async def fail() -> None:
        raise ValueError("a bug")

    async def asked_to_end() -> None:
        publishers._owner.owned[0] = owned
        await asyncio.wait({worker})
        raise asyncio.CancelledError

    publishers._owner.poll = asked_to_end
    worker = publishers._working[owned] = asyncio.create_task(fail())
    publishers._publishers[owned] = cast(Any, None)
    with pytest.raises(ValueError, match="a bug"):
        await publishers.run()
