"""The raw partitions a detector owns, their state, and how it is restored from the previous owner's snapshot.

A newly assigned partition is restored from the snapshot its offset commit points to; the records between the snapshot and the
commit are then replayed without sending anything. Without a readable snapshot the last records before the commit are replayed
instead, with a warning in the log: older state is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError
from aiokafka.structs import OffsetAndMetadata

from streams.config.settings import KafkaSettings
from streams.detect.deduplication import RollUp
from streams.detect.rule_state import RuleState
from streams.detect.snapshot import Snapshot
from streams.detect.snapshot_store import Pointer, Reader, write
from streams.kafka import clients
from streams.kafka.topics import RAW_FABRIC, RAW_METRICS, RAW_NODE_LOGS
from streams.model import crash_points
from streams.model.clock import MonotonicClock
from streams.model.errors import BadInput

PROCESS = "detector"

CommitOffsets = Mapping[TopicPartition, tuple[int, str]]
"""Offset and metadata to commit, by partition."""

REWIND: Mapping[str, int] = {
    RAW_METRICS.name: 100_000,
    RAW_FABRIC.name: 20_000,
    RAW_NODE_LOGS.name: 2_000,
}
"""Records before the commit that are replayed without a snapshot: several scrapes of a few thousand series, and the seconds
of kernel log that a three-line message may span. At the prefilter's speed that is well under a second."""

MAX_READ_AGAIN = 5_000_000
"""Records replayed after a snapshot at most, where no newer one could be written for long."""

_SAVE_DUE_S = 0.25
_SAVE_ALL_S = 5.0


@dataclass(slots=True)
class Takeover:
    """The cost of taking a partition over."""

    began_s: float
    rows: int = 0
    records: int = 0
    bytes: int = 0


@dataclass(slots=True)
class DetectorPartition:
    """One owned partition. Records before `live_from` are replayed; `rule_state` and `rollup` cover everything before `seen_to`.

    `committed` is the offset of our last commit (-1: none), `pointer` its snapshot, `changed` true when the state differs from
    it. `latest_ms` is the latest time of any record, seen at `latest_s` of our own clock. `first` is the offset of its
    oldest record.
    """

    place: TopicPartition
    topic: str
    rule_state: RuleState = field(default_factory=RuleState)
    rollup: RollUp = field(default_factory=RollUp)
    live_from: int = 0
    seen_to: int = 0
    committed: int = -1
    pointer: Pointer | None = None
    changed: bool = False
    saved_s: float = 0.0
    takeover: Takeover | None = None
    latest_ms: int = 0
    latest_s: float = 0.0
    first: int = 0

    @property
    def source(self) -> str:
        """`topic/partition`, without the installation's prefix."""
        return f"{self.topic}/{self.place.partition}"

    def end(self) -> tuple[int, str]:
        """Offset and metadata of the next commit. A snapshot of unchanged state counts as taken now."""
        if self.pointer is not None and not self.changed:
            self.pointer = replace(self.pointer, as_of=self.seen_to, at_ms=self.latest_ms)
        return self.seen_to, self.pointer.text() if self.pointer else ""

    @property
    def live(self) -> bool:
        """True once the replay is over."""
        return self.seen_to >= self.live_from

    def read(self, records: Sequence[Any], values: Sequence[bytes], live: int, now_s: float) -> int:
        """Note that records were read, the last `live` of them for the first time. Returns how many were replayed."""
        self.seen_to = records[-1].offset + 1
        self.latest_ms, self.latest_s = max(self.latest_ms, records[-1].timestamp), now_s
        replayed = len(records) - live
        if replayed and self.takeover is not None:
            self.takeover.records += replayed
            self.takeover.bytes += sum(map(len, values[:replayed]))
        return replayed

    def now_ms(self, now_s: float) -> int:
        """The time by the partition's records. It goes on while none come, and stays behind while old ones are read."""
        return self.latest_ms + round((now_s - self.latest_s) * 1000)

    @property
    def savable(self) -> bool:
        """True when the state changed and covers exactly what is committed."""
        return self.changed and self.seen_to == self.committed


class DetectorPartitions(ConsumerRebalanceListener):  # type: ignore[misc]
    """All partitions of this process.

    `lock` guards what a change of ownership must not interrupt. `term` counts those changes: a batch fetched in an earlier term
    must not be handled. `consumer`, `producer` and `delivered`, which waits until all that was read is committed, are set before
    the first assignment.

    Args:
        settings: The broker.
        names: The name of each raw topic without the installation's prefix, by its name on the broker.
        snapshot_s: Seconds between snapshots of a partition that changes.
        clock: Seconds.
        at: Called with the name of each crash point.
    """

    consumer: AIOKafkaConsumer
    producer: AIOKafkaProducer
    delivered: Callable[[], Awaitable[None]]

    def __init__(
        self,
        settings: KafkaSettings,
        names: Mapping[str, str],
        *,
        snapshot_s: float,
        clock: MonotonicClock,
        at: crash_points.CrashHook,
    ) -> None:
        self._settings = settings
        self._names = names
        self._snapshot_s = snapshot_s
        self._clock = clock
        self._at = at
        self._log = structlog.get_logger(process=PROCESS)
        self._held: dict[TopicPartition, DetectorPartition] = {}
        self._assigned: set[TopicPartition] = set()
        self._restored: set[TopicPartition] = set()
        self._leaving = False
        self.lock = asyncio.Lock()
        self.term = 0

    def __getitem__(self, partition: TopicPartition) -> DetectorPartition:
        return self._held[partition]

    def __iter__(self) -> Iterator[DetectorPartition]:
        """All partitions whose state is restored."""
        return iter([self._held[partition] for partition in self._restored])

    @property
    def restoring(self) -> bool:
        """True while some partition is not restored: no record may be read until all are."""
        return self._restored != self._assigned

    def counts(self) -> dict[str, int]:
        """How many partitions the raw topics have, by their name without the prefix."""
        known = {
            name: self.consumer.partitions_for_topic(on_broker) for on_broker, name in self._names.items()
        }
        return {name: len(numbers) for name, numbers in known.items() if numbers}

    def undelivered(self, place: TopicPartition) -> int | None:
        """The first offset of a partition that was read and is not committed yet; None where all is."""
        held = self._held.get(place)
        if held is None or held.seen_to <= max(held.live_from, held.committed):
            return None
        return held.committed if held.committed >= 0 else held.first

    def written_ms(self, place: TopicPartition) -> int | None:
        """The latest time of a partition's records, as far as any was read."""
        held = self._held.get(place)
        return held.latest_ms or None if held is not None else None

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Wait for the batch in hand to be committed and save all state, before another process takes over."""
        self._leaving = True
        async with self.lock:
            self._leaving = False
            self.term += 1
            await self.delivered()
            await self.save_all()
            self._assigned, self._restored = set(), set()

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Note what is assigned. Heartbeats stop while this runs, so the state is restored later."""
        self._assigned, self._restored = set(assigned), set()
        for partition in set(self._held) - self._assigned:
            del self._held[partition]

    async def restore_assigned(self, progress: Callable[[], None]) -> None:
        """Restore the state of all assigned partitions and seek to where reading starts. To be called with the lock held.

        `progress` is called for each partition.

        Raises:
            KafkaError: when Kafka fails.
        """
        self._restored = set()
        partitions = sorted(self._assigned)
        commits = await clients.committed(self._settings, PROCESS, partitions)
        firsts = await self.consumer.beginning_offsets(partitions)
        reader = Reader(self._settings)
        restored: list[DetectorPartition] = []
        try:
            for partition in partitions:
                if self._leaving:
                    break
                progress()
                restored.append(
                    await self._restore_one(partition, firsts[partition], commits.get(partition), reader)
                )
            self._begin(restored)
        except IllegalStateError as error:
            self._log.warning("partitions revoked while their state was being restored", error=str(error))
        finally:
            await reader.stop()

    def _begin(self, restored: Sequence[DetectorPartition]) -> None:
        """Seek to where reading starts. Batches fetched before are void, those fetched from here on count.

        There must be no await in between: a record fetched after the seek but in the old term would be dropped with its batch,
        and never be fetched again.
        """
        self.term += 1
        for held in restored:
            self.consumer.seek(held.place, held.seen_to)
            self._held[held.place] = held
            self._restored.add(held.place)

    def offsets_to_commit(self, partitions: Iterable[TopicPartition]) -> CommitOffsets:
        """Offset and metadata of the partitions that were read beyond their last commit, replays aside."""
        return {
            partition: held.end()
            for partition in partitions
            if (held := self._held[partition]).seen_to > max(held.live_from, held.committed)
        }

    async def commit(self, offsets: CommitOffsets) -> None:
        """Commit offsets, unless another process owns some of the partitions now."""
        if not offsets:
            return
        try:
            await self.consumer.commit(offsets)
        except (CommitFailedError, IllegalStateError) as error:
            # The new owner writes the same signals, with the same ids.
            self._log.warning("partitions revoked before their commit", error=str(error))
            return
        for partition, (offset, _) in offsets.items():
            self._held[partition].committed = offset

    @property
    def save_is_due(self) -> bool:
        """True when a changed partition was not saved for `snapshot_s`."""
        now_s = self._clock()
        return any(held.changed and held.live and now_s - held.saved_s >= self._snapshot_s for held in self)

    async def save_due(self) -> None:
        """Save what is due, for a quarter of a second at most; the rest is saved next time."""
        began_s = self._clock()
        due = [held for held in self if held.savable and began_s - held.saved_s >= self._snapshot_s]
        await self._save(sorted(due, key=lambda held: held.saved_s), within_s=_SAVE_DUE_S)

    async def save_all(self) -> None:
        """Save all that changed, for five seconds at most: the next owners wait for this."""
        await self._save([held for held in self if held.savable], within_s=_SAVE_ALL_S)

    async def _save(self, partitions: Sequence[DetectorPartition], *, within_s: float) -> None:
        began_s = self._clock()
        for held in partitions:
            await self._save_one(held)
            if self._clock() - began_s > within_s:
                return

    async def _save_one(self, held: DetectorPartition) -> None:
        began_s = held.saved_s = self._clock()
        snapshot = Snapshot(held.source, held.rule_state, held.rollup)
        slot = 1 - held.pointer.slot if held.pointer else 0
        try:
            as_of, at_ms = held.seen_to, held.latest_ms
            pointer = await write(
                self.producer, self._settings, snapshot, as_of=as_of, at_ms=at_ms, slot=slot
            )
            self._at(crash_points.SNAPSHOT_WRITTEN)
            await self.consumer.commit({held.place: (held.seen_to, pointer.text())})
        except (CommitFailedError, IllegalStateError) as error:
            self._log.warning("partition revoked before its snapshot was committed", error=str(error))
            return
        except KafkaError as error:
            self._log.warning("snapshot not written", source=held.source, error=repr(error))
            return
        held.pointer, held.changed = pointer, False
        self._at(crash_points.SNAPSHOT_COMMITTED)
        if snapshot.unwritable:
            self._log.warning(
                "snapshot without rows that JSON cannot hold", source=held.source, rows=snapshot.unwritable
            )
        self._log.debug(
            "snapshot written", source=held.source, rows=snapshot.rows, seconds=self._clock() - began_s
        )

    async def _restore_one(
        self, partition: TopicPartition, first: int, commit: OffsetAndMetadata | None, reader: Reader
    ) -> DetectorPartition:
        """The partition with its last state and `seen_to` where reading starts; `first` is the offset of its oldest record."""
        now_s = self._clock()
        fresh = DetectorPartition(
            partition, self._names[partition.topic], saved_s=now_s, seen_to=first, latest_s=now_s, first=first
        )
        if commit is None:
            fresh.pointer = Pointer(first)
            return fresh
        held = self._held.get(partition)
        if held is not None and held.seen_to == commit.offset >= held.live_from:
            held.changed |= held.pointer is None or commit.metadata != held.pointer.text()
            held.committed = commit.offset
            return held
        return await self._take_over(fresh, first, commit, reader)

    async def _take_over(
        self, held: DetectorPartition, first: int, commit: OffsetAndMetadata, reader: Reader
    ) -> DetectorPartition:
        held.live_from = held.committed = commit.offset
        held.takeover = Takeover(self._clock())
        try:
            snapshot, held.pointer = await _snapshot(held.source, commit, reader)
        except BadInput as error:
            held.seen_to = max(first, commit.offset - REWIND.get(held.topic, 0))
            self._log.warning(
                "no usable snapshot: replaying the last records, older state is lost",
                source=held.source,
                records=commit.offset - held.seen_to,
                reason=str(error),
            )
        else:
            held.rule_state, held.rollup = snapshot.rule_state, snapshot.rollup
            held.latest_ms = held.pointer.at_ms
            held.takeover.rows = snapshot.rows
            held.seen_to = max(first, held.pointer.as_of, commit.offset - MAX_READ_AGAIN)
            if held.seen_to > held.pointer.as_of:
                self._log.warning(
                    "snapshot too old: some records after it are not replayed",
                    source=held.source,
                    records=held.seen_to - held.pointer.as_of,
                )
        held.seen_to = min(held.seen_to, max(first, commit.offset))
        held.changed = held.pointer is None or held.seen_to < commit.offset
        self.log_takeover(held)
        return held

    def log_takeover(self, held: DetectorPartition) -> None:
        """Log once what taking a partition over cost, when its replay is over."""
        if held.live and held.takeover is not None:
            cost, held.takeover = held.takeover, None
            self._log.info(
                "partition taken over",
                source=held.source,
                seconds=round(self._clock() - cost.began_s, 3),
                rows=cost.rows,
                records=cost.records,
                bytes=cost.bytes,
            )


async def _snapshot(source: str, commit: OffsetAndMetadata, reader: Reader) -> tuple[Snapshot, Pointer]:
    pointer = Pointer.parse(commit.metadata or "")
    if pointer is None:
        raise BadInput("the commit has no snapshot")
    if pointer.as_of > commit.offset:
        raise BadInput(f"the snapshot is of offset {pointer.as_of}, after the commit at {commit.offset}")
    return await reader.read(source, pointer), pointer
