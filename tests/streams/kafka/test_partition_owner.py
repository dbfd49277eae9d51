"""What an owner is handed, and from where on, when partitions change hands on a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from streams.config.settings import KafkaSettings
from streams.kafka import partition_owner
from streams.kafka.fenced_store import DocumentType
from streams.kafka.partition_owner import PartitionOwner
from streams.kafka.topics import COMMANDS, CONTROLS, RUNS
from streams.model.control import Control
from tests.runbooks.topics import with_topics, write
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.kafka

PARTITION = 1


class Slow(PartitionOwner[Control]):
    """An owner that hears of its partitions only after a poll that was under way has been handed records of them.

    Without that, who is first is chance: the consumer fetches as soon as it is assigned, and tells of it at the same time.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        super().__init__(
            settings, DocumentType(process="slow", topic=RUNS, kind=Control, key=lambda c: c.cluster),
            replayed=(CONTROLS,), followed=(COMMANDS,),
        )  # fmt: skip
        self.handed = asyncio.Event()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        await asyncio.wait_for(self.handed.wait(), 100)
        await super().on_partitions_assigned(assigned)

    async def _join(self) -> None:
        await super()._join()
        assert self._consumer is not None
        fetch = self._consumer.getmany

        async def getmany(**how: Any) -> Any:
            found = await fetch(**how)
            if any(place.partition == PARTITION for place in found):
                self.handed.set()
            return found

        self._consumer.getmany = getmany

    async def heard(self) -> list[str]:
        """The keys of one poll."""
        return [(arrival.record.key or b"").decode() for arrival in await self.poll()]


@asynccontextmanager
async def owner(settings: KafkaSettings) -> AsyncIterator[Slow]:
    made = Slow(settings)
    try:
        yield made
    finally:
        await made.stop()


async def test_what_a_poll_was_handed_before_the_partition_was_taken_up_is_read_again(kafka: Kafka) -> None:
    settings = await with_topics(kafka.bootstrap, RUNS, CONTROLS, COMMANDS)
    await write(settings, COMMANDS, PARTITION, ("first", b"a word"), ("second", b"another"))
    async with owner(settings) as mine:
        heard: list[str] = []

        async def both() -> bool:
            heard.extend(await mine.heard())
            return heard == ["first", "second"]

        await eventually(both, "every command is handed over")


async def test_after_a_commit_it_goes_on_from_there(kafka: Kafka) -> None:
    settings = await with_topics(kafka.bootstrap, RUNS, CONTROLS, COMMANDS)
    await write(settings, COMMANDS, PARTITION, ("heard", b"a word"), ("unheard", b"another"))
    async with owner(settings) as before:
        before.handed.set()

        async def taken_up() -> bool:
            await before.heard()
            return PARTITION in before.owned

        await eventually(taken_up, "the partition is taken up")
        place = before.place(COMMANDS, PARTITION)
        await before.owned[PARTITION].store.commit(offsets={place: 1}, group="slow")
    async with owner(settings) as after:
        after.handed.set()
        heard: list[str] = []

        async def the_rest() -> bool:
            heard.extend(await after.heard())
            return heard == ["unheard"]

        await eventually(the_rest, "what was not committed is handed over")


async def test_what_was_read_back_is_left_out_of_garbage_collection_until_it_is_dropped(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = await with_topics(kafka.bootstrap, RUNS, CONTROLS, COMMANDS)
    told: list[str] = []
    monkeypatch.setattr(partition_owner, "collect_seldom", lambda: told.append("left out"))
    monkeypatch.setattr(partition_owner, "include_again", lambda: told.append("included"))
    async with owner(settings) as mine:
        mine.handed.set()

        async def caught_up() -> bool:
            await mine.heard()
            return len(mine.owned) == 2 and all(owned.caught_up for owned in mine.owned.values())

        await eventually(caught_up, "everything is read back")
        assert set(told[:2]) == {"left out"}, "at the start, and when a partition is read back"
        told.clear()
        await mine.heard()
        assert told == [], "not again while nothing is read back"
    assert told == ["included"]
