"""One record in, its signals out: `Detector` is the whole of detection without Kafka.

Order of stages: the prefilter on raw bytes, the envelope, each family on each observation. State is bounded and only what
families must remember between records (a gauge's last value, the first of three lines).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from streams.detect.dcgm import DcgmXid
from streams.detect.finding import Finding, Stream
from streams.detect.kube import KubeEvents, KubeLines
from streams.detect.nccl import Nccl
from streams.detect.off_bus import OffBus
from streams.detect.pauses import PauseCounters
from streams.detect.pfc import PfcWatchdog
from streams.detect.prefilter import Prefilter
from streams.detect.progress import Progress
from streams.detect.xid import Xid
from streams.envelopes import MAX_LINE, Outside, open_record
from streams.model.entity import Entity
from streams.model.record import KubeEvent, LogLine, Observation, RawRecord, Sample
from streams.model.signal import MAX_EVIDENCE_TEXT, Evidence, Signal, signal

CLUSTER_HEADER = "faultline-cluster"
_NODE_HEADERS = ("node", "host", "hostname", "faultline-node")
_HOST_NAME = re.compile(r"\"?([A-Za-z0-9][A-Za-z0-9._-]{0,252})\"?")
_NO_HOST = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|\d{1,256}|[0-9a-f]{32,256}")
_AHEAD = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Detected:
    """What one record gave. `observations` counts lines, samples and events; `ignored` those that said nothing.

    `dead` holds a reason for each part that could not be read; the record then belongs to the dead letters.
    """

    signals: tuple[Signal, ...] = ()
    observations: int = 0
    ignored: int = 0
    dead: tuple[str, ...] = ()


NOTHING = Detected()


class Family(Protocol):
    """What every family has: patterns of bytes (RE2) that a record must hold to be of interest to it."""

    @property
    def hints(self) -> tuple[bytes, ...]:
        """The patterns."""
        ...


class LineFamily(Family, Protocol):
    """What reads log lines."""

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """What the line says, in order."""
        ...


class Detector:
    """Reads records. Not safe for threads; one for each process.

    Args:
        cluster_default: The cluster of records that do not name theirs in the header `cluster_header`.
    """

    def __init__(self, cluster_default: str, *, cluster_header: str = CLUSTER_HEADER) -> None:
        self._cluster = cluster_default
        self._header = cluster_header
        self._lines: tuple[LineFamily, ...] = (
            Xid(),
            OffBus(),
            Nccl(),
            PfcWatchdog(),
            Progress(),
            KubeLines(),
        )
        self._samples = (DcgmXid(), PauseCounters())
        self._events = KubeEvents()
        families: tuple[Family, ...] = (*self._lines, *self._samples, self._events)
        hints = [hint for family in families for hint in family.hints]
        self._prefilter = Prefilter([*hints, rb'"MESSAGE"\s{0,4}:\s{0,4}\['])
        self._line_filters = [(Prefilter(family.hints), family) for family in self._lines]

    def select(self, values: Sequence[bytes]) -> list[int]:
        """Indexes of the values that `read` must see; all others hold nothing of interest. One call for a batch."""
        return self._prefilter.select(values)

    def wants(self, value: bytes) -> bool:
        """True when `read` must see the value; any other holds nothing of interest."""
        return self._prefilter.keeps(value)

    def detect(self, record: RawRecord) -> Detected:
        """Everything in one record; cheap for one that holds nothing."""
        if not record.value or not self.wants(record.value):
            return NOTHING
        return self.read(record)

    def read(self, record: RawRecord) -> Detected:
        """Everything in one record that the prefilter kept."""
        if not record.value:
            return NOTHING
        outside = Outside(record.timestamp, self._node_of(record))
        opened = open_record(record.value, outside)
        stream = Stream(self._cluster_of(record), f"{record.topic}:{record.partition}", record.timestamp)
        found = self.observe(opened.observations, stream, record)
        dead = list(opened.unreadable)
        if opened.cut and not found.signals:
            dead.append(f"a line of more than {MAX_LINE} characters, of which only the beginning was read")
        return Detected(found.signals, found.observations, found.ignored, tuple(dead))

    def observe(self, observations: Sequence[Observation], stream: Stream, record: RawRecord) -> Detected:
        """What opened observations say. `record` gives the evidence its coordinates."""
        signals: list[Signal] = []
        ignored = 0
        for observation in observations:
            before = len(signals)
            for finding in self._findings(observation, stream):
                signals.append(_signal(finding, observation, stream, record))
            ignored += len(signals) == before
        return Detected(tuple(signals), len(observations), ignored)

    def _findings(self, observation: Observation, stream: Stream) -> Iterable[Finding]:
        if isinstance(observation, LogLine):
            raw = observation.text.encode("utf-8", "replace")
            for line_filter, line_family in self._line_filters:
                if line_filter.wants(raw):
                    yield from line_family.read(observation, stream)
        elif isinstance(observation, Sample):
            for sample_family in self._samples:
                yield from sample_family.read(observation, stream)
        elif isinstance(observation, KubeEvent):
            yield from self._events.read(observation, stream)

    def _cluster_of(self, record: RawRecord) -> str:
        for name, value in record.headers:
            if name == self._header and value:
                return value[:253].decode("utf-8", "replace")
        return self._cluster

    def _node_of(self, record: RawRecord) -> str | None:
        """The host by the record's key, else by a header: shippers of kernel lines often name it only there."""
        named = [record.key] if record.key else []
        named += [value for name, value in record.headers if name.lower() in _NODE_HEADERS]
        for raw in named:
            match = _HOST_NAME.fullmatch(raw[:256].decode("utf-8", "replace"))
            if match is not None and _NO_HOST.fullmatch(match[1]) is None:
                return match[1]
        return None


def _signal(finding: Finding, observation: Observation, stream: Stream, record: RawRecord) -> Signal:
    at = finding.at or observation.at or stream.received_at
    text = finding.text or _text_of(observation)
    return signal(
        finding.kind,
        _entity(finding, observation, stream.cluster),
        severity=finding.severity,
        occurred_at=_bounded(at, stream.received_at),
        observed_at=record.timestamp,
        state=finding.state,
        attributes=finding.attributes,
        evidence=(Evidence(record.topic, record.partition, record.offset, text.strip()[:MAX_EVIDENCE_TEXT]),),
    )


def _bounded(at: datetime, received_at: datetime) -> datetime:
    """No source is believed to be ahead of its own record by more than a clock's drift."""
    return received_at if at - received_at > _AHEAD else at


def _entity(finding: Finding, observation: Observation, cluster: str) -> Entity:
    node = observation.name if isinstance(observation, KubeEvent) else None
    if isinstance(observation, (LogLine, Sample)):
        node = observation.node
    node = finding.node or node
    if finding.on_switch:
        return Entity(cluster, switch=node, port=finding.port)
    # A pod that relays the kernel's log or the control plane's events is not where the fault is.
    of_pod = isinstance(observation, LogLine) and not finding.kind.startswith(("gpu.", "node."))
    return Entity(
        cluster,
        node=node,
        gpu=finding.gpu,
        nic=finding.nic,
        pod=observation.pod if of_pod and isinstance(observation, LogLine) else None,
        rank=finding.rank,
    )


def _text_of(observation: Observation) -> str:
    match observation:
        case LogLine():
            return observation.text
        case Sample():
            labels = ", ".join(
                f'{name}="{value}"'
                for name, value in sorted(observation.labels.items())
                if name != "__name__"
            )
            return f"{observation.name}{{{labels}}} {observation.value:g}"
        case KubeEvent():
            return f"{observation.reason}: {observation.message}"
        case _:
            return ""
