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
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from typing import Any, ClassVar

from aiokafka.errors import IllegalStateError
from faust.transport.drivers import aiokafka
from faust.types import TP

from streams import kafka


class Consumer(aiokafka.Consumer):
    """A consumer of the streams' own topics that hands out every record at least once."""

    placed = False
    """Whether what is read next follows what was committed, in every partition. Until then nothing is handed out."""
    _resumed = False
    _returns = 0

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Note that positions are uncertain from now on."""
        self.placed = self._resumed = False
        await super().on_partitions_revoked(revoked)

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Note that positions are uncertain from now on."""
        self.placed = self._resumed = False
        kafka.tell_assigned(tp for tp in assigned if not self._is_changelog_tp(tp))
        await super().on_partitions_assigned(assigned, generation_id)

    def resume_partitions(self, tps: Iterable[TP]) -> None:
        """Note when the streams' own partitions go on, with which a rebalance ends."""
        resumed = set(tps)
        self._resumed |= any(not self._is_changelog_tp(tp) for tp in resumed)
        super().resume_partitions(resumed)

    async def perform_seek(self) -> None:
        """Return to the committed offsets. It does not count before the partitions go on: Faust drops what it fetches then."""
        resumed = self._resumed
        await super().perform_seek()
        self._returns += 1
        self.placed |= resumed and self._resumed

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Return to the committed offsets, and to the beginning where there are none."""
        committed = await super().seek_to_committed()
        bare = [tp for tp, offset in committed.items() if not offset and not self._is_changelog_tp(tp)]
        if bare:
            await self.seek_wait(await self.earliest_offsets(*bare))
        return committed

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, Any]]:
        """Hand out a batch of records; those of a changelog always, as Faust returns to these by itself."""
        returns = self._returns
        async for tp, message in super().getmany(timeout):
            if self._is_changelog_tp(tp) or (self.placed and returns == self._returns):
                yield tp, message
        if returns != self._returns and self.assignment():
            await self._return_again()

    async def owns(self, tp: TP) -> bool:
        """Whether the group still counts this member in, asked of the broker: who was put out may not commit."""
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

    async def _return_again(self) -> None:
        # When the next rebalance has begun it ends with a return. That something is assigned aiokafka asserts.
        with suppress(IllegalStateError, AssertionError):
            await self.perform_seek()


class Transport(aiokafka.Transport):
    """Faust's transport with that consumer."""

    Consumer: ClassVar[Any] = Consumer
