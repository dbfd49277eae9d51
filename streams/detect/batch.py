"""One poll's worth of records: what was found in them, where each of them went, and what has to be written.

Every record ends in exactly one of three places: it gave signals, it is ignored, or it is a dead letter (then with whatever
signals its readable part gave).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from streams.detect.deduplication import RollUp
from streams.detect.detector import Detected, Detector
from streams.kafka.dead_letters import dead_letter
from streams.kafka.topics import DEAD_LETTERS, SIGNALS, Topic, partition_of
from streams.model.codec import encode
from streams.model.record import RawRecord
from streams.model.signal import MAX_BATCH, Signal, SignalBatch

STAGE = "detector"


@dataclass(slots=True)
class Counts:
    """Of one raw topic: `records == signalling + ignored + dead_letters`, always.

    A record is signalling when it gave a signal or counts in one. `signals` are those written, `repeats` findings that are only
    part of a count. `read_again` are records that were read silently on taking a partition over; they are in no other count.
    """

    records: int = 0
    signalling: int = 0
    ignored: int = 0
    dead_letters: int = 0
    signals: int = 0
    repeats: int = 0
    read_again: int = 0

    def add(self, other: Counts) -> None:
        """Add what another batch counted."""
        self.records += other.records
        self.signalling += other.signalling
        self.ignored += other.ignored
        self.dead_letters += other.dead_letters
        self.signals += other.signals
        self.repeats += other.repeats
        self.read_again += other.read_again


@dataclass(frozen=True, slots=True)
class OutgoingSignals:
    """One record to write. `partition` None leaves it to the key."""

    topic: Topic
    key: bytes
    value: bytes
    partition: int | None = None
    headers: Sequence[tuple[str, bytes]] = ()


@dataclass(slots=True)
class Batch:
    """What is gathered from the records of one poll."""

    signals: list[Signal] = field(default_factory=list)
    letters: list[OutgoingSignals] = field(default_factory=list)
    counts: defaultdict[str, Counts] = field(default_factory=lambda: defaultdict(Counts))

    def add_unread(self, topic: str, count: int) -> None:
        """Count records that the prefilter dropped."""
        self.counts[topic].records += count
        self.counts[topic].ignored += count

    def add(self, record: RawRecord, detected: Detected) -> None:
        """Take in what one record gave."""
        counts = self.counts[record.topic]
        counts.records += 1
        counts.repeats += detected.repeats
        self.signals += detected.signals
        if detected.dead:
            counts.dead_letters += 1
            key, value, headers = dead_letter(record, stage=STAGE, reasons=detected.dead)
            self.letters.append(OutgoingSignals(DEAD_LETTERS, key, value, headers=headers))
        elif detected.signals or detected.repeats:
            counts.signalling += 1
        else:
            counts.ignored += 1

    def add_counts(self, signals: Iterable[Signal]) -> None:
        """Take in roll-ups whose window is over; their records are counted already."""
        self.signals += signals

    def outgoing(self, cluster_partitions: int) -> list[OutgoingSignals]:
        """The records to write: signals by cluster, then dead letters. Counts the signals."""
        by_cluster: dict[str, list[Signal]] = {}
        for signal in self.signals:
            by_cluster.setdefault(signal.entity.cluster, []).append(signal)
            self.counts[signal.evidence[0].topic].signals += 1
        return [
            OutgoingSignals(
                SIGNALS,
                cluster.encode(),
                encode(SignalBatch(cluster, tuple(signals[start : start + MAX_BATCH]))),
                partition_of(cluster, cluster_partitions),
            )
            for cluster, signals in by_cluster.items()
            for start in range(0, len(signals), MAX_BATCH)
        ] + self.letters


def read_safely(detector: Detector, record: RawRecord, rollup: RollUp | None = None) -> Detected:
    """What `detector` finds in `record`; a fault of our own makes it a dead letter with its name, and never ends the process.

    Anything may stand in a record, and one that trips a reader would otherwise trip it again after every restart.
    """
    try:
        return detector.read(record, rollup)
    except Exception as error:  # noqa: BLE001 - it is told, with the record, in the dead letters
        return Detected(dead=(f"the detector failed: {type(error).__name__}: {error}",))
