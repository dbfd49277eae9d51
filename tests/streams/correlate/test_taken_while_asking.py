"""What happens while the broker is asked counts: its answer is about the time of the question."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition

from streams.config.settings import KafkaSettings
from streams.correlate import ownership
from streams.correlate.changelog import Changelog
from streams.correlate.faust_app import App
from streams.correlate.ownership import Ownership
from streams.kafka import clients


class Record(SimpleNamespace):
    """A record of the changelog."""


class Broker:
    """A consumer of the changelog. Answers about its end wait until the test gives them; records come when it writes them."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[asyncio.Future[int]] = asyncio.Queue()
        """The questions, in their order, to be answered with an offset."""
        self.positions: dict[TopicPartition, int] = {}
        self.records: list[Record] = []
        self._written = asyncio.Event()
        self.read = asyncio.Event()

    def write(self, *rows: tuple[bytes, bytes]) -> None:
        """Write rows, to be read on at the next poll."""
        self.records += [Record(key=key, value=value) for key, value in rows]
        self.read.clear()
        self._written.set()

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self.place = places[0]

    def seek(self, place: TopicPartition, offset: int) -> None:
        self.positions[place] = offset
        self._written.set()

    def pause(self, *places: TopicPartition) -> None:
        """Nothing: what is ours is not taken in anyway."""

    def resume(self, *places: TopicPartition) -> None:
        """Nothing either."""

    async def position(self, place: TopicPartition) -> int:
        return self.positions[place]

    async def end_offsets(self, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.asked.put_nowait(answer)
        return dict.fromkeys(places, await answer)

    async def getmany(self, **how: Any) -> dict[TopicPartition, list[Record]]:
        while self.positions[self.place] >= len(self.records):
            self.read.set()
            self._written.clear()
            await self._written.wait()
        found = self.records[self.positions[self.place] :]
        self.positions[self.place] = len(self.records)
        return {self.place: found}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()

    async def started(client: Any, settings: KafkaSettings) -> Any:
        return client

    async def stopped(client: Any) -> None:
        """Nothing is open."""

    monkeypatch.setattr(clients, "consumer", lambda *_, **__: made)
    monkeypatch.setattr(clients, "started", started)
    monkeypatch.setattr(clients, "stopped", stopped)
    return made


async def started(broker: Broker, *rows: tuple[bytes, bytes]) -> Changelog:
    broker.records += [Record(key=key, value=value) for key, value in rows]
    changelog = Changelog(KafkaSettings(cluster_partitions=1), beat=lambda: None)
    starting = asyncio.create_task(changelog.start())
    (await broker.asked.get()).set_result(len(rows))
    await starting
    return changelog


async def test_an_answer_for_an_earlier_ownership_takes_no_row_from_the_present_one(broker: Broker) -> None:
    changelog = await started(broker, (b"c\x001", b"one"))
    first = asyncio.create_task(changelog.take({0}))
    late = await broker.asked.get()
    changelog.leave()
    second = asyncio.create_task(changelog.take({0}))
    (await broker.asked.get()).set_result(1)
    await second
    rows = changelog.rows(0)
    rows[b"c\x002"] = b"two"
    changelog.wrote(0, [1])
    late.set_result(1)
    async with asyncio.timeout(20):  # what is begun again here would never be read
        await first
    assert changelog.rows(0) is rows, "the engine's rows are those that the partition has"
    assert rows == {b"c\x001": b"one", b"c\x002": b"two"}
    await changelog.stop()


async def test_what_is_written_while_the_end_is_asked_for_does_not_look_like_a_changelog_that_was_cut(
    broker: Broker,
) -> None:
    changelog = await started(broker, (b"c\x001", b"one"))
    taking = asyncio.create_task(changelog.take({0}))
    asked = await broker.asked.get()
    broker.write((b"c\x002", b"the predecessor's last"))
    await broker.read.wait()
    before = changelog.rows(0)
    asked.set_result(1)
    await taking
    assert changelog.rows(0) is before, "nothing is read again from the beginning"
    assert before == {b"c\x001": b"one", b"c\x002": b"the predecessor's last"}
    await changelog.stop()


class Group:
    """The consumer as the group sees it: `answers` in turn whether it still includes us, each after what happens meanwhile."""

    def __init__(self, *answers: tuple[Callable[[], None], bool]) -> None:
        self.left = list(answers)

    async def owns(self, place: object) -> bool:
        meanwhile, answer = self.left.pop(0)
        meanwhile()
        return answer


async def test_a_second_pause_while_the_group_is_asked_is_asked_about_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0

    def frozen() -> None:
        nonlocal now
        now += 60

    monkeypatch.setattr(ownership, "boot_seconds", lambda: now)
    group = Group((frozen, True), (lambda: None, False))
    own = Ownership(cast("App", SimpleNamespace(consumer=group)), KafkaSettings())
    own.lose()
    own.settle(own.term)
    assert await own.holds(0, own.term), "nothing has happened yet"
    frozen()
    assert not await own.holds(0, own.term), "the group's first answer was from before the second pause"
    assert (group.left, own.settled) == ([], False)


async def test_one_pause_is_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(ownership, "boot_seconds", lambda: now)
    group = Group((lambda: None, True))
    own = Ownership(cast("App", SimpleNamespace(consumer=group)), KafkaSettings())
    own.lose()
    own.settle(own.term)
    now = 60.0
    assert await own.holds(0, own.term)
    assert await own.holds(0, own.term)
    assert (group.left, own.settled) == ([], True)
