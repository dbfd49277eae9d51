"""Summaries of finished runs and incidents: enough to find them, and to know that nothing waits for them.

A summary is decoded from the full document with most fields ignored, so that nothing else has to be written. There may be ten
thousand of them for weeks: each is few objects, which keeps memory and garbage collection cheap.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from runbooks.engine.guardrails.cordoned_nodes import INVENTORY_LAG, Cordon
from streams.model.codec import decode, encode
from streams.model.errors import BadInput
from streams.model.facts import NodeFact
from streams.model.incident import IncidentState
from streams.model.run import EffectState, Mode, PlannedStep, Run, RunState, StepState, Target
from streams.model.run_migrations import SCHEMA

_FINISHED = "faultline-finished"

_NOT_OVER = tuple(f'"state":"{state}"'.encode() for state in RunState if not state.is_over)
_STEPS = b',"steps":['
"""In the document of a run that is not over the one stands before the other, and no text can: quotes are escaped there."""

_SETTLED = (EffectState.UNDONE, EffectState.REFUSED)


@dataclass(frozen=True, slots=True)
class _Planned:
    id: str
    action: str
    target: Target | None = None


@dataclass(frozen=True, slots=True)
class _Plan:
    mode: Mode
    steps: tuple[_Planned, ...]


@dataclass(frozen=True, slots=True)
class _Effect:
    state: EffectState
    confirmed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Step:
    id: str
    state: StepState
    effect: _Effect | None = None
    undo: _Effect | None = None

    @property
    def confirmed(self) -> bool:
        return self.effect is not None and self.effect.state is EffectState.CONFIRMED

    @property
    def undone(self) -> bool:
        return self.undo is not None and self.undo.state is EffectState.UNDONE


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A finished run, by what it may still be asked for."""

    id: str
    incident: str
    cluster: str
    incident_revision: int
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    round: int
    escalated_from: str
    targets: frozenset[str]
    """Keys of its targets."""
    offenders: frozenset[str]
    shadow: bool
    """As `guardrails.cordoned_nodes.is_shadow` says."""
    cordons: tuple[Cordon, ...]
    """As `PartialRun.cordons`, of an admitted run."""
    jobs: frozenset[str]
    """Keys of the jobs that it suspended, where it has cordons."""

    def may_hold(self, nodes: Mapping[str, NodeFact], now: datetime, window_s: float) -> bool:
        """Whether a node may still be cordoned by it; `guardrails.run_counts` counts that exactly."""
        for name, confirmed_at in self.cordons:
            fact = nodes.get(name)
            if confirmed_at is None or (fact is not None and fact.unschedulable):
                return True
            known_by = confirmed_at + (timedelta(seconds=window_s) if fact is None else INVENTORY_LAG)
            if (now if fact is None else fact.observed_at) <= known_by:
                return True
        return False


@dataclass(frozen=True, slots=True)
class PartialRun:
    """A run's document without texts, parameters and keys."""

    id: str
    incident: str
    cluster: str
    plan: _Plan
    state: RunState
    steps: tuple[_Step, ...]
    created_at: datetime
    updated_at: datetime
    incident_revision: int = 0
    finished_at: datetime | None = None
    admitted_at: datetime | None = None
    offender: str = ""
    offenders: tuple[str, ...] = ()
    undoing: str = ""
    escalated_from: str = ""
    round: int = 1
    schema: int = 1

    @property
    def has_work(self) -> bool:
        """As `Run.has_work`."""
        return not self.state.is_over or any(
            not step.state.is_over or (step.undo is not None and step.undo.state not in _SETTLED)
            for step in self.steps
        )

    @property
    def cordons(self) -> tuple[Cordon, ...]:
        """Nodes that it cordoned, may have cordoned or (in shadow mode) would have, and has not uncordoned, with the time.

        The same as `guardrails.cordoned_nodes.cordons` finds in the full document.
        """
        records = {step.id: step for step in self.steps}
        returned = {
            planned.target.key
            for planned in self.plan.steps
            if planned.action == "uncordon_node" and planned.target and records[planned.id].confirmed
        }
        found = []
        for planned in self.plan.steps:
            record = records[planned.id]
            if planned.action != "cordon_node" or planned.target is None or record.undone:
                continue
            would = record.state is StepState.WOULD and not self.undoing
            made = record.effect is not None and record.effect.state not in _SETTLED
            if would or (made and planned.target.key not in returned):
                found.append((planned.target.name, record.effect.confirmed_at if record.effect else None))
        return tuple(found)

    @property
    def summary(self) -> RunSummary:
        """What is kept while the document stays encoded."""
        cordons = self.cordons if self.admitted_at is not None else ()
        moved = (step for step in self.plan.steps if step.action == "suspend_job" and cordons)
        return RunSummary(
            self.id,
            self.incident,
            self.cluster,
            self.incident_revision,
            self.created_at,
            self.updated_at,
            self.finished_at,
            self.round,
            self.escalated_from,
            targets_of(self.plan.steps),
            names_of(self.offender, self.offenders),
            self.plan.mode is Mode.SHADOW or self.state is RunState.SHADOWED,
            cordons,
            targets_of(moved),
        )


@dataclass(frozen=True, slots=True)
class IncidentSummary:
    """An incident without its evidence."""

    id: str
    cluster: str
    revision: int
    state: IncidentState


def targets_of(steps: Iterable[PlannedStep | _Planned]) -> frozenset[str]:
    """Keys of the targets of steps."""
    return frozenset(step.target.key for step in steps if step.target is not None)


def names_of(offender: str, offenders: Iterable[str]) -> frozenset[str]:
    """The entities that a run is counted for; older documents have a single name."""
    return frozenset(offenders or ((offender,) if offender else ()))


def summary_if_finished(key: str, raw: bytes) -> RunSummary | None:
    """The summary of a run's document when it may stay encoded; None when it has to be decoded now.

    That is one with work left, under a wrong key, or of another schema version: only the full decoder handles those.
    """
    if raw.endswith(_NOT_OVER, 0, max(0, raw.rfind(_STEPS))):
        return None
    try:
        run = decode(PartialRun, raw)
    except BadInput:
        # The full decoder gives the better error.
        return None
    return None if run.has_work or run.id != key or run.schema != SCHEMA else run.summary


@dataclass(frozen=True, slots=True)
class FinishedRunHeader:
    """The header on the record of a finished run, for a reader that cannot decode the document any more."""

    incident: str
    cluster: str
    schema: int


def finished_header(run: Run) -> tuple[tuple[str, bytes], ...]:
    """The headers to write a run's document with: none while it has work left."""
    if run.has_work:
        return ()
    return ((_FINISHED, encode(FinishedRunHeader(run.incident, run.cluster, run.schema))),)


def read_finished_header(headers: Iterable[tuple[str, bytes]]) -> FinishedRunHeader | None:
    """The header of a run that certainly has no work left; None where there is none.

    A document of a newer schema is not damaged: a newer version has to read it.
    """
    for name, value in headers:
        if name == _FINISHED:
            try:
                found = decode(FinishedRunHeader, value)
            except BadInput:
                return None
            return found if found.schema <= SCHEMA else None
    return None
