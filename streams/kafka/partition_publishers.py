"""The life of a process that has one publisher for each partition it owns: chat and notifier.

What decides is compacted and read again at every start; the timeline is read from the committed offset. A publisher begins once
all of that has been read, is cancelled when its partition goes to another owner, and ends the process by any other failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NoReturn, Protocol, TypeVar

import structlog
from aiokafka import ConsumerRecord, TopicPartition

from streams.config.settings import KafkaSettings
from streams.kafka.clients import coordinates
from streams.kafka.fenced_store import DocumentType, Outgoing
from streams.kafka.partition_owner import PARTITION_LOST, OwnedPartition, PartitionOwner
from streams.kafka.topics import TIMELINE, Topic
from streams.model.errors import BadInput
from streams.model.pulse import Pulse
from streams.telemetry.registry import Metrics

log = structlog.get_logger(__name__)


class Publisher(Protocol):
    """Publishes what one partition's documents call for."""

    @property
    def first_waiting(self) -> int | None:
        """The offset of the first timeline record that was read and is not stored yet; None while there is none."""

    def take_dead_letter(self, letter: Outgoing, offset: int) -> None:
        """Commit this letter with the timeline offset that skips its record."""

    async def publish(self) -> NoReturn:
        """Work until cancelled.

        Raises:
            Fenced, Unreachable: the partition is lost.
        """


D = TypeVar("D")
P = TypeVar("P", bound=Publisher)


class PartitionPublishers(Generic[D, P]):
    """Owns partitions with a publisher for each.

    Args:
        replayed: The topics read from the beginning; the timeline is followed beside them.
        new: Makes the publisher of a partition, given where its timeline's offset is committed.
        take: Hands a record of a topic (its short name) to a publisher; raises BadInput when it cannot be read.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        documents: DocumentType[D],
        *,
        replayed: Sequence[Topic],
        new: Callable[[OwnedPartition[D], TopicPartition], P],
        take: Callable[[P, str, ConsumerRecord[bytes, bytes]], None],
        pulse: Pulse,
        metrics: Metrics,
    ) -> None:
        self._process, self._new, self._take, self._pulse = documents.process, new, take, pulse
        self._publishers: dict[OwnedPartition[D], P] = {}
        self._working: dict[OwnedPartition[D], asyncio.Task[NoReturn]] = {}
        self._failure: Exception | None = None
        self._owner: PartitionOwner[D] = PartitionOwner(
            settings,
            documents,
            replayed=replayed,
            followed=(TIMELINE,),
            on_revoked=self._revoke,
            unfinished=self._first_waiting,
            pulse=pulse,
            metrics=metrics,
        )

    def __iter__(self) -> Iterator[P]:
        return iter(self._publishers.values())

    async def run(self) -> NoReturn:
        """Own partitions and let their publishers work.

        Raises:
            Unreachable: when no broker answers.
            BadInput: when a stored document cannot be read.
        """
        self._pulse.lag = self._owner.lag
        try:
            while True:
                for arrival in await self._owner.poll():
                    self._pulse.count("records")
                    self._read(self._of(arrival.owned), arrival.topic, arrival.record)
                self._start()
                self._check()
                self._pulse.ready(all(owned.caught_up for owned in self._owner.owned.values()))
        finally:
            await self._owner.stop()
            self._raise_failure()  # also one of letting go just now

    def _read(self, publisher: P, topic: str, record: ConsumerRecord[bytes, bytes]) -> None:
        try:
            self._take(publisher, topic, record)
        except BadInput as error:
            log.error("unreadable record", at=coordinates(record), reason=str(error))
            # Only for the timeline: the others are compacted and read again at every start, so nothing is lost there.
            if topic == TIMELINE.name:
                self._owner.count_dead_letter(TIMELINE)
                letter = Outgoing.dead_letter(record, topic=topic, stage=self._process, reason=str(error))
                publisher.take_dead_letter(letter, record.offset)

    def _of(self, owned: OwnedPartition[D]) -> P:
        if owned not in self._publishers:
            self._publishers[owned] = self._new(owned, self._owner.place(TIMELINE, owned.partition))
        return self._publishers[owned]

    def _first_waiting(self, partition: int) -> int | None:
        owned = self._owner.owned.get(partition)
        publisher = self._publishers.get(owned) if owned is not None else None
        return publisher.first_waiting if publisher is not None else None

    def _start(self) -> None:
        for owned in self._owner.owned.values():
            if owned.caught_up and owned not in self._working:
                self._working[owned] = asyncio.create_task(
                    self._of(owned).publish(), name=f"{self._process} of partition {owned.partition}"
                )

    def _check(self) -> None:
        """Drop partitions that were lost; any other failure of a publisher ends the process."""
        self._raise_failure()
        for owned, work in list(self._working.items()):
            if not work.done():
                continue
            error = work.exception()
            if isinstance(error, PARTITION_LOST) and self._owner.owned.get(owned.partition) is owned:
                self._owner.drop_partition(owned, error)
            elif error is not None and not isinstance(error, PARTITION_LOST):
                raise error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _revoke(self, partitions: Sequence[int]) -> None:
        """Stop the publishers of revoked partitions and wait for calls in flight."""
        revoked = [owned for owned in self._publishers if owned.partition in partitions]
        going = [work for owned in revoked if (work := self._working.pop(owned, None))]
        for work in going:
            work.cancel()
        for outcome in await asyncio.gather(*going, return_exceptions=True):
            if isinstance(outcome, Exception) and not isinstance(outcome, PARTITION_LOST):
                # Whoever calls this for the group only logs what is raised in here.
                self._failure = outcome
        for owned in revoked:
            del self._publishers[owned]
