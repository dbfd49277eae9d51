"""What the decision of one incident needs: its evidence, what else was told of its nodes and jobs around it, and their facts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from faultline.replay.capture import Capture
from faultline.replay.replay import Replayed
from streams.detect import Detector
from streams.kafka.topics import (
    COMMANDS,
    CONTROLS,
    INCIDENTS,
    INVENTORY,
    NOTICES,
    RUNS,
    SIGNALS,
    THREADS,
    TIMELINE,
)
from streams.model.codec import decode
from streams.model.entity import JobRef
from streams.model.errors import BadInput
from streams.model.facts import Fact, JobFact, LinkFact, NodeFact, PodFact
from streams.model.incident import Incident
from streams.model.record import RawRecord
from streams.model.run import Run

_BEFORE, _AFTER = timedelta(minutes=5), timedelta(minutes=5)
_OLDEST = timedelta(hours=2)
"""Evidence that was older when the fault began is an earlier fault's."""
_AROUND = timedelta(seconds=15)
"""So far from the evidence every record of the same nodes and jobs is kept; farther away those that rules look at."""
_BY_ID = frozenset(topic.name for topic in (INCIDENTS, RUNS, THREADS, NOTICES, TIMELINE, COMMANDS))


@dataclass(frozen=True, slots=True)
class Involved:
    """The places of an incident: keys of facts, and the names that their records hold."""

    facts: frozenset[str]
    names: frozenset[str]


def span_of_incident(incident: Incident, runs: Sequence[Run], now: datetime) -> tuple[datetime, datetime]:
    """When the records of a decision were: from a little before the first evidence until a little after the last change."""
    times = [incident.fault_at, incident.opened_at, *(proof.occurred_at for proof in incident.proofs)]
    ends = [incident.updated_at, incident.closed_at or incident.updated_at]
    ends += [run.finished_at or run.updated_at for run in runs]
    begin = max(min(times), incident.fault_at - _OLDEST)
    return begin - _BEFORE, min(max(*times, *ends) + _AFTER, now)


def involved(incident: Incident, facts: Iterable[Fact]) -> Involved:
    """The nodes, jobs, pods, switches and links of an incident; the other nodes of its jobs too."""
    held = list(facts)
    nodes = {*incident.nodes, *filter(None, (proof.entity.node for proof in incident.proofs))}
    nodes |= {name for name in (incident.root.node,) if name}
    jobs = {job.key for job in _jobs(incident)}
    pods = [
        fact
        for fact in held
        if isinstance(fact, PodFact) and (fact.node in nodes or (fact.job and fact.job.key in jobs))
    ]
    nodes |= {pod.node for pod in pods if pod.node and pod.job and pod.job.key in jobs}
    switches = {
        entity.switch for entity in (incident.root, *(p.entity for p in incident.proofs)) if entity.switch
    }
    keys = {pod.key for pod in pods}
    names = {*nodes, *switches, *(pod.name for pod in pods), *(key.rpartition("/")[2] for key in jobs)}
    for fact in held:
        match fact:
            case NodeFact() if fact.name in nodes:
                keys.add(fact.key)
                names.update(fact.addresses, fact.aliases)
            case JobFact() if fact.job.key in jobs:
                keys.add(fact.key)
            case LinkFact() if fact.node in nodes or fact.switch in switches or fact.peer_switch in switches:
                keys.add(fact.key)
    return Involved(
        frozenset(keys),
        frozenset(name.partition(".")[0] if not name[0].isdigit() else name for name in names),
    )


def _jobs(incident: Incident) -> set[JobRef]:
    entities = [incident.root, *(proof.entity for proof in incident.proofs)]
    return {*incident.jobs, *(entity.job for entity in entities if entity.job)}


class NeededBy:
    """Keeps the records that an incident needs, as a `Change`."""

    def __init__(self, incident: Incident, runs: Sequence[Run], places: Involved) -> None:
        self._ids = re.compile(
            b"|".join(re.escape(one.encode()) for one in (incident.id, *(run.id for run in runs)))
        )
        self._names = re.compile(
            b"|".join(re.escape(one.encode()) for one in sorted(places.names, key=len)), re.IGNORECASE
        )
        self._facts = places.facts
        self._evidence = {e.coordinates for proof in incident.shown for e in proof.evidence}
        self._times = sorted({proof.occurred_at for proof in incident.proofs} | {incident.fault_at})
        self._detector = Detector(incident.cluster)

    def __call__(self, record: RawRecord) -> RawRecord | None:
        """The record, or None when the decision does not need it."""
        return record if self._is_needed(record) else None

    def _is_needed(self, record: RawRecord) -> bool:
        topic, value, key = record.topic, record.value or b"", record.key or b""
        if record.coordinates in self._evidence or topic == CONTROLS.name:
            return True
        if topic in _BY_ID:
            return bool(self._ids.search(key) or self._ids.search(value))
        if topic == INVENTORY.name:
            return key.decode(errors="replace") in self._facts
        if not (self._names.search(value) or self._names.search(key)):
            return False
        return topic == SIGNALS.name or self._is_near(record.timestamp) or self._detector.wants(value)

    def _is_near(self, at: datetime) -> bool:
        return any(abs(at - time) <= _AROUND for time in self._times)


@dataclass(frozen=True, slots=True)
class Compared:
    """What production decided and what a replay of the capture decides, as far as both must be equal; empty for nothing."""

    recorded: Mapping[str, str]
    replayed: Mapping[str, str]

    @property
    def is_same(self) -> bool:
        """Whether the replay gives the same incident."""
        return self.recorded == self.replayed


def compared(capture: Capture, incident_id: str, decided: Replayed) -> Compared:
    """Compare the last revision of an incident that a capture holds with what a replay of it decided.

    Raises:
        BadInput: when the capture holds no such incident.
    """
    held = [*capture.state.get(INCIDENTS.name, ()), *capture.records.get(INCIDENTS.name, ())]
    found = [decode(Incident, one.value) for one in held if one.value and one.key == incident_id.encode()]
    if not found:
        raise BadInput(f"the capture holds no incident {incident_id}")
    again = decided.incidents.get(incident_id)
    return Compared(_decision(max(found, key=lambda one: one.revision)), _decision(again) if again else {})


def _decision(incident: Incident) -> dict[str, str]:
    return {"root": str(incident.root), "family": incident.family, "certainty": incident.certainty.value}
