"""The working copy of one run during one event, and the result: the new run, the calls to make, what to report.

The state machine is pure: an event goes in, a `TransitionResult` comes out. `RunTransition` only saves writing `replace` on
every line; it lives for one event and never leaves the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from operator import is_
from typing import Any, Literal

from connectors.base import Effect
from runbooks.engine.call_slots import NEW_TICKETS, FreeSlots, system_of
from runbooks.engine.guardrails.review import ReviewLog
from runbooks.engine.guardrails.run_counts import RunCounts
from streams.config.settings import ResponderSettings
from streams.inventory.cluster_view import ClusterView
from streams.model.control import Control
from streams.model.incident import Incident
from streams.model.run import (
    EffectRecord,
    EffectState,
    PlannedStep,
    Run,
    StepRecord,
    StepState,
    effect_key,
)
from streams.model.signal import Attribute

CallKind = Literal["apply", "lookup", "undo", "undo_lookup", "compensate", "compensate_lookup"]
"""`compensate` rolls a step back by another action: for the connector it is an `apply`, for the run an undo."""

LOOKUPS: tuple[CallKind, ...] = ("lookup", "undo_lookup", "compensate_lookup")
"""Calls that change nothing."""

MAX_REASON = 300
"""Characters that a run keeps of each reason: a connector may pass on a server's text of any length."""

BLIND_S = 300.0
"""How long an incident may be unreadable before its run is ended: the correlator may write the record again."""

IN_FLIGHT = (EffectState.INTENDED, EffectState.UNKNOWN)
"""A call may be in flight, or its outcome is unknown."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a run is advanced against. `actions` are those that some connector carries out.

    `run_counts` counts all runs of the cluster, `control` has its kill switch, freezes and breaker.
    """

    incident: Incident
    view: ClusterView
    others: Iterable[Run]
    policy: ResponderSettings
    actions: frozenset[str]
    busy: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The runs that have a call in flight, by the key of its target."""
    incidents: Mapping[str, Incident] = field(default_factory=dict)
    runbooks: frozenset[str] = frozenset()
    """Ids of all runbooks."""
    control: Control | None = None
    run_counts: RunCounts | None = None
    siblings: Sequence[Run] = ()
    """The other runs of the same incident, oldest first."""
    free_slots: FreeSlots = field(default_factory=FreeSlots)
    """How many calls the run may start now."""
    reviews: ReviewLog | None = None
    """Keeps what every guardrail says, where somebody asks."""


@dataclass(frozen=True, slots=True)
class Call:
    """One outward call to make once the run is committed. Those among `LOOKUPS` change nothing."""

    run: str
    step: str
    kind: CallKind
    effect: Effect

    @property
    def slot(self) -> tuple[str, str, str]:
        """What distinguishes it from every other call in flight."""
        return (self.run, self.step, self.kind)


@dataclass(frozen=True, slots=True)
class TimelineNote:
    """A line for the timeline. `actor` is None for the responder itself."""

    event: str
    text: str
    actor: str | None = None
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunReport:
    """News of the run for the correlator: the kind of a `run.*` signal and its attributes."""

    kind: str
    outcome: str = ""
    actor: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TransitionResult:
    """The run after an event, and what follows from it. The calls may start only once the run is committed."""

    run: Run
    calls: tuple[Call, ...] = ()
    notes: tuple[TimelineNote, ...] = ()
    reports: tuple[RunReport, ...] = ()
    waits: frozenset[str] = frozenset()
    """Queues for the call slots that the run lacks."""


class RunTransition:
    """One run while one event is applied to it."""

    def __init__(self, run: Run, now: datetime) -> None:
        self.before = run
        self.run = run
        self.now = now
        self.records: dict[str, StepRecord] = {record.id: record for record in run.steps}
        self.calls: list[Call] = []
        self.notes: list[TimelineNote] = []
        self.reports: list[RunReport] = []
        self.waits: set[str] = set()

    @property
    def stopping(self) -> bool:
        """True once the run was ended early: nothing new is started."""
        return self.run.outcome.is_early

    def set(self, step_id: str, **changes: Any) -> None:
        """Change a step's record."""
        self.records[step_id] = replace(self.records[step_id], **changes)

    def change(self, **changes: Any) -> None:
        """Change the run itself."""
        self.run = replace(self.run, **changes)

    def note(self, event: str, text: str, *, actor: str | None = None, **attributes: Attribute) -> None:
        """Add a timeline entry."""
        self.notes.append(TimelineNote(event, text, actor, {"run": self.run.id, **attributes}))

    def finish(self, step_id: str, state: StepState, reason: str = "") -> None:
        """Put a step in a final state."""
        self.set(step_id, state=state, finished_at=self.now, due_at=None, reason=reason, verdict="")
        planned = self.run.planned(step_id)
        text = f"{planned.action} {planned.target}: {state}" + (f" ({reason})" if reason else "")
        self.note(f"step.{state}", text, step=step_id, action=planned.action)

    def admit(self) -> None:
        """The limits have admitted a step, and with it every destructive step that the plan has now."""
        self.change(admitted_at=self.run.admitted_at or self.now)
        for planned in self.run.plan.steps:
            if planned.destructive and self.records[planned.id].admitted_at is None:
                self.set(planned.id, admitted_at=self.now)

    def steps(self) -> Iterator[tuple[PlannedStep, StepRecord]]:
        """Each planned step with its record as it is now, in the order of the plan."""
        for planned in self.run.plan.steps:
            yield planned, self.records[planned.id]

    def in_seconds(self, seconds: float) -> datetime:
        """A due time."""
        return self.now + timedelta(seconds=seconds)

    def key(self, planned: PlannedStep, part: str = "") -> str:
        """The key of a step's effect, or of a `part` of the step that is an effect of its own."""
        assert planned.target is not None
        run, step = self.run, planned.id + (f"!{part}" if part else "")
        book = (run.plan.runbook, run.plan.runbook_revision)
        return effect_key(run.incident, run.incarnation, *book, step, planned.target, run.round)

    def intend(
        self,
        planned: PlannedStep,
        lease_s: float,
        *,
        undo: bool = False,
        inherited: EffectRecord | None = None,
    ) -> None:
        """Record the intent of a call, and make the call part of the result.

        `inherited` is the same change as an earlier run of the incident made it: it continues under that key, so that it remains
        one change.
        """
        assert planned.target is not None
        record = self.records[planned.id]
        old = record.undo if undo else record.effect or inherited
        row = EffectRecord(
            key=old.key if old else self.key(planned),
            action=old.action if old else planned.action,
            target=planned.target,
            state=EffectState.INTENDED,
            intended_at=self.now,
            lease_until=self.in_seconds(lease_s),
            attempts=(old.attempts if old and old is not inherited else 0) + 1,
            result=old.result if old else {},
            failures=old.failures if old and old is not inherited else 0,
            landed=old.landed if old and old is not inherited else False,
        )
        if undo:
            self.set(planned.id, undo=row, due_at=None)
            self.call(planned, "compensate" if planned.compensation else "undo")
            return
        deadline = record.deadline_at if record.effect else None
        # The reason of a guardrail or a full queue no longer applies; the connector's last reason still does.
        was_held = record.effect is None or bool(record.verdict)
        self.set(
            planned.id,
            effect=row,
            state=StepState.RUNNING,
            due_at=None,
            started_at=record.started_at or self.now,
            deadline_at=deadline or self.in_seconds(planned.deadline_s),
            reason="" if was_held else record.reason,
            verdict="",
        )
        self.call(planned, "apply")

    def has_free_slot(self, planned: PlannedStep, kind: CallKind, free_slots: FreeSlots) -> bool:
        """Whether there is a slot for this call, beside those taken by this transition. If not, the run queues for one."""
        if (self.run.id, planned.id, kind) in free_slots.in_flight:
            return True
        system = system_of(planned.action)
        opens = (
            planned.action == "open_ticket" and kind == "apply" and self.records[planned.id].effect is None
        )
        queue = NEW_TICKETS if opens else system
        begun = sum(system_of(call.effect.action) == system for call in self.calls)
        if free_slots.free_in(queue) > begun:
            return True
        self.waits.add(queue)
        return False

    def call(self, planned: PlannedStep, kind: CallKind) -> None:
        """Make a call part of the result. The connector gets the effect as recorded in the run."""
        record = self.records[planned.id]
        back = planned.compensation if kind in ("compensate", "compensate_lookup") else None
        row = record.undo if back else record.effect
        if row is None:
            raise ValueError(f"step {planned.id} has no effect to {kind}")
        # An undo goes by what the effect found, and by what its own earlier calls have told.
        told = record.undo.result if kind == "undo" and record.undo else {}
        effect = Effect(
            key=row.key,
            action=row.action,
            target=row.target,
            cluster=self.run.cluster,
            incident=self.run.incident,
            run=self.run.id,
            step=planned.id,
            params=back.params if back else planned.params,
            context=self.run.context,
            prior={**row.result, **told},
        )
        self.calls.append(Call(self.run.id, planned.id, kind, effect))

    def so_far(self) -> Run:
        """The run with its records as they are now."""
        steps = tuple(self.records.values())
        return self.run if _are(steps, self.run.steps) else replace(self.run, steps=steps)

    def result(self) -> TransitionResult:
        """The result; the revision increases only when something changed."""
        run, before = self.before, self.before
        steps = tuple(_bounded(self.records[record.id]) for record in self.run.steps)
        same = self.run is before and _are(steps, before.steps)
        # Equal records may have been written again: that is no change either.
        if not same and (steps != before.steps or replace(self.run, steps=steps) != before):
            run = replace(self.run, steps=steps, revision=before.revision + 1, updated_at=self.now)
        return TransitionResult(
            run, tuple(self.calls), tuple(self.notes), tuple(self.reports), frozenset(self.waits)
        )


def _are(records: Sequence[StepRecord], others: Sequence[StepRecord]) -> bool:
    """Whether these are the very same records, as in most events of most runs: then the run need not be copied."""
    return len(records) == len(others) and all(map(is_, records, others))


def _bounded(record: StepRecord) -> StepRecord:
    """The record with reasons cut to `MAX_REASON`: the document has to fit the store."""
    changes: dict[str, Any] = {}
    for name in ("effect", "undo"):
        row: EffectRecord | None = getattr(record, name)
        if row is not None and len(row.reason) > MAX_REASON:
            changes[name] = replace(row, reason=shortened(row.reason))
    if len(record.reason) > MAX_REASON:
        changes["reason"] = shortened(record.reason)
    return replace(record, **changes) if changes else record


def calls_in_flight(record: StepRecord) -> list[EffectRecord]:
    """The step's change and its undo, as far as a call may be in flight for them; a change whose step is over is settled."""
    rows = (record.effect if not record.state.is_over else None, record.undo)
    return [row for row in rows if row is not None and row.state in IN_FLIGHT]


def shortened(text: str, longest: int = MAX_REASON) -> str:
    """The text cut to what a run document keeps, with a mark where it was cut."""
    return text if len(text) <= longest else text[: longest - 1] + "…"
