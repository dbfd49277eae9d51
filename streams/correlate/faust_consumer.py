"""Faust's consumer, without the records it loses around a rebalance.

While a rebalance ends Faust fetches, drops what it fetched and returns to the committed offsets. Three gaps lie in that:

- A partition without a committed offset is not returned to anything: what was dropped of it is never read.
- Between resuming the partitions and returning, records are delivered from behind those that were dropped; once they are
  acknowledged their offset is committed, and the dropped ones are behind it.
- A batch that is being handed out while Faust returns moves the mark below which records count as read, and what is read
  again from below it is dropped.

So here a partition without a committed offset returns to its beginning, and no record goes out before the return after an
assignment, nor from a batch that was begun before a return. Whatever is held back is returned to by the loop that hands
out records itself, when nothing is on its way. Records may come twice by this, as they may after any rebalance.

It also bounds what waits to be handled by its bytes (`streams.kafka.backpressure`), and knows for each partition whether
everything that was fetched is handled.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import AsyncIterator, Coroutine, Generator, Iterable, Mapping
from contextlib import suppress
from typing import Any, ClassVar

from aiokafka.errors import IllegalStateError
from faust.transport.drivers import aiokafka
from faust.types import TP
from mode.services import WaitResults

from streams.kafka import clients
from streams.kafka.backpressure import FetchedBytes

_FETCH_WAIT_MS = 100
"""How long the broker waits for something to send. What comes free meanwhile is asked for only when that request is answered;
Faust's 1.5 s would make a partition with a backlog wait for its idle neighbours."""

_READ_COMMITTED = "read_committed"

_ROOM_S = 0.02
"""How often to look whether what is held back has room again."""


class ConsumerThread(aiokafka.AIOKafkaConsumerThread):
    """The fetching thread. `fetched` is never behind the positions it reports."""

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = _FETCH_WAIT_MS
        # Responders write to `signals` in transactions. Faust reads uncommitted records unless its own guarantee is exactly-once:
        # a run whose end was never committed would resolve its incident, and the next owner would open the broken node again.
        consumer._isolation_level = _READ_COMMITTED
        return consumer

    async def _fetch_records(self, *args: Any, **options: Any) -> Any:
        records = await super()._fetch_records(*args, **options)
        fetched: dict[TP, int] = self.consumer.fetched  # type: ignore[attr-defined]
        fetched |= {tp: batch[-1].offset for tp, batch in records.items() if batch}
        return records


class Consumer(aiokafka.Consumer):
    """A consumer of the streams' own topics that hands out every record at least once."""

    placed = False
    """Whether what is read next follows what was committed, in every partition. Until then nothing is handed out."""
    _resumed = False
    _returns = 0

    def __init__(self, transport: Any, callback: Any, *args: Any, **options: Any) -> None:
        self.fetched: dict[TP, int] = {}
        """The last offset that was fetched."""
        self._handled: dict[TP, int] = {}
        self._handled_ms: dict[TP, int] = {}
        self._waiting = FetchedBytes()

        async def deliver(message: Any) -> None:
            if self._waiting.put(message.tp, _size(message)):
                self.on_buffer_full(TP(*message.tp))
            await callback(message)

        super().__init__(transport, deliver, *args, **options)

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    def taken(self, message: Any) -> None:
        """Record that work on a record begins: there may be room for others."""
        if self._waiting.take(message.tp, _size(message)):
            self.on_buffer_drop(TP(*message.tp))

    def handled(self, message: Any) -> None:
        """Record that everything that follows from a record is done."""
        self._handled[message.tp] = max(message.offset, self._handled.get(message.tp, -1))
        self._handled_ms[message.tp] = round(message.timestamp * 1000)

    def left(self, tp: TP) -> int:
        """How many records of a partition are not handled yet, by the last high watermark; markers of transactions count."""
        end = self.highwater(tp)
        if end is None or not self.has_unhandled(tp):
            return 0
        return max(0, end - 1 - self._handled.get(tp, -1))

    def has_unhandled(self, tp: TP) -> bool:
        """Whether something that was fetched is not handled yet."""
        return self.fetched.get(tp, -1) > self._handled.get(tp, -1)

    def first_unhandled(self, tp: TP) -> int:
        """The first offset that is not handled."""
        return self._handled.get(tp, -1) + 1

    def handled_ms(self, tp: TP) -> int | None:
        """When the record that was handled last had been written, in ms; None before the first."""
        return self._handled_ms.get(tp)

    def is_handled(self, tp: TP, end: int) -> bool:
        """Whether nothing that was fetched from below this offset waits to be handled."""
        return not self.has_unhandled(tp) or self._handled.get(tp, -1) >= end - 1

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Mark positions as uncertain."""
        self.placed = self._resumed = False
        await super().on_partitions_revoked(revoked)
        self._handled_ms.clear()
        self._forget_what_waits()

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Mark positions as uncertain."""
        self.placed = self._resumed = False
        clients.log_assigned(tp for tp in assigned if not self._is_changelog_tp(tp))
        self._forget_what_waits()  # what was on its way when the flow stopped was dropped
        await super().on_partitions_assigned(assigned, generation_id)

    def resume_partitions(self, tps: Iterable[TP]) -> None:
        """Note the end of a rebalance: its partitions resume."""
        resumed = set(tps)
        self._resumed |= bool(resumed)
        super().resume_partitions(resumed)

    async def perform_seek(self) -> None:
        """Return to the committed offsets. It does not count before the partitions go on: Faust drops what it fetches then."""
        resumed = self._resumed
        await super().perform_seek()
        self._returns += 1
        for tp, offset in self._read_offset.items():  # what lies before is done, whoever did it
            self._handled[tp] = (offset or 0) - 1
        self.placed |= resumed and self._resumed

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Return to the committed offsets, and to the beginning where there are none."""
        committed = await super().seek_to_committed()
        bare = [tp for tp, offset in committed.items() if not offset]
        if bare:
            await self.seek_wait(await self.earliest_offsets(*bare))
        return committed

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, Any]]:
        """Hand out a batch of records."""
        returns = self._returns
        async for tp, message in super().getmany(_ROOM_S if self._buffered_partitions else timeout):
            if self.placed and returns == self._returns:
                yield tp, message
        if returns != self._returns and self.assignment():
            await self._return_again()

    async def wait_first(self, *coros: Any, timeout: Any = None) -> Any:
        """Wait for the first of these, or until it stops.

        A record that is handed out nearly always finds room at once. Faust would make four tasks to learn that.
        """
        first, others = coros[0], coros[1:]
        if asyncio.iscoroutine(first) and not self.should_stop:
            try:
                first = _rest(first, first.send(None))
            except Exception as ended:
                for other in filter(asyncio.iscoroutine, others):
                    other.close()
                if not isinstance(ended, StopIteration):
                    raise
                return WaitResults([coros[0]], [ended.value], False)
        return await super().wait_first(first, *others, timeout=timeout)

    async def owns(self, tp: TP) -> bool:
        """Whether the group still includes this member: the broker refuses a commit of one it has removed."""
        return tp in self.assignment() and bool(await self._commit({tp: self._committed_offset[tp] or 0}))

    async def lag(self) -> int | None:
        """How many records are still to be read of what is assigned, the changelog left out; None around a rebalance."""
        left = 0
        try:
            for tp in self.assignment():
                end = None if self._is_changelog_tp(tp) else self.highwater(tp)
                position = await self.position(tp) if end is not None else None
                left += max(0, end - position) if end is not None and position is not None else 0
        except (IllegalStateError, AssertionError):
            return None
        return left

    def _forget_what_waits(self) -> None:
        self._waiting.forget()
        self._buffered_partitions.clear()

    async def _return_again(self) -> None:
        # When the next rebalance has begun it ends with a return. That something is assigned aiokafka asserts.
        with suppress(IllegalStateError, AssertionError):
            await self.perform_seek()


async def _rest(begun: Coroutine[Any, Any, Any], waits_for: Any) -> Any:
    """The rest of a coroutine that was begun and waits for something."""
    return await _resumed(begun, waits_for)


@types.coroutine
def _resumed(begun: Coroutine[Any, Any, Any], waits_for: Any) -> Generator[Any, Any, Any]:
    try:
        while True:
            try:
                got = yield waits_for
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is for the one that waits
                waits_for = begun.throw(error)
            else:
                waits_for = begun.send(got)
    except StopIteration as done:
        return done.value


def _size(message: Any) -> int:
    return len(message.value or b"") + len(message.key or b"")


class Transport(aiokafka.Transport):
    """Faust's transport with that consumer."""

    Consumer: ClassVar[Any] = Consumer
