"""Which partitions a process owns, and what it needs to know of each before it may act.

Inputs of a process share a partition count and are partitioned by cluster, so owning a partition number means owning it in
every topic. For each one, `Owner` opens a fenced `Journal`, reads the compacted inputs (`replayed`) from their beginning and
the others (`followed`) from the committed offset, and says `caught_up` once everything that was there at take-up has been
read. Nobody should act before that: half an inventory makes a wrong blast radius.

When a partition goes, `let_go` of the process runs inside the rebalance, before the next owner can be told that it is one.
When the journal says that somebody else owns it although the group has not told us, we join the group anew rather than open
the journal again: opening would fence the rightful owner.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import IllegalStateError

from streams.config.settings import KafkaSettings
from streams.kafka import clients
from streams.kafka.fenced_store import (
    Headers,
    Journal,
    nothing_is_left_out,
    nothing_rests,
    unmarked,
    unwatched,
)
from streams.kafka.topics import Topic
from streams.model.errors import FaultlineError, Fenced, Unreachable

D = TypeVar("D")

log = structlog.get_logger(__name__)


@dataclass(eq=False, slots=True)
class Owned(Generic[D]):
    """One partition while it is ours. A partition that goes and comes back is a new `Owned`."""

    partition: int
    journal: Journal[D]
    behind: dict[TopicPartition, int] = field(default_factory=dict)
    """Where each input ended at take-up, for those not read so far yet."""
    known: dict[TopicPartition, int] = field(default_factory=dict)
    """Of the inputs that are read from their beginning: up to where a predecessor took them in, or all there was if none did."""

    @property
    def caught_up(self) -> bool:
        """Whether everything that was there at take-up has been read."""
        return not self.behind


@dataclass(frozen=True, slots=True)
class Arrival(Generic[D]):
    """A record of an owned partition. `topic` is the name without the prefix."""

    owned: Owned[D]
    topic: str
    record: ConsumerRecord[bytes, bytes]


async def _nothing(partitions: Sequence[int]) -> None:
    """Stands in for a process that keeps nothing besides the journal."""


class Owner(ConsumerRebalanceListener, Generic[D]):  # type: ignore[misc]
    """Membership in the process's consumer group, with a journal for every partition that falls to it."""

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        name: str,
        topic: Topic,
        kind: type[D],
        key: Callable[[D], str],
        replayed: Sequence[Topic],
        followed: Sequence[Topic],
        rest: Callable[[str, bytes], Any] = nothing_rests,
        mark: Callable[[D], Headers] = unmarked,
        left_out: Callable[[Headers], Any] = nothing_is_left_out,
        let_go: Callable[[Sequence[int]], Awaitable[None]] = _nothing,
        progress: Callable[[], None] = unwatched,
    ) -> None:
        self._settings = settings
        self._name = name
        self._topic = topic
        self._kind = kind
        self._key = key
        self._rest = rest
        self._mark = mark
        self._left_out = left_out
        self._topics = {clients.topic_name(settings, t): t for t in (*replayed, *followed)}
        self._replayed = {clients.topic_name(settings, t) for t in replayed}
        self._let_go = let_go
        self._progress = progress
        self._consumer: AIOKafkaConsumer | None = None
        self._due: set[int] = set()
        self._broken = False
        self._orphans: list[Owned[D]] = []
        self.owned: dict[int, Owned[D]] = {}

    async def poll(self, *, timeout_ms: int = 100, max_records: int = 500) -> list[Arrival[D]]:
        """Take up what has newly fallen to us, then return what has arrived.

        Raises:
            Unreachable: when no broker answers.
            BadInput: when a journal holds a document that cannot be read.
        """
        if self._broken:
            await self.stop()
        if self._consumer is None:
            await self._join()
        assert self._consumer is not None
        await self._take_up(self._consumer)
        # A journal is read with a client that is stopped again, and aiokafka swallows a cancellation while it stops.
        clients.honour_cancellation()
        batches = await self._consumer.getmany(timeout_ms=timeout_ms, max_records=max_records)
        arrivals = [
            Arrival(owned, self._topics[place.topic].name, record)
            for place, records in batches.items()
            if (owned := self.owned.get(place.partition)) is not None
            for record in records
        ]
        await self._note_positions(self._consumer)
        return arrivals

    async def lag(self) -> int | None:
        """How many records are still to be read of what is assigned."""
        return await clients.lag(self._consumer) if self._consumer is not None else 0

    def lost(self, owned: Owned[D], error: FaultlineError) -> None:
        """A commit failed: drop the partition now and join the group anew at the next poll."""
        if self.owned.get(owned.partition) is owned:
            log.warning("partition lost", process=self._name, partition=owned.partition, reason=str(error))
            self._orphans.append(self.owned.pop(owned.partition))
            self._broken = True

    def place(self, topic: Topic, partition: int) -> TopicPartition:
        """Where the offset of an input is committed."""
        return TopicPartition(clients.topic_name(self._settings, topic), partition)

    async def stop(self) -> None:
        """Leave the group and let go of everything."""
        consumer, self._consumer = self._consumer, None
        self._broken = False
        self._due.clear()
        await self._drop()
        if consumer is not None:
            await consumer.stop()

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Stop acting on everything: in an eager rebalance all partitions go, also those that will come back."""
        self._due.clear()
        await self._drop()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """Remember what to take up; the work is done in `poll`, where its errors are seen."""
        self._due |= {place.partition for place in assigned}

    async def _join(self) -> None:
        consumer = clients.consumer(
            self._settings,
            group=self._name,
            fetch_max_wait_ms=100,
            partition_assignment_strategy=(RangePartitionAssignor,),
        )
        clients.subscribe(consumer, sorted(self._topics), self)
        self._consumer = consumer
        await clients.started(consumer, self._settings)

    async def _take_up(self, consumer: AIOKafkaConsumer) -> None:
        while self._due:
            partition = self._due.pop()
            log.info("partition assigned", process=self._name, partition=partition)
            journal = await Journal.open(
                self._settings,
                name=self._name,
                topic=self._topic,
                partition=partition,
                kind=self._kind,
                key=self._key,
                rest=self._rest,
                mark=self._mark,
                left_out=self._left_out,
                progress=self._progress,
            )
            places = [TopicPartition(name, partition) for name in self._topics]
            try:
                ends = await consumer.end_offsets(places)
                # Asked once the journal is ours: nobody else can move them any more.
                read = {place: await consumer.committed(place) for place in places}
                await self._go_back(consumer, read)
            except IllegalStateError:
                # A rebalance took it while the journal was being opened.
                await journal.close()
                continue
            known = {
                place: ends[place] if (before := read[place]) is None else before
                for place in places
                if place.topic in self._replayed
            }
            # Where it went and came back meanwhile, it is taken up anew: this journal may have been fenced in between.
            if set(places) <= consumer.assignment() and partition not in self._due:
                self.owned[partition] = Owned(partition, journal, dict(ends), known)
            else:
                await journal.close()

    async def _go_back(self, consumer: AIOKafkaConsumer, read: Mapping[TopicPartition, int | None]) -> None:
        """Read from where this owner has to begin: `replayed` inputs from their beginning, the others from the commit.

        A poll under way when the partition was assigned may have been handed records of it already. They came before
        anybody here could take them in, and were dropped: without going back, a person's word among them would be lost.
        """
        followed = {
            place: offset
            for place, offset in read.items()
            if place.topic not in self._replayed and offset is not None
        }
        await consumer.seek_to_beginning(*(place for place in read if place not in followed))
        for place, offset in followed.items():
            consumer.seek(place, offset)

    async def _note_positions(self, consumer: AIOKafkaConsumer) -> None:
        for owned in list(self.owned.values()):
            for place, end in list(owned.behind.items()):
                try:
                    if await consumer.position(place) >= end:
                        del owned.behind[place]
                except IllegalStateError:
                    break

    async def _drop(self) -> None:
        going, self.owned, self._orphans = [*self.owned.values(), *self._orphans], {}, []
        if going:
            await self._let_go([owned.partition for owned in going])
        for owned in going:
            await owned.journal.close()


LOST = (Fenced, Unreachable)
"""What a journal's commit raises when the partition has to be dropped: hand it to `Owner.lost`."""
