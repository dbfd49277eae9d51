"""Replays a capture: detector, inventory, correlator and responder in memory, in shadow mode, with the time of its records.

Records of all topics are taken in one order that depends on their times and coordinates only, so the same capture gives the
same decisions however its files interleave partitions. What the pipeline wrote itself (signals, incidents, runs …) is not
read: it is decided again.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from faultline.replay.capture import TOPOLOGY, Capture, read
from faultline.replay.detect_processes import detection_of
from faultline.replay.detection import TICK, Clock, Found, Moment
from faultline.replay.threads import RecordedThreads
from faultline.replay.topic_records import HeldRecords, StoredTopic, TopicRecords, from_micros, in_time_order
from runbooks.engine.dry_run import ActionLine, ShadowResponder
from runbooks.language.loader import load
from runbooks.language.schema import Runbook
from streams.config.settings import ResponderSettings
from streams.correlate import Changes, Config, Engine
from streams.inventory.recorded_watch import facts
from streams.inventory.topology_file import read_topology
from streams.kafka.topics import INVENTORY, RAW
from streams.model.clock import rfc3339
from streams.model.codec import decode, encode_plain
from streams.model.conversation import TimelineEntry
from streams.model.digest import digest
from streams.model.entity import Entity, JobRef
from streams.model.errors import BadInput
from streams.model.facts import Fact, FactRecord
from streams.model.garbage import collected_seldom
from streams.model.incident import Incident, IncidentState
from streams.model.record import RawRecord
from streams.model.run import Run
from streams.model.signal import Signal

AFTERMATH = timedelta(minutes=3)
"""Time advances this far past the last record, so that decisions that wait for more evidence are made."""

FactAt = tuple[datetime, str, Fact | None]
"""An inventory fact with its time and key; None for a deletion."""


@dataclass(slots=True)
class Publication:
    """How often an incident was published in a state that calls people (every one but `suppressed`), and since when.

    One that was only suppressed until it became part of another called nobody.
    """

    revisions: int = 0
    told_at: datetime | None = None

    def add(self, incident: Incident, now: datetime) -> None:
        """Count a revision."""
        unseen = incident.state is IncidentState.MERGED and self.told_at is None
        if incident.state is IncidentState.SUPPRESSED or unseen:
            return
        self.revisions += 1
        self.told_at = self.told_at or now


@dataclass(slots=True)
class Replayed:
    """What a replay decided. `incidents` holds final revisions by id."""

    incidents: dict[str, Incident] = field(default_factory=dict)
    publications: defaultdict[str, Publication] = field(default_factory=lambda: defaultdict(Publication))
    """By incident id. How a decision was reached, not the decision, so not in the hash."""
    runs: tuple[Run, ...] = ()
    actions: tuple[ActionLine, ...] = ()
    timeline: tuple[TimelineEntry, ...] = ()
    """What the responder put on the timelines."""
    revisions: list[TimelineEntry] = field(default_factory=list)
    """What the correlator put on them: an entry for each revision of an incident."""
    late: list[TimelineEntry] = field(default_factory=list)
    """Timeline entries about sources whose records came late, and about what was dropped. Not decisions, so not in the hash."""
    records: int = 0
    signals: int = 0
    dead_letters: int = 0

    @property
    def decision_hash(self) -> str:
        """Equal for equal decisions: over every incident line and every action line."""
        lines = [*self.incident_lines(), *(_action_line(action) for action in self.actions)]
        return digest(*(orjson.dumps(line, option=orjson.OPT_SORT_KEYS).decode() for line in lines))

    def incident_lines(self) -> Iterator[dict[str, Any]]:
        """Final incidents in the shape of `--output json`, by fault time."""
        for incident in sorted(self.incidents.values(), key=lambda i: (i.fault_at, i.id)):
            yield _incident_line(incident)

    def lines(self) -> Iterator[dict[str, Any]]:
        """Everything in the shape of `--output json`: incidents, actions, late records, and last the summary."""
        yield from self.incident_lines()
        yield from map(_action_line, self.actions)
        for entry in self.late:
            yield {"record": "late", "at": rfc3339(entry.at), **entry.attributes, "text": entry.text}
        yield {
            "record": "summary",
            "records": self.records,
            "signals": self.signals,
            "incidents": len(self.incidents),
            "dead_letters": self.dead_letters,
            "decision_hash": self.decision_hash,
        }


def replay(
    directory: Path,
    *,
    responder: ResponderSettings | None = None,
    config: Config | None = None,
    threads: RecordedThreads | None = None,
) -> Replayed:
    """Read a capture and replay it. `threads` records what the chat would have posted.

    Raises:
        BadInput: when the capture is invalid; names file and line.
    """
    return replay_capture(read(directory), responder=responder, config=config, threads=threads)


def replay_capture(
    capture: Capture,
    *,
    responder: ResponderSettings | None = None,
    config: Config | None = None,
    runbooks: Sequence[Runbook] | None = None,
    threads: RecordedThreads | None = None,
    processes: int | None = None,
) -> Replayed:
    """Replay an opened capture, or one in memory.

    `runbooks` are those of the settings, if they are loaded already. `processes` is how many detect, by default one, and all
    cores for big files.
    """
    settings = responder or ResponderSettings()
    books = load(settings.runbook_dirs) if runbooks is None else runbooks
    shadow = ShadowResponder(books, settings, observe=threads.take_commit if threads else None)
    if capture.records.get(INVENTORY.name) and capture.kube_changes:
        raise BadInput("the capture holds inventory.jsonl and kube-objects.jsonl: leave one out")
    told = sorted(facts_of(capture), key=lambda entry: entry[0])
    topics = {topic.name: _held(records) for topic in RAW if (records := capture.records.get(topic.name))}
    clock = _clock(capture, topics.values(), told)
    pipeline = _Pipeline(clock, told, shadow, config or Config(), threads)
    with collected_seldom():
        detection = detection_of(capture.meta.cluster, clock, topics, processes)
        for found in detection.found():
            pipeline.take(found)
        decided = pipeline.finish()
    decided.records = sum(topic.survey.records for topic in topics.values())
    decided.dead_letters = detection.dead_letters
    return decided


def _held(records: Collection[RawRecord]) -> TopicRecords:
    return records if isinstance(records, StoredTopic) else HeldRecords(records)


def _clock(capture: Capture, topics: Collection[TopicRecords], facts: Sequence[FactAt]) -> Clock:
    """Time begins with the first fact or record, and goes on for a while after the last record."""
    surveys = [topic.survey for topic in topics]
    firsts = [from_micros(survey.first) for survey in surveys if survey.first is not None]
    lasts = [from_micros(survey.last) for survey in surveys if survey.last is not None]
    end = max([capture.meta.end, *lasts]) + AFTERMATH
    begins = [*firsts, *(at for at, _, _ in facts[:1])]
    return Clock(min([end, *begins]), max(lasts, default=end), end)


def facts_of(capture: Capture) -> Iterator[FactAt]:
    """Inventory facts with their times and keys, from whichever of the two files the capture has; None for a deletion."""
    if capture.kube_changes or (capture.topology and INVENTORY.name not in capture.records):
        changes = sorted(capture.kube_changes, key=lambda change: change.at)
        try:
            cabling = read_topology(capture.meta.cluster, capture.topology, capture.meta.begin)
        except BadInput as error:
            raise BadInput(f"{TOPOLOGY}: {error}") from error
        told = facts(capture.meta.cluster, changes, cabling.links, cabling.places, capture.meta.begin)
        for at, (key, record) in told:
            yield at, key, record.fact if record else None
        return
    for published in in_time_order(capture.records.get(INVENTORY.name, ())):
        if published.key is None or published.key.count(b"/") < 2:
            raise BadInput(
                f"{_where(capture, published)}: an inventory record needs its key, CLUSTER/KIND/NAME"
            )
        try:
            fact = decode(FactRecord, published.value).fact if published.value is not None else None
        except BadInput as error:
            raise BadInput(f"{_where(capture, published)}: {error}") from error
        yield published.timestamp, published.key.decode(errors="replace"), fact


def _where(capture: Capture, record: RawRecord) -> str:
    held = capture.records.get(record.topic)
    return held.where(record) if isinstance(held, StoredTopic) else record.coordinates


class _Pipeline:
    """Feeds signals, facts and time to correlator and responder, and the output of each to the next."""

    def __init__(
        self,
        clock: Clock,
        facts: Sequence[FactAt],
        responder: ShadowResponder,
        config: Config,
        threads: RecordedThreads | None,
    ) -> None:
        self._clock = clock
        self._facts = deque(facts)
        self._engines: dict[str, Engine] = {}
        self._responder = responder
        self._config = config
        self._threads = threads
        self._now = clock.begin
        self._result = Replayed()

    def take(self, found: Found) -> None:
        """What the detector found, at its time. Counts of repeats are taken before the rest of their tick."""
        self._advance(found.due - (datetime.resolution if found.moment is Moment.TICK else timedelta()))
        self._result.signals += len(found.signals)
        self._take_signals(found.signals, found.at)

    def finish(self) -> Replayed:
        """Advance time to the end and return what was decided."""
        self._advance(self._clock.end)
        self._result.runs = self._responder.runs
        self._result.actions = self._responder.actions()
        self._result.timeline = tuple(self._responder.timeline)
        return self._result

    def _advance(self, to: datetime) -> None:
        """Take the facts and ticks up to `to`, in time order."""
        while self._facts and self._facts[0][0] <= to:
            at, key, fact = self._facts.popleft()
            self._tick_to(at)
            self._responder.take_fact(key, fact, at)
            if self._threads is not None:
                self._threads.take_fact(key, fact)
            self._publish(self._engine(key.partition("/")[0]).on_fact(key, fact, at), at)
        self._tick_to(to)

    def _tick_to(self, to: datetime) -> None:
        while self._now + TICK <= to:
            self._now += TICK
            for name in sorted(self._engines):
                self._publish(self._engines[name].on_tick(self._now), self._now)
            self._take_signals(self._responder.tick(self._now), self._now)
            if self._threads is not None:
                self._threads.advance(self._now)

    def _publish(self, changes: Changes, now: datetime) -> None:
        for entry in changes.timeline:
            (self._result.revisions if entry.incident else self._result.late).append(entry)
        if self._threads is not None:
            self._threads.take_changes(changes)
        for incident in changes.incidents:
            self._result.incidents[incident.id] = incident
            self._result.publications[incident.id].add(incident, now)
            self._take_signals(self._responder.take_incident(incident, now), now)

    def _take_signals(self, signals: Iterable[Signal], now: datetime) -> None:
        """Pass signals to the engine of their cluster: those of records, and those that runs report."""
        by_cluster: dict[str, list[Signal]] = {}
        for signal in signals:
            by_cluster.setdefault(signal.entity.cluster, []).append(signal)
        for cluster, mine in by_cluster.items():
            self._publish(self._engine(cluster).on_signals(mine, now), now)

    def _engine(self, cluster: str) -> Engine:
        if cluster not in self._engines:
            self._engines[cluster] = Engine(cluster, {}, self._config)
        return self._engines[cluster]


def _incident_line(incident: Incident) -> dict[str, Any]:
    return {
        "record": "incident",
        "id": incident.id,
        "family": incident.family,
        "severity": incident.severity.value,
        "state": incident.state.value,
        "opened_at": rfc3339(incident.opened_at),
        "root": _root(incident.root),
        "jobs": [_job(job) for job in incident.jobs],
        "nodes": list(incident.nodes),
        "reason": incident.reason,
    }


def _root(root: Entity) -> dict[str, Any]:
    """The root, with only the fields that are set."""
    parts = encode_plain(root)
    known = {
        name: parts[name] for name in ("cluster", "node", "gpu", "nic", "switch", "port") if name in parts
    }
    return known | ({"job": _job(root.job)} if root.job else {})


def _job(job: JobRef) -> dict[str, str]:
    return {"kind": job.kind, "namespace": job.namespace, "name": job.name}


def _action_line(action: ActionLine) -> dict[str, Any]:
    plain: dict[str, Any] = encode_plain(action)
    return {"record": "action", **plain}
