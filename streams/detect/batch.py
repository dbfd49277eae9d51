"""The records of one delivery: the signals found, what became of each record, and what to write.

Every record ends in exactly one of three ways: it gave signals, it is ignored, or it is a dead letter (which may have given
signals from its readable part).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field

from aiokafka import TopicPartition

from streams.detect.deduplication import RollUp
from streams.detect.detector import Detected, Detector
from streams.kafka.dead_letters import dead_letter
from streams.kafka.topics import DEAD_LETTERS, SIGNALS, Topic, partition_of
from streams.model.codec import encode
from streams.model.record import RawRecord
from streams.model.signal import MAX_BATCH, Signal, SignalBatch
from streams.telemetry import tracing
from streams.telemetry.trace_context import TraceContext, extract

STAGE = "detector"

_FAILED = "the detector failed: "
"""Begins the reason of a dead letter that a reader's own exception made."""

MAX_RECORDS = 100_000
MAX_SIGNALS = 4 * MAX_BATCH
MAX_LETTER_BYTES = 4 * 1024 * 1024
"""What one delivery gathers, and a poll more: it lies in memory, and is read again after a crash."""


@dataclass(slots=True)
class Counts:
    """Counts of one raw topic; always `records == signalling + ignored + dead_letters`.

    A record is signalling when it gave a signal or is counted in one. `signals` were written, `repeats` are findings that are
    only part of a count. `read_again` are records replayed when a partition was taken over; they are in no other count.
    """

    records: int = 0
    signalling: int = 0
    ignored: int = 0
    dead_letters: int = 0
    signals: int = 0
    repeats: int = 0
    read_again: int = 0

    def add(self, other: Counts) -> None:
        """Add the counts of another batch."""
        for name, number in asdict(other).items():
            setattr(self, name, getattr(self, name) + number)


@dataclass(frozen=True, slots=True)
class OutgoingSignals:
    """One record to write. With `partition` None the key decides."""

    topic: Topic
    key: bytes
    value: bytes
    partition: int | None = None
    headers: Sequence[tuple[str, bytes]] = ()


@dataclass(slots=True)
class Batch:
    """What records gave. `places` are the partitions they are from."""

    signals: list[Signal] = field(default_factory=list)
    letters: list[OutgoingSignals] = field(default_factory=list)
    counts: defaultdict[str, Counts] = field(default_factory=lambda: defaultdict(Counts))
    places: set[TopicPartition] = field(default_factory=set)
    letter_bytes: int = 0
    contexts: list[TraceContext] = field(default_factory=list)
    """The traces that its records belong to, of those that say so and gave anything; none while tracing is off."""
    failures: int = 0
    """Dead letters that a reader's own exception made."""
    latest_ms: dict[str, int] = field(default_factory=dict)
    """The latest time of any record, by topic."""

    def __bool__(self) -> bool:
        """True when there is anything to write, commit or count."""
        return bool(self.places or self.signals)

    @property
    def full(self) -> bool:
        """True when no more should be gathered before this is delivered."""
        return (
            len(self.signals) >= MAX_SIGNALS
            or self.letter_bytes >= MAX_LETTER_BYTES
            or sum(counts.records for counts in self.counts.values()) >= MAX_RECORDS
        )

    def add_unread(self, topic: str, count: int) -> None:
        """Count records the prefilter dropped."""
        self.counts[topic].records += count
        self.counts[topic].ignored += count

    def add(self, record: RawRecord, detected: Detected) -> None:
        """Add what one record gave."""
        counts = self.counts[record.topic]
        counts.records += 1
        counts.repeats += detected.repeats
        self.signals += detected.signals
        if record.headers and tracing.is_on() and (detected.signals or detected.repeats or detected.dead):
            self._link(record)
        if detected.dead:
            counts.dead_letters += 1
            key, value, headers = dead_letter(record, stage=STAGE, reasons=detected.dead)
            self.letters.append(OutgoingSignals(DEAD_LETTERS, key, value, headers=headers))
            self.letter_bytes += len(value)
            self.failures += any(reason.startswith(_FAILED) for reason in detected.dead)
        elif detected.signals or detected.repeats:
            counts.signalling += 1
        else:
            counts.ignored += 1

    def _link(self, record: RawRecord) -> None:
        if len(self.contexts) < tracing.MAX_LINKS and (context := extract(record.headers)) is not None:
            self.contexts.append(context)

    def add_counts(self, signals: Iterable[Signal]) -> None:
        """Add counts of repeats whose window is over; their records are counted already."""
        self.signals += signals

    def outgoing(self, cluster_partitions: int, headers: tracing.Headers = ()) -> list[OutgoingSignals]:
        """The records to write: signals by cluster, with `headers`, then dead letters. Counts the signals."""
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
                headers,
            )
            for cluster, signals in by_cluster.items()
            for start in range(0, len(signals), MAX_BATCH)
        ] + self.letters


def read_safely(detector: Detector, record: RawRecord, rollup: RollUp | None = None) -> Detected:
    """What `detector` finds in `record`. An exception of its own makes the record a dead letter and never ends the process.

    A record may hold anything: one that makes a reader fail would do so again after every restart.
    """
    try:
        return detector.read(record, rollup)
    except Exception as error:  # noqa: BLE001 - the dead letter holds it with the record
        return Detected(dead=(f"{_FAILED}{type(error).__name__}: {error}",))
