"""The correlator's state: the rows of every partition, restored from the changelog and kept up to date.

Faust's own recovery takes one record at a time and begins when the group has met; here the changelog is read in large fetches,
before the process joins and ever after, so that a takeover has to read only what was written in the last moment. Every
correlator, also a standby, holds the state of all clusters.

While a partition is ours nobody else writes to it, and its rows change by what we write. When it is lost, we read on from the
last row of ours that the broker confirmed; later changes are undone first, because it is unknown how much of them was written.
What was written is read with the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.read_progress import ReadProgress
from streams.kafka.topics import CHANGELOG

log = structlog.get_logger(__name__)

_POLL_MS = 200
_FETCH_WAIT_MS = 100


class Rows(dict[bytes, bytes]):
    """Rows of a partition. Changes can be undone until `keep` is called."""

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[bytes, bytes | None] = {}

    def __setitem__(self, key: bytes, value: bytes) -> None:
        self._before.setdefault(key, self.get(key))
        super().__setitem__(key, value)

    def __delitem__(self, key: bytes) -> None:
        self._before.setdefault(key, self[key])
        super().__delitem__(key)

    def keep(self) -> None:
        """Accept all changes: they are in the changelog."""
        self._before.clear()

    def undo(self) -> None:
        """Undo all changes since the last `keep`."""
        for key, value in self._before.items():
            if value is None:
                self.pop(key, None)
            else:
                super().__setitem__(key, value)
        self._before.clear()


class Changelog:
    """Rows by partition. `start` reads all there is; `beat` is called while that goes on, a few times a second."""

    def __init__(self, settings: KafkaSettings, *, beat: Callable[[], None]) -> None:
        self._settings = settings
        self._beat = beat
        name = clients.topic_name(settings, CHANGELOG)
        self._all = [TopicPartition(name, number) for number in range(settings.cluster_partitions)]
        self._rows = {tp.partition: Rows() for tp in self._all}
        self._next = dict.fromkeys(self._rows, 0)
        """The offset up to which the rows are those of the changelog."""
        self._ours: set[int] = set()
        self._turn = 0
        self._moved = asyncio.Condition()
        self._consumer: AIOKafkaConsumer | None = None
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read everything that was written so far, and follow what is written from now on.

        Raises:
            Unreachable: when no broker answers.
            KafkaError: when the broker refuses.
        """
        self._consumer = clients.consumer(
            self._settings, group=None, read_committed=False, fetch_max_wait_ms=_FETCH_WAIT_MS
        )
        self._consumer.assign(self._all)
        await clients.started(self._consumer, self._settings)
        for tp in self._all:
            self._consumer.seek(tp, 0)
        self._following = asyncio.create_task(self._follow())
        await self._read_to(await self._ends(self._all))

    async def stop(self) -> None:
        """Stop following."""
        if self._following is not None:
            self._following.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await self._following
        if self._consumer is not None:
            await clients.stopped(self._consumer)

    def rows(self, partition: int) -> Rows:
        """The rows of a partition. They are complete once it was taken; what is changed then has to be written."""
        return self._rows[partition]

    async def take(self, partitions: Iterable[int]) -> int:
        """Read the partitions to their end; from here on their rows change by what we write.

        Returns how many rows had to be read for it.

        Raises:
            KafkaError: when the broker refuses.
        """
        assert self._consumer is not None
        # How far it was read before the question: an answer must not be held against what is read while it is on its way.
        turn, read = self._turn, dict(self._next)
        wanted = [tp for tp in self._all if tp.partition in set(partitions) - self._ours]
        ends = await self._ends(wanted)
        if turn != self._turn:
            return 0  # lost again meanwhile; what is ours by now has rows of its own, and an end that was asked for later
        for tp, end in ends.items():
            if end < read[tp.partition]:
                self._begin_again(tp)
        missing = sum(max(0, end - self._next[tp.partition]) for tp, end in ends.items())
        await self._read_to(ends)
        if turn != self._turn:
            return missing  # lost again meanwhile
        self._consumer.pause(*wanted)
        self._ours |= {tp.partition for tp in wanted}
        return missing

    def leave(self) -> None:
        """Give up all partitions and follow what others write to them."""
        self._turn += 1
        for tp in (tp for tp in self._all if tp.partition in self._ours):
            assert self._consumer is not None
            self._rows[tp.partition].undo()
            self._consumer.seek(tp, self._next[tp.partition])
            self._consumer.resume(tp)
        self._ours.clear()

    def wrote(self, partition: int, offsets: Sequence[int]) -> None:
        """Record that the broker has confirmed all changes, at these offsets."""
        self._rows[partition].keep()
        if all(offset == at for at, offset in enumerate(sorted(offsets), self._next[partition])):
            self._next[partition] += len(offsets)
        # Else another wrote in between, and the next takeover reads both again, in the changelog's order.

    async def _ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        assert self._consumer is not None
        return await self._consumer.end_offsets(partitions) if partitions else {}

    async def _read_to(self, ends: Mapping[TopicPartition, int]) -> None:
        """Wait until the follower has read so far, and log its progress."""
        assert self._following is not None

        def missing() -> int:
            return sum(max(0, end - self._next[tp.partition]) for tp, end in ends.items())

        progress = ReadProgress(missing())
        while left := missing():
            if self._following.done():
                self._following.result()
            self._beat()
            if text := progress.told(left):
                log.info("restoring state", progress=text)
            with suppress(TimeoutError):
                async with asyncio.timeout(1), self._moved:
                    await self._moved.wait()
        if progress.worth_telling:
            log.info("state restored", records=progress.total, seconds=round(progress.seconds, 1))

    async def _follow(self) -> None:
        assert self._consumer is not None
        while True:
            for tp, records in (await self._consumer.getmany(timeout_ms=_POLL_MS)).items():
                if tp.partition not in self._ours:
                    self._take_in(tp.partition, records)
            for tp in self._all:
                if tp.partition not in self._ours:  # a gap at the end is no record, and nobody hands it out
                    self._next[tp.partition] = await self._consumer.position(tp)
            async with self._moved:
                self._moved.notify_all()

    def _take_in(self, partition: int, records: Sequence[ConsumerRecord[Any, Any]]) -> None:
        rows = self._rows[partition]
        for record in records:
            if record.value is None:
                rows.pop(record.key, None)
            else:
                rows[record.key] = record.value
        rows.keep()

    def _begin_again(self, tp: TopicPartition) -> None:
        assert self._consumer is not None
        log.warning("re-reading the changelog from the beginning", partition=tp.partition)
        self._rows[tp.partition] = Rows()
        self._next[tp.partition] = 0
        self._consumer.seek(tp, 0)
