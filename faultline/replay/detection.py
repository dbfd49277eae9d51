"""What the detector finds in the raw records of a capture, partition by partition, with when a replay learns of it.

A partition's signals depend on its own records and on the replay's clock only: on no other partition, and on nothing that is
decided. So topics may be read one after the other, or in several processes, and what was found is merged by `order`.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from operator import attrgetter, itemgetter
from typing import NamedTuple

from faultline.replay.topic_records import Batch, TopicRecords, from_micros
from streams.detect import Detector
from streams.detect.batch import read_safely
from streams.detect.deduplication import RollUp
from streams.model.clock import to_millis
from streams.model.signal import Signal

TICK = timedelta(seconds=1)


class Moment(IntEnum):
    """What made the detector send signals, in the order of what happens at one time."""

    TICK = 0
    RECORD = 1
    END = 2


class Found(NamedTuple):
    """Signals that are sent together.

    `due` is when they are learned of: the latest time of any record of the partition until then. `at` is the time of the record
    itself, which may be earlier.
    """

    due: datetime
    moment: Moment
    topic: str
    partition: int
    offset: int
    at: datetime
    signals: tuple[Signal, ...]


order = itemgetter(0, 1, 2, 3, 4)
"""The order in which a replay takes what was found: by time, topic, partition and offset."""


@dataclass(frozen=True, slots=True)
class Clock:
    """A replay's time: it begins at `begin` and ticks every second to `end`; `last` is the time of its last record."""

    begin: datetime
    last: datetime
    end: datetime

    def ticks(self, until: datetime) -> int:
        """How many ticks there are up to a time."""
        return (until - self.begin) // TICK

    def tick(self, number: int) -> datetime:
        """The time of a tick, counted from 1."""
        return self.begin + number * TICK


class Detection:
    """Detects in the records of all topics, or of some partitions of each, in this process."""

    def __init__(
        self,
        cluster: str,
        clock: Clock,
        topics: Mapping[str, TopicRecords],
        partitions: Mapping[str, Container[int]] | None = None,
    ) -> None:
        detector = detector_of(cluster, topics)
        chosen: Mapping[str, Container[int] | None] = partitions or dict.fromkeys(topics)
        self._topics = [
            TopicDetection(name, topics[name], detector, clock, only) for name, only in chosen.items()
        ]

    @property
    def dead_letters(self) -> int:
        """Records that could not be read, so far."""
        return sum(topic.dead_letters for topic in self._topics)

    def found(self) -> Iterator[Found]:
        """What is found, in `order`."""
        return heapq.merge(*(topic.found() for topic in self._topics), key=order)


def detector_of(cluster: str, topics: Mapping[str, TopicRecords]) -> Detector:
    """A detector for these topics, which knows how many partitions each has, as the process does."""
    detector = Detector(cluster)
    weights = {topic: records.survey.weights for topic, records in topics.items()}
    detector.set_partitions({topic: max(found) + 1 for topic, found in weights.items() if found})
    return detector


class TopicDetection:
    """Detects in the records of one topic, or of some of its partitions.

    Args:
        topic: The topic's name.
        records: Its records.
        detector: A detector that nobody else gives records of these partitions.
        clock: The time of the replay.
        only: The partitions; None for all.
    """

    def __init__(
        self,
        topic: str,
        records: TopicRecords,
        detector: Detector,
        clock: Clock,
        only: Container[int] | None = None,
    ) -> None:
        self.dead_letters = 0
        """Records that could not be read, so far."""
        self._topic = topic
        self._records = records
        self._detector = detector
        self._clock = clock
        self._only = only
        self._rollups: defaultdict[int, RollUp] = defaultdict(RollUp)
        self._latest: dict[int, int] = {}
        self._ticked: defaultdict[int, int] = defaultdict(int)
        """The tick up to which repeats were counted, by partition."""
        self._unfinished: set[int] = set()
        """Partitions with an unfinished line."""
        self._found: list[Found] = []

    def found(self) -> Iterator[Found]:
        """What is found, in `order`.

        It waits in memory for as long as something earlier may come: as far as partitions lie apart in the file.
        """
        disorder = self._records.survey.disorder
        for batch in self._records.batches(self._only):
            self._read(batch)
            if self._latest:
                reached = (
                    batch.reached if batch.reached is not None else max(self._latest.values()) - disorder
                )
                yield from self._take_until(from_micros(reached))
        self._finish()
        yield from sorted(self._found, key=order)

    def _read(self, batch: Batch) -> None:
        """Read what the detector wants of a batch, and while a line is unfinished what may be its rest."""
        dues = self._dues(batch)
        position = 0
        for index in (*self._detector.select(batch.values), len(batch.values)):
            while self._unfinished and position < index:
                if batch.partitions[position] in self._unfinished:
                    self._take(batch, position, dues[position], is_selected=False)
                position += 1
            if index < len(batch.values):
                self._take(batch, index, dues[index], is_selected=True)
            position = index + 1

    def _dues(self, batch: Batch) -> list[int]:
        """The latest time of each record's partition up to it, in µs."""
        latest = self._latest
        dues = []
        for partition, time in zip(batch.partitions, batch.times, strict=True):
            known = latest.get(partition)
            if known is None or time > known:
                latest[partition] = known = time
            dues.append(known)
        return dues

    def _take(self, batch: Batch, index: int, due_us: int, *, is_selected: bool) -> None:
        """One record, at its time: what its time makes due goes before what is in it."""
        record, due = batch.record(index), from_micros(due_us)
        partition, at = record.partition, record.timestamp
        rollup = self._rollups[partition]
        self._count_repeats(partition, due)
        if partition in self._unfinished:
            held = self._detector.flush_unfinished(self._topic, partition, at, rollup)
            self._add(due, Moment.RECORD, partition, record.offset, at, held)
        if is_selected or self._is_wanted(batch.values[index], partition):
            detected = read_safely(self._detector, record, rollup)
            self.dead_letters += bool(detected.dead)
            self._add(due, Moment.RECORD, partition, record.offset, at, detected.signals)
        if self._detector.is_line_unfinished(self._topic, partition):
            self._unfinished.add(partition)
        else:
            self._unfinished.discard(partition)

    def _is_wanted(self, value: bytes, partition: int) -> bool:
        return any(
            True for _ in self._detector.wanted([value], self._detector.rule_state(self._topic, partition))
        )

    def _take_until(self, safe: datetime) -> Iterator[Found]:
        """What was found before a time that no record to come is earlier than."""
        for partition in self._rollups:
            self._count_repeats(partition, safe)
        self._found.sort(key=order)
        cut = bisect_left(self._found, safe, key=attrgetter("due"))
        taken, self._found = self._found[:cut], self._found[cut:]
        yield from taken

    def _finish(self) -> None:
        """After the last record: unfinished lines, and what is left of the counts of repeats."""
        clock = self._clock
        for partition in self._rollups:
            self._count_repeats(partition, clock.last)
        at = clock.tick(clock.ticks(clock.last))
        for partition in self._unfinished:
            held = self._detector.flush_unfinished(self._topic, partition, None, self._rollups[partition])
            self._add(clock.last, Moment.END, partition, 0, at, held)
        for partition in self._rollups:
            self._count_repeats(partition, clock.end)

    def _count_repeats(self, partition: int, until: datetime) -> None:
        """Take the counts of repeats whose window ends by a tick up to `until`."""
        rollup, number, last = self._rollups[partition], self._ticked[partition], self._clock.ticks(until)
        while rollup.waiting and number < last:
            number += 1
            now = self._clock.tick(number)
            self._add(now, Moment.TICK, partition, 0, now, rollup.due(to_millis(now), now.timestamp()))
        self._ticked[partition] = max(number, last)

    def _add(
        self,
        due: datetime,
        moment: Moment,
        partition: int,
        offset: int,
        at: datetime,
        signals: Sequence[Signal],
    ) -> None:
        if signals:
            self._found.append(Found(due, moment, self._topic, partition, offset, at, tuple(signals)))
