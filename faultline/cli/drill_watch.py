"""What a drill has seen so far: which hops its fault has passed, and whether anything was not as safe as it must be. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from streams.model.drill import is_drill
from streams.model.incident import Incident
from streams.model.run import Mode, Run
from streams.model.signal import Signal
from streams.model.thread import ROOT, Thread

RAW, SIGNAL, INCIDENT, PLAN, THREAD = "raw record", "signal", "incident", "plan in shadow mode", "thread"
RESPONDER, CLOSED = "responder", "closed again"

MISSING = {
    RESPONDER: "no responder confirmed that it plans drills in shadow mode, so nothing was sent: is one running for this "
    "cluster, and is it of a version that knows drills?",
    SIGNAL: "no detector turned the record into a signal: is one running, and how far is its group behind on the raw topics?",
    INCIDENT: "no correlator opened an incident from the signal: is one running, and does it still catch up?",
    PLAN: "no responder planned for the incident: has it read it, and does a runbook match its family?",
    THREAD: "the chat posted nothing: is the process running, and may its token write to the channel?",
    CLOSED: "the incident of the drill is still open: the next drill closes it, or `faultline incidents resolve` does",
}
"""What to look at, by the hop where a drill stops."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One stage that the fault has passed, and what was seen there."""

    name: str
    at: datetime
    detail: str


@dataclass(slots=True)
class DrillWatch:
    """Takes documents as they appear on the topics. `hops` are in the order in which they were seen."""

    host: str
    with_thread: bool
    hops: list[Hop] = field(default_factory=list)
    incident: Incident | None = None
    unsafe: str = ""
    """Why the drill has to be broken off: a plan for it was not in shadow mode."""
    early: list[tuple[Run | Thread, datetime]] = field(default_factory=list)
    """Runs and threads that were read before their incident: topics are read side by side, and a run may be final at once."""

    @property
    def wanted(self) -> tuple[str, ...]:
        """The hops to pass, in their order."""
        return (RESPONDER, RAW, SIGNAL, INCIDENT, PLAN, *((THREAD,) if self.with_thread else ()))

    @property
    def missing(self) -> str:
        """The first hop that was not passed; empty when all were."""
        seen = {hop.name for hop in self.hops}
        return next((name for name in self.wanted if name not in seen), "")

    def passed(self, name: str, at: datetime, detail: str) -> None:
        """A hop, the first time that it is seen."""
        if all(hop.name != name for hop in self.hops):
            self.hops.append(Hop(name, at, detail))

    def take_signal(self, signal: Signal, at: datetime) -> None:
        """A signal of the cluster."""
        if signal.entity.node == self.host:
            where = signal.evidence[0].coordinates if signal.evidence else "no evidence"
            self.passed(SIGNAL, at, f"{signal.kind} of {where}")

    def take_incident(self, incident: Incident, at: datetime) -> None:
        """A revision of an incident."""
        if not is_drill(incident) or self.host not in (incident.root.node, *incident.nodes):
            return
        self.incident = incident
        self.passed(INCIDENT, at, f"{incident.id} {incident.family} {incident.certainty.value}")
        early, self.early = self.early, []
        for document, seen_at in early:
            self.take(document, seen_at)
        if incident.state.is_over:
            self.passed(CLOSED, at, f"{incident.id} is {incident.state.value}")

    def take(self, document: Run | Thread, at: datetime) -> None:
        """A revision of a run or of a thread, of this drill or of anything else."""
        if self.incident is None:
            self.early.append((document, at))
        elif document.incident != self.incident.id:
            return
        elif isinstance(document, Run):
            self._take_run(document, at)
        else:
            self._take_thread(document, at)

    def _take_run(self, run: Run, at: datetime) -> None:
        if run.plan.mode is not Mode.SHADOW or any(record.effect is not None for record in run.steps):
            self.unsafe = f"run {run.id} is in mode {run.plan.mode.value}, or has changed something"
            return
        steps = ", ".join(step.action for step in run.plan.steps)
        self.passed(PLAN, at, f"{run.id} {run.plan.runbook}: would {steps}")

    def _take_thread(self, thread: Thread, at: datetime) -> None:
        root = thread.post(ROOT)
        if root is not None and root.stands:
            self.passed(THREAD, at, f"channel {thread.channel or root.create.result.get('channel', '')}")
