"""The working copy of one run while one event is dealt with, and what comes out of it.

The machine is pure: an event goes in, a `Turn` comes out. `Desk` only saves writing `replace` at every line; it lives for one
event and never leaves the machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from connectors.base import Effect
from runbooks.view import ClusterView
from streams.model.incident import Incident
from streams.model.run import (
    EffectRecord,
    EffectState,
    PlannedStep,
    Run,
    RunState,
    StepRecord,
    StepState,
    Target,
    effect_key,
)
from streams.model.settings import ResponderSettings
from streams.model.signal import Attribute

CallKind = Literal["apply", "lookup", "undo", "undo_lookup"]


@dataclass(frozen=True, slots=True)
class Situation:
    """What a run is advanced against. `actions` are those that some connector here carries out."""

    incident: Incident
    view: ClusterView
    others: Sequence[Run]
    policy: ResponderSettings
    actions: frozenset[str]


@dataclass(frozen=True, slots=True)
class Call:
    """One outward call to make once the run is committed. Only `apply` and `undo` change anything."""

    run: str
    step: str
    kind: CallKind
    effect: Effect


@dataclass(frozen=True, slots=True)
class Note:
    """A line for the timeline. `actor` is None for the responder itself."""

    event: str
    text: str
    actor: str | None = None
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """News of the run for the correlator: the kind of a `run.*` signal and what it says."""

    kind: str
    outcome: str = ""
    actor: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """The run after an event, and what follows from it. The calls may start only once the run is committed."""

    run: Run
    calls: tuple[Call, ...] = ()
    notes: tuple[Note, ...] = ()
    reports: tuple[Report, ...] = ()


class Desk:
    """One run being worked on at one moment."""

    def __init__(self, run: Run, now: datetime) -> None:
        self.before = run
        self.run = run
        self.now = now
        self.records: dict[str, StepRecord] = {record.id: record for record in run.steps}
        self.calls: list[Call] = []
        self.notes: list[Note] = []
        self.reports: list[Report] = []

    @property
    def stopping(self) -> bool:
        """True once the run is to end before its time: nothing new is begun."""
        return self.run.outcome not in ("", "succeeded", "shadowed")

    def set(self, step_id: str, **changes: Any) -> None:
        """Change a step's record."""
        self.records[step_id] = replace(self.records[step_id], **changes)

    def change(self, **changes: Any) -> None:
        """Change the run itself."""
        self.run = replace(self.run, **changes)

    def note(self, event: str, text: str, *, actor: str | None = None, **attributes: Attribute) -> None:
        """Say something on the timeline."""
        self.notes.append(Note(event, text, actor, {"run": self.run.id, **attributes}))

    def finish(self, step_id: str, state: StepState, reason: str = "") -> None:
        """Put a step in a state it will not leave."""
        self.set(step_id, state=state, finished_at=self.now, due_at=None, reason=reason, verdict="")
        planned = self.run.planned(step_id)
        text = f"{planned.action} {planned.target}: {state}" + (f" ({reason})" if reason else "")
        self.note(f"step.{state}", text, step=step_id, action=planned.action)

    def in_seconds(self, seconds: float) -> datetime:
        """A due time."""
        return self.now + timedelta(seconds=seconds)

    def intend(self, planned: PlannedStep, lease_s: float, *, undo: bool = False) -> None:
        """Write down that a call is about to be made, and make it part of the turn."""
        assert planned.target is not None
        record = self.records[planned.id]
        old = record.undo if undo else record.effect
        run = self.run
        key = effect_key(
            run.incident,
            run.incarnation,
            run.plan.runbook,
            run.plan.runbook_revision,
            planned.id,
            planned.target,
        )
        row = EffectRecord(
            key=old.key if old else key,
            action=planned.action,
            target=planned.target,
            state=EffectState.INTENDED,
            intended_at=self.now,
            lease_until=self.in_seconds(lease_s),
            attempts=(old.attempts if old else 0) + 1,
            result=old.result if old else {},
        )
        if undo:
            self.set(planned.id, undo=row, due_at=None)
            self.call(planned, "undo")
            return
        deadline = record.deadline_at if record.effect else None
        self.set(
            planned.id,
            effect=row,
            state=StepState.RUNNING,
            due_at=None,
            started_at=record.started_at or self.now,
            deadline_at=deadline or self.in_seconds(planned.deadline_s),
            verdict="",
        )
        self.call(planned, "apply")

    def call(self, planned: PlannedStep, kind: CallKind) -> None:
        """Make a call part of the turn. The effect as journaled is handed to the connector."""
        record = self.records[planned.id]
        row = record.effect
        if row is None:
            raise ValueError(f"step {planned.id} has no effect to {kind}")
        effect = Effect(
            key=row.key,
            action=planned.action,
            target=row.target,
            cluster=self.run.cluster,
            incident=self.run.incident,
            run=self.run.id,
            step=planned.id,
            params=planned.params,
            context=self.run.context,
            prior=row.result,
        )
        self.calls.append(Call(self.run.id, planned.id, kind, effect))

    def turn(self) -> Turn:
        """The outcome; the revision rises only when something changed."""
        run = replace(self.run, steps=tuple(self.records[record.id] for record in self.run.steps))
        if run != self.before:
            run = replace(run, revision=self.before.revision + 1, updated_at=self.now)
        return Turn(run, tuple(self.calls), tuple(self.notes), tuple(self.reports))


def same_target(one: Target | None, other: Target | None) -> bool:
    """Whether two steps act on the same thing."""
    return one is not None and other is not None and one.key == other.key


FINAL = {"succeeded": RunState.SUCCEEDED, "failed": RunState.FAILED, "shadowed": RunState.SHADOWED}
"""The state that belongs to an outcome; every other outcome is a cancelled run."""
