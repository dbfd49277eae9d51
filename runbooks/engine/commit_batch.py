"""What has changed in a partition since its last commit, and the batch that a commit takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from runbooks.engine.run.transition import Call, RunReport, TimelineNote
from streams.model.control import Control
from streams.model.conversation import TimelineEntry
from streams.model.entity import Entity
from streams.model.run import Run
from streams.model.signal import MAX_BATCH, Severity, Signal, SignalBatch, signal

PROCESS = "responder"


@dataclass(frozen=True, slots=True)
class CommitBatch:
    """What has to be committed in one transaction, and the calls that may start after it."""

    runs: tuple[Run, ...] = ()
    deleted: tuple[str, ...] = ()
    timeline: tuple[TimelineEntry, ...] = ()
    signals: tuple[SignalBatch, ...] = ()
    calls: tuple[Call, ...] = ()
    controls: tuple[Control, ...] = ()


@dataclass(slots=True)
class Outbox:
    """Collects changes. Runs and controls are noted by name, so that a batch holds each once, in its latest state."""

    runs: dict[str, None] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    timeline: list[TimelineEntry] = field(default_factory=list)
    signals: defaultdict[str, list[Signal]] = field(default_factory=lambda: defaultdict(list))
    calls: list[Call] = field(default_factory=list)
    controls: dict[str, None] = field(default_factory=dict)

    def note(self, note: TimelineNote, incident: str, cluster: str, at: datetime) -> None:
        """Add a line to the timeline of an incident, or of the cluster where `incident` is empty."""
        actor = note.actor or PROCESS
        entry = TimelineEntry(incident, cluster, at, actor, note.event, note.text, note.attributes)
        self.timeline.append(entry)

    def report(
        self, report: RunReport, incident: str, cluster: str, at: datetime, run: Run | None = None
    ) -> None:
        """Add a `run.*` signal for the correlator."""
        attributes = {
            "incident": incident, "run": run.id if run else "", "runbook": run.plan.runbook if run else "",
            "outcome": report.outcome, "actor": report.actor, "reason": report.reason,
        }  # fmt: skip
        self.signals[cluster].append(
            signal(
                report.kind,
                Entity(cluster),
                severity=Severity.INFO,
                occurred_at=at,
                observed_at=at,
                attributes={name: value for name, value in attributes.items() if value},
            )
        )

    def signal(self, made: Signal) -> None:
        """Add a signal for the correlator."""
        self.signals[made.entity.cluster].append(made)

    def batch(self, runs: Mapping[str, Run], control: Callable[[str], Control]) -> CommitBatch:
        """Everything collected, in the order in which it happened."""
        signals = [
            SignalBatch(cluster, tuple(found[i : i + MAX_BATCH]))
            for cluster, found in self.signals.items()
            for i in range(0, len(found), MAX_BATCH)
        ]
        return CommitBatch(
            runs=tuple(runs[run_id] for run_id in self.runs if run_id in runs),
            deleted=tuple(self.deleted),
            timeline=tuple(self.timeline),
            signals=tuple(signals),
            calls=tuple(self.calls),
            controls=tuple(control(name) for name in self.controls),
        )
