"""What responders have committed, as it comes: one reader for the topics of all stages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, TopicPartition

from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.topics import RUNS, SIGNALS, TIMELINE, Topic
from tests.testbed.waiting import eventually

FOLLOWED = (RUNS, TIMELINE, SIGNALS)

Record = Any
"""A `ConsumerRecord[bytes, bytes]`, which aiokafka does not type."""


class Tape:
    """Committed records by prefix and topic, in their order. Build it with `running`."""

    def __init__(
        self, reader: AIOKafkaConsumer, looker: AIOKafkaConsumer, places: dict[str, tuple[str, Topic]]
    ) -> None:
        self._reader = reader
        self._looker = looker
        self._places = places
        self._records: dict[tuple[str, str], list[Record]] = {
            (prefix, topic.name): [] for prefix, topic in places.values()
        }
        self._news = {prefix: asyncio.Event() for prefix, _ in places.values()}

    @classmethod
    @asynccontextmanager
    async def running(
        cls, settings: KafkaSettings, prefixes: Iterable[str], partitions: int = 1
    ) -> AsyncIterator[Self]:
        """Read the topics of these prefixes from their beginning."""
        places = {prefix + topic.name: (prefix, topic) for prefix in prefixes for topic in FOLLOWED}
        reader: AIOKafkaConsumer = clients.consumer(settings, group=None, fetch_max_wait_ms=50)
        await clients.started(reader, settings)
        looker: AIOKafkaConsumer = clients.consumer(settings, group=None, read_committed=False)
        await clients.started(looker, settings)
        reader.assign([TopicPartition(name, number) for name in places for number in range(partitions)])
        await reader.seek_to_beginning()
        tape = cls(reader, looker, places)
        reading = asyncio.create_task(tape._read(), name="tape")
        try:
            yield tape
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await reader.stop()
            await looker.stop()

    def records(self, prefix: str, topic: Topic, since: int = 0) -> Sequence[Record]:
        """Those of a topic so far, without the first `since`."""
        return self._records[prefix, topic.name][since:]

    def mark(self, prefix: str) -> dict[str, int]:
        """How many there are of each topic, for `records`."""
        return {topic.name: len(self._records[prefix, topic.name]) for topic in FOLLOWED}

    async def until(self, prefix: str, holds: Callable[[], Awaitable[bool]]) -> None:
        """Ask `holds` again with every record that comes under a prefix, until it says yes."""
        while True:
            self._news[prefix].clear()
            if await holds():
                return
            await self._news[prefix].wait()

    async def catch_up(self, prefix: str) -> None:
        """Wait until everything that is written now has been read.

        The topics of one transaction become readable one by one; how far they go is asked without regard to that.
        """
        names = {name for name, (owner, _) in self._places.items() if owner == prefix}
        places = [place for place in self._reader.assignment() if place.topic in names]
        ends = await self._looker.end_offsets(places)

        async def read() -> bool:
            return all([await self._reader.position(place) >= end for place, end in ends.items()])

        await eventually(read, f"all of {prefix} is read")

    def nudge(self, prefix: str) -> None:
        """Have `until` ask again without a record."""
        self._news[prefix].set()

    async def _read(self) -> None:
        while True:
            batches: dict[Any, list[Record]] = await self._reader.getmany(timeout_ms=500)
            for place, records in batches.items():
                prefix, topic = self._places[place.topic]
                self._records[prefix, topic.name] += records
                self._news[prefix].set()
