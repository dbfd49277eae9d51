"""The documents of one partition, what is counted from them, and what has changed since the last commit. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from runbooks.engine.call_slots import CallLimits, CallSlots, system_of
from runbooks.engine.cluster_controls import ControlUpdate
from runbooks.engine.cluster_state import ClusterState
from runbooks.engine.commit_batch import Outbox
from runbooks.engine.escalation import entity_names, faulty_entity
from runbooks.engine.hardware_evidence import HARDWARE, evidence_of
from runbooks.engine.priority_queue import PriorityQueue
from runbooks.engine.run.transition import Call, TransitionResult, calls_in_flight
from runbooks.engine.run_index import RunIndex, UnreadableRun
from runbooks.engine.run_summaries import IncidentSummary, RunSummary
from streams.kafka.lazy_documents import LazyDocuments
from streams.model.codec import decode, encode
from streams.model.errors import BadInput
from streams.model.hardware_evidence import EVIDENCE
from streams.model.incident import Incident
from streams.model.run import Run


class PartitionDocuments:
    """Incidents, runs and cluster states of one partition. Runs are as last read or decided, committed or about to be.

    Everything counted from the runs (limits, busy targets, call slots, timers) changes with them, in `apply` and `keep`.
    """

    def __init__(
        self,
        runs: Mapping[str, Run] | LazyDocuments[Run, RunSummary] | None,
        unreadable: Iterable[UnreadableRun],
        limits: CallLimits | None,
    ) -> None:
        self.runs = RunIndex(_own_copy(runs or {}), unreadable)
        self.incidents: LazyDocuments[Incident, IncidentSummary] = LazyDocuments(_finished_incident)
        self.slots = CallSlots(limits or CallLimits())
        self.timers = PriorityQueue()
        """When each run with work left is to be advanced next."""
        self.ended: dict[str, None] = dict.fromkeys(self.runs.incidents())
        """Incidents with a run that has ended, to be checked for a next one."""
        self.outbox = Outbox()
        self.clusters: dict[str, ClusterState] = {}
        self._busy: dict[str, dict[str, frozenset[str]]] = {}
        self._in_flight: dict[str, frozenset[str]] = {}
        """Keys of the targets to which each run has calls in flight, as counted in `_busy`; runs without any are left out."""

    def cluster(self, name: str) -> ClusterState:
        """The state of a cluster; empty for one not known yet."""
        if name not in self.clusters:
            self.clusters[name] = ClusterState(name)
        return self.clusters[name]

    def busy(self, cluster: str) -> Mapping[str, frozenset[str]]:
        """The runs with a call in flight, by the key of its target."""
        return self._busy.get(cluster, {})

    def is_over(self, incident_id: str) -> bool | None:
        """Whether an incident is over; None for one that is not known."""
        if incident_id in self.incidents.summaries:
            return True
        incident = self.incidents.get(incident_id)
        return incident.state.is_over if incident is not None else None

    def apply(
        self, result: TransitionResult, now: datetime, urgent_in: Mapping[str, bool] | None = None
    ) -> None:
        """Take over the result of a transition: the run, its calls with their slots, notes and reports.

        `urgent_in` tells for each queue whether the run's calls are urgent there.
        """
        run = result.run
        known = self.runs.get(run.id)
        if known is not run and known != run:
            self.keep(run, now)
            self.outbox.runs[run.id] = None
            for target in self.runs.targets(run.id):
                self.wake(run.cluster, target, now)
            if run.state.is_over and (known is None or not known.state.is_over):
                self.ended[run.incident] = None
        self.outbox.calls += (self._with_evidence(call) for call in result.calls)
        for call in result.calls:
            urgent = (urgent_in or {}).get(system_of(call.effect.action), False)
            self.slots.take(call.slot, call.effect.action, urgent=urgent)
            if call.kind == "apply" and call.effect.action == "open_ticket":
                row = run.step(call.step).effect
                if row is not None and row.attempts == 1:
                    self.slots.opened(now)
        for note in result.notes:
            self.outbox.note(note, run.incident, run.cluster, now)
        for report in result.reports:
            self.outbox.report(report, run.incident, run.cluster, now, run)

    def _with_evidence(self, call: Call) -> Call:
        """The call; the one that opens a ticket with what is known of the part that failed.

        It is put in here and not kept in the run: a document that is written with every step must stay small.
        """
        effect = call.effect
        if effect.action != "open_ticket" or (incident := self.incidents.get(effect.incident)) is None:
            return call
        root = faulty_entity(incident)
        if incident.family not in HARDWARE or root.node is None:
            return call
        node = self.cluster(incident.cluster).view.nodes.get(root.node)
        runs = self.runs.counted_for(incident.cluster, entity_names(root)[:1])
        evidence = evidence_of(incident, node, runs)
        if evidence is None:
            return call
        context = {**effect.context, EVIDENCE: encode(evidence).decode()}
        return replace(call, effect=replace(effect, context=context))

    def keep(self, run: Run, now: datetime) -> None:
        """Replace a run by its new state, and recount what depends on it."""
        self.runs.put(run)
        self.timers.bring_forward(run.id, now)
        self.count(run)

    def count(self, run: Run) -> None:
        """Update the guardrails' counts and the busy targets."""
        self.cluster(run.cluster).run_counts.put(run)
        before, after = self._in_flight.pop(run.id, frozenset()), _targets_in_flight(run)
        if after:
            self._in_flight[run.id] = after
        busy = self._busy.setdefault(run.cluster, {})
        for key in before - after:
            busy[key] = busy.get(key, frozenset()) - {run.id}
            if not busy[key]:
                del busy[key]
        for key in after - before:
            busy[key] = busy.get(key, frozenset()) | {run.id}

    def wake(self, cluster: str, target: str, now: datetime) -> None:
        """Advance all live runs on a target soon: something about it has changed."""
        for name in self.runs.ids_on(cluster, target):
            if name in self.runs.live:
                self.timers.bring_forward(name, now)

    def control(self, state: ClusterState, update: ControlUpdate, now: datetime, incident: str = "") -> None:
        """Take over a change of a cluster's controls. Its timeline entries belong to `incident` only where one was named."""
        if state.control == update.control:
            return
        state.control = update.control
        self.outbox.controls[state.cluster] = None
        for name in self.runs.live:
            if self.runs[name].cluster == state.cluster:
                self.timers.bring_forward(name, now)
        for note in update.notes:
            self.outbox.note(note, incident, state.cluster, now)


def _own_copy(runs: Mapping[str, Run] | LazyDocuments[Run, RunSummary]) -> LazyDocuments[Run, RunSummary]:
    """A copy to change: the store's own documents are those last committed."""
    if isinstance(runs, LazyDocuments):
        return runs.copy()
    documents: LazyDocuments[Run, RunSummary] = LazyDocuments(lambda raw: decode(Run, raw))
    documents.update(runs)
    return documents


def _finished_incident(raw: bytes) -> Incident:
    """Decode a finished incident that somebody asks for after all.

    Raises:
        KeyError: it cannot be decoded. It still counts as over, and its damaged part stops nobody.
    """
    try:
        return decode(Incident, raw)
    except BadInput as error:
        raise KeyError(str(error)) from error


def _targets_in_flight(run: Run) -> frozenset[str]:
    """Keys of the targets to which the run has a call in flight."""
    return frozenset(row.target.key for record in run.steps for row in calls_in_flight(record))
