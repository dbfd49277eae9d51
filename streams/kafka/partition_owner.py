"""Membership in a consumer group, with a fenced document store for every partition that is assigned.

Inputs of a process share a partition count and are partitioned by cluster, so owning a partition number means owning it in
every topic. For each one, `PartitionOwner` opens a `FencedStore`, reads the compacted inputs (`replayed`) from their beginning
and the others (`followed`) from the committed offset, and reports `caught_up` once everything that was there at assignment has
been read. Nobody should act before that: half an inventory makes a wrong blast radius.

When a partition is revoked, `on_revoked` runs inside the rebalance, before the next owner can be assigned. When a commit finds
the store fenced although the group has not told us, we rejoin the group instead of opening the store again: opening would fence
the rightful owner.
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
from streams.kafka.consumer_lag import ConsumerLag
from streams.kafka.fenced_store import DocumentType, FencedStore
from streams.kafka.topics import Topic
from streams.model.errors import FaultlineError, Fenced, Unreachable
from streams.model.garbage import collect_seldom, include_again
from streams.model.pulse import PARTITIONS, STATE, Pulse
from streams.telemetry import metrics as shown
from streams.telemetry.registry import Metrics

D = TypeVar("D")

log = structlog.get_logger(__name__)


@dataclass(eq=False, slots=True)
class OwnedPartition(Generic[D]):
    """One partition while it is ours. One that is revoked and assigned again is a new `OwnedPartition`."""

    partition: int
    store: FencedStore[D]
    behind: dict[TopicPartition, int] = field(default_factory=dict)
    """Where each input ended at assignment, for those not read that far yet."""
    known: dict[TopicPartition, int] = field(default_factory=dict)
    """For the replayed inputs: the offset a previous owner had processed them up to, or their end if none had."""

    @property
    def caught_up(self) -> bool:
        """Whether everything that was there at assignment has been read."""
        return not self.behind


@dataclass(frozen=True, slots=True)
class OwnedRecord(Generic[D]):
    """A record of an owned partition. `topic` is the name without the prefix."""

    owned: OwnedPartition[D]
    topic: str
    record: ConsumerRecord[bytes, bytes]


class PartitionOwner(ConsumerRebalanceListener, Generic[D]):  # type: ignore[misc]
    """Membership in the process's consumer group, with a store for every assigned partition."""

    def __init__(
        self,
        settings: KafkaSettings,
        documents: DocumentType[D],
        *,
        replayed: Sequence[Topic],
        followed: Sequence[Topic],
        on_revoked: Callable[[Sequence[int]], Awaitable[None]] | None = None,
        unfinished: Callable[[int], int | None] = lambda partition: None,
        pulse: Pulse | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """`unfinished`: of a partition's `followed` input, the first offset that was read and is not processed yet, if any."""
        self._settings = settings
        self._documents = documents
        self._topics = {clients.topic_name(settings, t): t for t in (*replayed, *followed)}
        self._replayed = {clients.topic_name(settings, t) for t in replayed}
        self._on_revoked = on_revoked
        self._pulse = pulse = pulse or Pulse()
        self._metrics = metrics or Metrics(documents.process)
        for topic in self._topics.values():
            self._metrics.begin(shown.RECORDS, topic.name)
        self._unfinished = unfinished
        self._written_ms: dict[TopicPartition, int] = {}
        self._lag = ConsumerLag(
            settings,
            self._metrics,
            pulse,
            unfinished=self._first_unfinished,
            written_ms=self._written_ms.get,
            waits=self._is_behind,
        )
        self._consumer: AIOKafkaConsumer | None = None
        self._assigned: set[int] = set()
        self._revocations = 0
        self._broken = False
        self._dropped: list[OwnedPartition[D]] = []
        self.owned: dict[int, OwnedPartition[D]] = {}

    async def poll(self, *, timeout_ms: int = 100, max_records: int = 500) -> list[OwnedRecord[D]]:
        """Open the store of newly assigned partitions, then return the records that have arrived.

        Raises:
            Unreachable: when no broker answers.
            BadInput: when a store holds an unreadable document that may not be skipped.
        """
        if self._broken:
            await self.stop()
        if self._consumer is None:
            await self._join()
        assert self._consumer is not None
        await self._acquire(self._consumer)
        # Opening a store stops a client, and aiokafka swallows a cancellation while it stops.
        clients.honour_cancellation()
        batches = await self._consumer.getmany(timeout_ms=timeout_ms, max_records=max_records)
        arrivals = [
            OwnedRecord(owned, self._topics[place.topic].name, record)
            for place, records in batches.items()
            if (owned := self.owned.get(place.partition)) is not None
            for record in records
        ]
        for place, records in batches.items():
            if records:
                self._written_ms[place] = records[-1].timestamp
                self._metrics.add(shown.RECORDS, len(records), self._topics[place.topic].name, "handled")
        await self._note_positions(self._consumer)
        return arrivals

    def count_dead_letter(self, topic: Topic) -> None:
        """Count a record that cannot be read."""
        self._metrics.add(shown.RECORDS, 1, topic.name, "dead_letter")
        self._metrics.add(shown.DEAD_LETTERS, 1, self._documents.process, "unreadable")

    async def lag(self) -> int | None:
        """How many records of the assigned partitions are still to be read."""
        return await clients.lag(self._consumer) if self._consumer is not None else 0

    def drop_partition(self, owned: OwnedPartition[D], error: FaultlineError) -> None:
        """A commit failed: drop the partition now and rejoin the group at the next poll."""
        if self.owned.get(owned.partition) is owned:
            log.warning(
                "partition lost",
                process=self._documents.process,
                partition=owned.partition,
                reason=str(error),
            )
            self._dropped.append(self.owned.pop(owned.partition))
            self._broken = True

    def place(self, topic: Topic, partition: int) -> TopicPartition:
        """The topic and partition under which the offset of an input is committed."""
        return TopicPartition(clients.topic_name(self._settings, topic), partition)

    async def stop(self) -> None:
        """Leave the group and release every partition."""
        consumer, self._consumer = self._consumer, None
        self._lag.consumer = None
        self._broken = False
        await self._drop()
        if consumer is not None:
            await clients.stopped(consumer)
        # Last: until it has left the group, a rebalance may assign it something. To open that later would fence who has it then.
        self._assigned.clear()

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Release everything: an eager rebalance revokes all partitions, also those that will come back."""
        self._revocations += 1
        self._assigned.clear()
        await self._drop()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """Remember what was assigned; the stores are opened in `poll`, where errors reach the caller."""
        self._assigned |= {place.partition for place in assigned}

    async def _join(self) -> None:
        consumer = clients.consumer(
            self._settings,
            group=self._documents.process,
            fetch_max_wait_ms=100,
            partition_assignment_strategy=(RangePartitionAssignor,),
        )
        clients.subscribe(consumer, sorted(self._topics), self)
        self._consumer = consumer
        with self._pulse.waiting(PARTITIONS):
            await clients.started(consumer, self._settings)
        self._lag.consumer = consumer
        collect_seldom()

    def _first_unfinished(self, place: TopicPartition) -> int | None:
        """The first offset of an input that is not processed; `replayed` inputs are processed as they are read."""
        owned = self.owned.get(place.partition)
        if place.topic in self._replayed or owned is None or not owned.caught_up:
            return None
        return self._unfinished(place.partition)

    def _is_behind(self, place: TopicPartition) -> bool:
        """Whether a partition is still being read back."""
        owned = self.owned.get(place.partition)
        return owned is None or not owned.caught_up

    async def _acquire(self, consumer: AIOKafkaConsumer) -> None:
        while self._assigned:
            partition, revocations = self._assigned.pop(), self._revocations
            log.info("partition assigned", process=self._documents.process, partition=partition)
            with self._pulse.waiting(STATE):
                store = await FencedStore.open(
                    self._settings, self._documents, partition, progress=self._pulse.beat
                )
            places = [TopicPartition(name, partition) for name in self._topics]
            try:
                ends = await consumer.end_offsets(places)
                # Only now that the store is ours: nobody else can move the offsets any more.
                read = {place: await consumer.committed(place) for place in places}
                await self._seek_to_start(consumer, read)
            except IllegalStateError:
                # A rebalance revoked it while the store was being opened.
                await store.close()
                continue
            known = {
                place: ends[place] if (before := read[place]) is None else before
                for place in places
                if place.topic in self._replayed
            }
            # If it was revoked meanwhile, this store may have been fenced; if it came back, it is opened again. The consumer
            # shows the old assignment until the rebalance is over: a partition kept then would never be caught up.
            if set(places) <= consumer.assignment() and revocations == self._revocations:
                self.owned[partition] = OwnedPartition(partition, store, dict(ends), known)
            else:
                await store.close()

    async def _seek_to_start(
        self, consumer: AIOKafkaConsumer, read: Mapping[TopicPartition, int | None]
    ) -> None:
        """Seek to where this owner has to start: `replayed` inputs at their beginning, the others at the committed offset.

        A poll in progress during the assignment may already have fetched records, and they were dropped because the partition
        was not open yet. Without seeking back, an operator's command among them would be lost.
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
        behind = [owned for owned in self.owned.values() if not owned.caught_up]
        for owned in behind:
            for place, end in list(owned.behind.items()):
                try:
                    if await consumer.position(place) >= end:
                        del owned.behind[place]
                except IllegalStateError:
                    break
        if any(owned.caught_up for owned in behind):
            collect_seldom()

    async def _drop(self) -> None:
        going, self.owned, self._dropped = [*self.owned.values(), *self._dropped], {}, []
        if going:
            include_again()
        try:
            if going and self._on_revoked is not None:
                await self._on_revoked([owned.partition for owned in going])
        finally:
            for owned in going:
                await owned.store.close()


PARTITION_LOST = (Fenced, Unreachable)
"""What a commit raises when the partition has to be dropped: pass it to `PartitionOwner.drop_partition`."""
