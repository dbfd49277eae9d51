"""What the responder counts: what a commit changed, once the broker has it, and what stands now, every few seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

from runbooks.engine.call_slots import system_of
from runbooks.engine.commit_batch import CommitBatch
from runbooks.engine.partition_state import PartitionState
from streams.config.settings import ResponderSettings
from streams.model.conversation import TimelineEntry
from streams.model.incident import Incident
from streams.model.run import EffectRecord, EffectState, PlannedStep, Run, StepRecord, StepState
from streams.telemetry import metrics as shown
from streams.telemetry.registry import Metrics
from streams.telemetry.tracing import incident_trace

IncidentOf = Callable[[str], Incident | None]
"""Returns an incident by its id; None where it is not known."""

_SETTLED = {
    EffectState.CONFIRMED: "confirmed",
    EffectState.REFUSED: "refused",
    EffectState.UNKNOWN: "unknown",
}
_RULINGS = {
    "step.refused": "refuse",
    "step.blocked": "hold",
    "step.awaiting_approval": "ask",
    "step.needs_approval": "ask",
}
"""Events of the timeline that a guardrail's objection makes. A step in shadow mode has only `refused` and `needs_approval`."""


class ResponderFigures:
    """Adds to the metrics of one process. `actions` are those that it can carry out."""

    def __init__(self, metrics: Metrics, settings: ResponderSettings, actions: Iterable[str] = ()) -> None:
        self._metrics = metrics
        for action in actions:
            metrics.begin(shown.EFFECTS, action)
            metrics.begin(shown.EFFECT_DELAY, action)
            metrics.begin(shown.UNKNOWN_EFFECTS, action)
            metrics.begin(shown.IN_FLIGHT, system_of(action))
        self.adopt(settings)

    def adopt(self, settings: ResponderSettings) -> None:
        """Show the mode and the kill switch of these settings from now on."""
        self._kill_switch = settings.kill_switch
        self._metrics.replace(shown.MODE, {(settings.mode,): 1.0})

    def committed(
        self,
        changed: Iterable[tuple[Run | None, Run]],
        timeline: Iterable[TimelineEntry],
        incident_of: IncidentOf,
    ) -> None:
        """Count what a commit changed: each run as it was before, None for a new one, and as it is now."""
        for old, new in changed:
            self._run(old, new, incident_of)
        for entry in timeline:
            rule = entry.attributes.get("rule")
            if isinstance(rule, str) and (ruling := _RULINGS.get(entry.event)) is not None:
                self._metrics.add(shown.REFUSALS, 1, rule, ruling)

    def iterated(self, seconds: float) -> None:
        """One iteration of a partition took so long."""
        self._metrics.observe(shown.ITERATION, seconds)

    def look(self, states: Iterable[PartitionState]) -> None:
        """Show what stands now in all owned partitions."""
        runs: Counter[tuple[str, ...]] = Counter()
        calls: Counter[tuple[str, ...]] = Counter()
        unknown: Counter[tuple[str, ...]] = Counter()
        killed = open_breakers = freezes = 0
        for state in states:
            live = [run for name in list(state.runs.live) if not (run := state.runs[name]).state.is_over]
            runs.update((run.state.value,) for run in live)
            unknown.update((row.action,) for run in live for row in _looked_up(run))
            calls.update((system,) for system in state.systems_called)
            for control in state.controls:
                killed += control.kill_switch is not None or self._kill_switch
                open_breakers += control.breaker is not None
                freezes += len(control.freezes)
        self._metrics.replace(shown.RUNS, runs)
        self._metrics.replace(shown.IN_FLIGHT, calls)
        self._metrics.replace(shown.UNKNOWN_EFFECTS, unknown)
        self._metrics.set(shown.KILL_SWITCH, max(killed, int(self._kill_switch)))
        self._metrics.set(shown.BREAKER_OPEN, open_breakers)
        self._metrics.set(shown.FREEZES, freezes)

    def _run(self, old: Run | None, new: Run, incident_of: IncidentOf) -> None:
        before = {record.id: record for record in old.steps} if old is not None else {}
        is_first = not any(_confirmed_at(record) for record in before.values())
        for planned in new.plan.steps:
            record, known = new.step(planned.id), before.get(planned.id)
            for outcome in _outcomes(known, record):
                self._metrics.add(shown.EFFECTS, 1, planned.action, outcome)
            confirmed_at = _confirmed_at(record)
            if confirmed_at is not None and (known is None or _confirmed_at(known) is None):
                self._confirmed(new, planned, confirmed_at, incident_of, is_first=is_first)
                is_first = False
            if planned.action == "await_progress" and _is_now(StepState.DONE, known, record):
                self._recovered(new, record, incident_of)
        if new.state.is_over and (old is None or not old.state.is_over):
            self._metrics.add(shown.RUNS_ENDED, 1, new.outcome)

    def _confirmed(
        self, run: Run, planned: PlannedStep, at: datetime, incident_of: IncidentOf, *, is_first: bool
    ) -> None:
        # What a person started by hand, or is tried again, says nothing about how fast Faultline is.
        if run.started_by or run.round > 1 or (incident := incident_of(run.incident)) is None:
            return
        trace_id = incident_trace(run.incident)
        opened_s, fault_s = (
            (at - since).total_seconds() for since in (incident.opened_at, incident.fault_at)
        )
        self._metrics.observe(shown.EFFECT_DELAY, opened_s, planned.action, trace_id=trace_id)
        if is_first:
            self._metrics.observe(shown.FAULT_TO_EFFECT, fault_s, trace_id=trace_id)

    def _recovered(self, run: Run, record: StepRecord, incident_of: IncidentOf) -> None:
        if record.finished_at is not None and (incident := incident_of(run.incident)) is not None:
            recovered_s = (record.finished_at - incident.fault_at).total_seconds()
            self._metrics.observe(shown.JOB_RECOVERY, recovered_s, trace_id=incident_trace(run.incident))


def pairs(before: Mapping[str, Run], batch: CommitBatch) -> list[tuple[Run | None, Run]]:
    """Each run that a commit changes, as last committed and as it will be; to be taken before the commit."""
    return [(before.get(run.id), run) for run in batch.runs]


def _looked_up(run: Run) -> Iterator[EffectRecord]:
    """The changes of a run whose outcome is not known."""
    rows = (row for record in run.steps for row in (record.effect, record.undo))
    return (row for row in rows if row is not None and row.state is EffectState.UNKNOWN)


def _outcomes(old: StepRecord | None, new: StepRecord) -> Iterator[str]:
    """What became of a step's change and its undo since the last commit."""
    effect, known = new.effect, old.effect if old is not None else None
    if effect is not None:
        is_new = known is None or known.state is not effect.state or known.attempts != effect.attempts
        if is_new and (settled := _SETTLED.get(effect.state)) is not None:
            yield settled
        elif effect.failures > (known.failures if known is not None else 0):
            yield "failed"
    if _undone(new.undo) and not _undone(old.undo if old is not None else None):
        yield "undone"
    if new.verdict == "would" and _is_now(StepState.WOULD, old, new):
        yield "would"


def _is_now(state: StepState, old: StepRecord | None, new: StepRecord) -> bool:
    return new.state is state and (old is None or old.state is not state)


def _undone(row: EffectRecord | None) -> bool:
    return row is not None and row.state is EffectState.UNDONE


def _confirmed_at(record: StepRecord) -> datetime | None:
    return record.effect.confirmed_at if record.effect is not None and not record.carried_from else None
