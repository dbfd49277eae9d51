"""One record in, its signals out: `Detector` is detection without Kafka.

The stages: the prefilter on raw bytes, the envelope, each family on each observation. What families remember between records (a
gauge's last value, the first of three lines) is bounded, and kept for each source partition separately.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from streams.detect.cables import Cables
from streams.detect.deduplication import RollUp
from streams.detect.families import (
    Family,
    SampleFamily,
    alert_families,
    event_families,
    last_resorts,
    line_families,
    sample_families,
)
from streams.detect.finding import KEYLESS, Finding, Stream
from streams.detect.job_claims import may_report
from streams.detect.matching import re2_patterns
from streams.detect.matching.pattern_family import PatternFamily
from streams.detect.matching.prefilter import Prefilter, RuleInterest
from streams.detect.report import Report
from streams.detect.rule_state import RuleState, RuleTable
from streams.ingest import (
    ENVELOPE_HINTS,
    MAX_LINE,
    RecordContext,
    compression,
    json_documents,
    line_reassembly,
    open_record,
    open_unfinished,
)
from streams.ingest.fields import fields, pod_in_key
from streams.ingest.metrics import prometheus_adapter
from streams.ingest.records import UNKNOWN, Origin
from streams.kafka.topics import RAW_JOB_LOGS
from streams.model.errors import BadInput
from streams.model.hostnames import short
from streams.model.kinds import SignalKind
from streams.model.nics import is_virtual
from streams.model.record import KubeEvent, LogLine, Neighbour, Observation, RawRecord, Sample
from streams.model.signal import Signal

CLUSTER_HEADER = "faultline-cluster"
_MAX_METRICS = 20_000
_MAX_PROGRAMS = 2_000
_MAX_KEY = 4096
_NODE_HEADERS = ("node", "host", "hostname", "faultline-node")
_HOST_NAME = re.compile(r"\"?([A-Za-z0-9][A-Za-z0-9._-]{0,252})\"?")
_NO_HOST = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|\d{1,256}|[0-9a-f]{32,256}")


class Detected(NamedTuple):
    """What one record gave. `observations` counts lines, samples and events; `ignored` those without a finding.

    `repeats` counts findings that are only sent as part of a count. `dead` holds a reason for each part that could not be read;
    the record is then a dead letter.
    """

    signals: tuple[Signal, ...] = ()
    observations: int = 0
    ignored: int = 0
    repeats: int = 0
    dead: tuple[str, ...] = ()


NOTHING = Detected()
_IGNORED = Detected(observations=1, ignored=1)


class Detector:
    """Reads records. Not thread-safe; one for each process.

    Args:
        cluster_default: The cluster of records without the header `cluster_header`.
    """

    def __init__(self, cluster_default: str, *, cluster_header: str = CLUSTER_HEADER) -> None:
        self._cluster = cluster_default
        self._header = cluster_header
        self._rule_states: defaultdict[tuple[str, int], RuleState] = defaultdict(RuleState)
        lines = (*line_families(), *last_resorts())
        self._first_resorts = len(line_families())
        self._last_resorts = last_resorts()
        self._cables = Cables()
        self._samples = sample_families()
        self._events = event_families()
        self._alerts = alert_families()
        families: tuple[Family, ...] = (*lines, *self._samples, *self._events, *self._alerts)
        hints = [hint for family in families for hint in family.hints]
        self._prefilter = Prefilter([*hints, *ENVELOPE_HINTS])
        self._interest = RuleInterest(
            self._prefilter, [hint for family in self._samples for hint in family.hints]
        )
        self._sample_filters = [(Prefilter(family.hints), family) for family in self._samples]
        self._readers: dict[str, tuple[SampleFamily, ...]] = {}
        self._programs: dict[str, list[int]] = {}
        self._names: dict[tuple[str, int], str] = {}
        """What a partition's stream of lines is called."""
        self._spread: dict[str, int] = {}
        """How many partitions a topic has, as far as known."""
        self._lines = lines
        self._concerned = re2_patterns.PatternSet(_any_of(family.hints) for family in lines)
        self._unhinted = [
            (number, family)
            for number, family in enumerate(line_families())
            if isinstance(family, PatternFamily) and family.unhinted
        ]
        self._opens_unhinted = re2_patterns.PatternSet(
            _any_of(family.unhinted) for _, family in self._unhinted
        )

    def select(self, values: Sequence[bytes]) -> list[int]:
        """Indexes of the values that `read` must see; the others hold nothing of interest. One call for a batch."""
        return self._prefilter.select(values)

    def wants(self, value: bytes) -> bool:
        """True when `read` must see the value."""
        return self._prefilter.keeps(value)

    def wanted(self, values: Sequence[bytes], rule_state: RuleState) -> Iterator[int]:
        """Indexes of the values that `read` must see, in order. To be consumed while they are read, because reading changes them.

        While a line in `rule_state` is unfinished, values that may hold its rest are included.
        """
        unfinished = _unfinished(rule_state)
        position = 0
        for index in (*self.select(values), len(values)):
            while unfinished and position < index:
                if line_reassembly.may_continue(values[position], unfinished):
                    yield position
                position += 1
            if index < len(values):
                yield index
            position = index + 1

    def detect(self, record: RawRecord) -> Detected:
        """Everything in one record; cheap when the prefilter drops it."""
        if not record.value:
            return NOTHING
        for _ in self.wanted((record.value,), self.rule_state(record.topic, record.partition)):
            return self.read(record)
        return NOTHING

    def is_line_unfinished(self, topic: str, partition: int) -> bool:
        """True while a line of a partition waits for its rest."""
        return bool(_unfinished(self.rule_state(topic, partition)))

    def flush_unfinished(
        self, topic: str, partition: int, at: datetime | None = None, rollup: RollUp | None = None
    ) -> list[Signal]:
        """The signals of unfinished lines whose rest is overdue at `at`; of all unfinished lines when that is None."""
        rule_state = self.rule_state(topic, partition)
        signals: list[Signal] = []
        for row in line_reassembly.due(_unfinished(rule_state), at):
            offset, cluster = line_reassembly.mark(row)
            record = RawRecord(topic, partition, int(offset or 0), line_reassembly.since(row), None, None)
            opened = open_unfinished(row, RecordContext(record.timestamp, interest=self._interest))
            stream = Stream(str(cluster), f"{topic}:{partition}", record.timestamp, rule_state)
            signals += self.observe(opened.observations, stream, record, rollup).signals
        return signals

    def read(self, record: RawRecord, rollup: RollUp | None = None) -> Detected:
        """Everything in a record that the prefilter kept; with the `rollup` of its partition, without mere repeats."""
        if not (value := record.value):
            return NOTHING
        single = prometheus_adapter.read_single(value, self._interest)
        if single is not None:
            return self._read_sample(single, record, rollup)
        if compression.is_packed(value):
            try:
                value = compression.unpacked(value)
            except BadInput as error:
                return Detected(dead=(str(error),))
            if not value or not self.wants(value):
                return NOTHING
        stream = self._stream_of(record)
        context = RecordContext(
            record.timestamp,
            self._node_of(record),
            self._interest,
            _keyed(record.key),
            unfinished=_unfinished(stream.rule_state),
            mark=(record.offset, stream.cluster),
        )
        opened = open_record(value, context)
        observations = opened.observations
        if record.topic == RAW_JOB_LOGS.name:
            observations = [_of_a_job(observation, context.node) for observation in observations]
        found = self.observe(observations, stream, record, rollup)
        dead = opened.unreadable
        if opened.cut and not found.signals and not found.repeats:
            dead = [*dead, f"a line of more than {MAX_LINE} characters; only its beginning was read"]
        return found._replace(dead=tuple(dead)) if dead else found

    def _read_sample(self, sample: Sample | str, record: RawRecord, rollup: RollUp | None) -> Detected:
        """A record that is one sample, or only its name when no rule reads it."""
        if isinstance(sample, str):
            return _IGNORED
        if sample.node is None and (node := self._node_of(record)) is not None:
            sample = sample._replace(node=node)
        return self.observe((sample,), self._stream_of(record), record, rollup)

    def _stream_of(self, record: RawRecord) -> Stream:
        topic, partition = place = record.topic, record.partition
        spread = self._spread.get(topic, 1)
        if partition >= spread:
            spread = self._spread[topic] = partition + 1
        lines = self._names.get(place)
        if lines is None:
            lines = self._names[place] = f"{topic}:{partition}"
        cluster = self._cluster_of(record) if record.headers else self._cluster
        state = self._rule_states[place]
        if record.key:
            spread = 1
        elif spread > 1 and not (keyless := state.table(KEYLESS, 1)):
            keyless[("",)] = (1,)
        return Stream(cluster, lines, record.timestamp, state, spread)

    def set_partitions(self, counts: Mapping[str, int]) -> None:
        """How many partitions each topic has: a series without a key is spread over all of them."""
        self._spread.update(counts)

    def set_rule_states(self, states: Mapping[tuple[str, int], RuleState]) -> None:
        """Replace what rules remember, by source partition (topic and number); other partitions start empty."""
        self._rule_states = defaultdict(RuleState, states)

    def rule_state(self, topic: str, partition: int) -> RuleState:
        """What rules remember of a source partition."""
        return self._rule_states[topic, partition]

    def observe(
        self,
        observations: Sequence[Observation],
        stream: Stream,
        record: RawRecord,
        rollup: RollUp | None = None,
    ) -> Detected:
        """The signals of opened observations. `record` gives their evidence its topic, partition and offset."""
        signals: list[Signal] = []
        ignored = repeats = 0
        for observation in observations:
            silent = True
            for finding in self._findings(observation, stream):
                if not may_report(record.topic, finding.kind) and not isinstance(observation, LogLine):
                    continue
                if _is_of_a_pods_port(finding):
                    continue
                silent = False
                report = Report.of(finding, observation, stream.cluster, record)
                if rollup is None:
                    signals.append(report.signal())
                elif due := rollup.take(report):
                    signals += due
                else:
                    repeats += 1
            ignored += silent
        if ignored == len(observations) == 1:
            return _IGNORED
        return Detected(tuple(signals), len(observations), ignored, repeats)

    def _findings(self, observation: Observation, stream: Stream) -> Iterable[Finding]:
        if isinstance(observation, Sample):
            readers = self._readers_of(observation.name)
            if len(readers) == 1:
                return readers[0].read(observation, stream)
            return chain.from_iterable(family.read(observation, stream) for family in readers)
        if isinstance(observation, LogLine):
            return self._of_line(observation, stream)
        if isinstance(observation, KubeEvent):
            return chain.from_iterable(family.read(observation, stream) for family in self._events)
        if isinstance(observation, Neighbour):
            return self._cables.read(observation, stream)
        return chain.from_iterable(family.read(observation, stream) for family in self._alerts)

    def _of_line(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """The findings of one line. Rows without a hint and the last resorts come last, and only where there is nothing else."""
        found = False
        concerned = self._concerned.found_in(line.text)
        if line.source and line.source not in line.text:
            concerned = sorted({*concerned, *self._of_program(line.source)})
        for number in concerned:
            if number >= self._first_resorts:
                break
            for finding in self._lines[number].read(line, stream):
                found = True
                yield finding
        if not found:
            for place in self._opens_unhinted.found_in(line.text):
                number, family = self._unhinted[place]
                if number not in concerned:
                    for finding in family.read(line, stream):
                        found = True
                        yield finding
        for number, last in enumerate(self._last_resorts, self._first_resorts):
            if not found and (number in concerned or last.concerns(line, stream)):
                for finding in last.read(line, stream):
                    found = True
                    yield finding

    def _of_program(self, name: str) -> list[int]:
        """The families that a program's name concerns, where only its shipper tells it."""
        known = self._programs.get(name)
        if known is None:
            known = self._concerned.found_in(name)
            if len(self._programs) < _MAX_PROGRAMS:
                self._programs[name] = known
        return known

    def _readers_of(self, metric: str) -> tuple[SampleFamily, ...]:
        """The families with a hint in the metric's name."""
        readers = self._readers.get(metric)
        if readers is None:
            raw = metric.encode("utf-8", "replace")
            readers = tuple(family for wanted, family in self._sample_filters if wanted.wants(raw))
            if len(self._readers) < _MAX_METRICS:
                self._readers[metric] = readers
        return readers

    def _cluster_of(self, record: RawRecord) -> str:
        for name, value in record.headers:
            if name == self._header and value:
                return value[:253].decode("utf-8", "replace")
        return self._cluster

    def _node_of(self, record: RawRecord) -> str | None:
        """The host in the record's key, else in a header: shippers of kernel lines often name it only there."""
        if not record.key and not record.headers:
            return None
        named = [record.key] if record.key else []
        named += [value for name, value in record.headers if name.lower() in _NODE_HEADERS]
        for raw in named:
            if raw[:1] == b"{":
                if (node := _node_in(raw)) is not None:
                    return node
                continue
            match = _HOST_NAME.fullmatch(raw[:256].decode("utf-8", "replace"))
            if _keyed(raw).pod is not None:
                continue
            if match is not None and _NO_HOST.fullmatch(match[1]) is None:
                return match[1]
        return None


def _of_a_job(observation: Observation, node: str | None) -> Observation:
    """What was read on the topic of jobs, whose programs print what they like: no kernel of another host speaks there itself.

    `node` is the one that the record's key names. A pod's lines are judged by its shipper's fields (`ingest/logs/text.py`).
    """
    if (
        not isinstance(observation, LogLine)
        or observation.pod is not None
        or observation.source != "kernel"
        or observation.node is None
        or (node is not None and short(observation.node) == short(node))
    ):
        return observation
    return observation._replace(relayed=True)


def _is_of_a_pods_port(finding: Finding) -> bool:
    """Whether it is the link of a virtual function: it goes down and up with the pods that are given it, all day.

    What is wrong with the card or its cable, the card's own function reports.
    """
    return (
        finding.kind == SignalKind.FABRIC_LINK
        and finding.nic is not None
        and "status" in finding.attributes
        and is_virtual(finding.nic)
    )


def _keyed(key: bytes | None) -> Origin:
    """The origin that a record's key tells where it is the name of a container's log file."""
    if not key or b"_" not in key or (named := pod_in_key(key[:_MAX_KEY].decode("utf-8", "replace"))) is None:
        return UNKNOWN
    return UNKNOWN._replace(pod=named[0], container=named[1])


def _node_in(key: bytes) -> str | None:
    """The host in a key that is JSON: `{"host": "n1"}`, as Kafka Connect and stream processors write them."""
    document = json_documents.parsed(key[:_MAX_KEY].decode("utf-8", "replace"))
    return fields(document).origin().node if isinstance(document, dict) else None


def _any_of(patterns: Iterable[bytes]) -> bytes:
    return b"|".join(b"(?:%b)" % pattern for pattern in patterns)


def _unfinished(rule_state: RuleState) -> RuleTable:
    return rule_state.table("envelopes.unfinished", line_reassembly.MAX_WAITING)
