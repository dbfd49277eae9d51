"""What a replay decided, and the hash over it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from runbooks.engine.dry_run import ActionLine, ShadowResponder
from streams.correlate import Engine
from streams.model.clock import rfc3339
from streams.model.codec import encode_plain
from streams.model.conversation import TimelineEntry
from streams.model.digest import digest
from streams.model.entity import Entity, JobRef
from streams.model.incident import Incident, IncidentState
from streams.model.run import Run


@dataclass(slots=True)
class Publication:
    """How often an incident was published in a state that calls people (every one but `suppressed`), and since when.

    One that was only suppressed until it ended, or until it became part of another, called nobody.
    """

    revisions: int = 0
    told_at: datetime | None = None
    suppressed: bool = False
    """Whether it was, at any time."""

    def add(self, incident: Incident, now: datetime) -> None:
        """Count a revision."""
        if incident.state is IncidentState.SUPPRESSED:
            self.suppressed = True
            return
        ends = incident.state is IncidentState.MERGED or (self.suppressed and incident.state.is_over)
        if ends and self.told_at is None:
            return
        self.revisions += 1
        self.told_at = self.told_at or now


@dataclass(frozen=True, slots=True)
class Standing:
    """The pure parts of a replay at its end, for questions about what was not decided."""

    now: datetime
    engines: Mapping[str, Engine]
    responder: ShadowResponder


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
    standing: Standing | None = None
    """What correlator and responder knew at the end."""

    @property
    def decision_hash(self) -> str:
        """Equal for equal decisions: over every incident line and every action line."""
        return digest(
            *(orjson.dumps(line, option=orjson.OPT_SORT_KEYS).decode() for line in self.decision_lines())
        )

    def incident_lines(self) -> Iterator[dict[str, Any]]:
        """Final incidents in the shape of `--output json`, by fault time."""
        for incident in sorted(self.incidents.values(), key=lambda i: (i.fault_at, i.id)):
            yield _incident_line(incident)

    def decision_lines(self) -> Iterator[dict[str, Any]]:
        """What the hash is over: every incident, then every action."""
        yield from self.incident_lines()
        yield from map(_action_line, self.actions)

    def lines(self) -> Iterator[dict[str, Any]]:
        """Everything in the shape of `--output json`: incidents, actions, late records, and last the summary."""
        yield from self.decision_lines()
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
