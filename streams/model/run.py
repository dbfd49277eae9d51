"""Runs: a plan, how far it has come, and every outward change it made or meant to make.

A run document is committed to Kafka before each outward call and after it. Whoever reads the latest one knows
everything needed to go on: nothing lives in memory only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from streams.model.codec import on_decode
from streams.model.digest import digest
from streams.model.run_migrations import SCHEMA, upgraded
from streams.model.signal import Attribute


class Mode(StrEnum):
    """How far a runbook may go on its own."""

    SHADOW = "shadow"
    APPROVE = "approve"
    AUTO = "auto"


def stricter(one: Mode, other: Mode) -> Mode:
    """The mode that touches less."""
    order = (Mode.SHADOW, Mode.APPROVE, Mode.AUTO)
    return min(one, other, key=order.index)


class EffectState(StrEnum):
    """An outward change: meant, known to have happened, known not to, or to be looked up.

    `waiting` surely needs another call, not before the step's due time: a long change under way, or a call that was put off.
    """

    INTENDED = "intended"
    WAITING = "waiting"
    CONFIRMED = "confirmed"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    UNDONE = "undone"


class StepState(StrEnum):
    """Where a step stands. `would` is what shadow mode writes where it would have acted."""

    PENDING = "pending"
    AWAITING_APPROVAL = "awaiting_approval"
    BLOCKED = "blocked"
    RUNNING = "running"
    DONE = "done"
    SKIPPED = "skipped"
    WOULD = "would"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """True when the step will not move any more."""
        return self in _OVER


_OVER = {StepState.DONE, StepState.SKIPPED, StepState.WOULD, StepState.FAILED, StepState.CANCELLED}


class RunState(StrEnum):
    """Where the whole run stands."""

    RUNNING = "running"
    AWAITING_APPROVAL = "awaiting_approval"
    VERIFYING = "verifying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SHADOWED = "shadowed"

    @property
    def is_over(self) -> bool:
        """True when its outcome stands. A ticket, or taking back what was done, may still be due: see `Run.has_work`."""
        return self in (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.SHADOWED)


class RunOutcome(StrEnum):
    """How a run ended; empty while it has not."""

    NONE = ""
    SUCCEEDED = "succeeded"
    HANDED_OVER = "handed_over"
    """A person took it over and Faultline changed nothing but a ticket."""
    SHADOWED = "shadowed"
    FAILED = "failed"
    ESCALATED = "escalated"
    """It failed, and the next escalation step is started."""
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    EXPIRED = "expired"

    @property
    def is_early(self) -> bool:
        """True when the run was ended before its plan was carried out."""
        return self not in (RunOutcome.NONE, *_AS_PLANNED)

    @property
    def state(self) -> RunState:
        """The state of a run that ended so."""
        if self in (RunOutcome.FAILED, RunOutcome.ESCALATED):
            return RunState.FAILED
        return _AS_PLANNED.get(self, RunState.CANCELLED)


_AS_PLANNED = {
    RunOutcome.SUCCEEDED: RunState.SUCCEEDED,
    RunOutcome.HANDED_OVER: RunState.SUCCEEDED,
    RunOutcome.SHADOWED: RunState.SHADOWED,
}


@dataclass(frozen=True, slots=True)
class Target:
    """What an effect acts on, as Kubernetes (or the ticket system, or the chat) names it."""

    kind: str
    name: str
    namespace: str | None = None
    uid: str | None = None

    @property
    def key(self) -> str:
        """`kind/namespace/name`, the same for the same thing however often its uid changes."""
        return f"{self.kind}/{self.namespace or ''}/{self.name}"

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace + '/' if self.namespace else ''}{self.name}"


@dataclass(frozen=True, slots=True)
class PlannedRetry:
    """When a call that did not work is made again: after `first_s`, then `factor` times longer each, up to `longest_s`.

    What the other side asks for (Retry-After) counts where it is longer.
    """

    attempts: int | None = None
    """How many calls are made at most; None for as many as fit before the step's deadline."""
    first_s: float = 1.0
    factor: float = 2.0
    longest_s: float = 60.0

    def pause_s(self, failures: int) -> float:
        """How long to wait after so many calls that did not work, 1 at least."""
        return min(self.longest_s, self.first_s * self.factor ** min(max(failures, 1) - 1, 64))

    def is_spent(self, failures: int) -> bool:
        """Whether no further call may be made."""
        return self.attempts is not None and failures >= self.attempts


@dataclass(frozen=True, slots=True)
class Compensation:
    """What takes a step back where its connector's own undo is not the way: an ordinary action on the same target."""

    action: str
    params: Mapping[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Escalation:
    """The next rung: `to` is begun in place of a runbook that ran `after` times within `within_s` for one offender."""

    to: str
    after: int = 1
    within_s: float = 86400.0
    per: str = "gpu"
    """What is counted: the offending `gpu`, `node` or `job`."""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One typed action bound to its target. `needs` are ids of steps that must be done first."""

    id: str
    action: str
    target: Target | None
    params: Mapping[str, Attribute]
    destructive: bool
    needs: tuple[str, ...] = ()
    approval: bool = False
    deadline_s: float = 900.0
    on_failure: str = "stop"
    """`stop` ends the run for a person to take over, `continue` lets those that need this step go on without it, `escalate` ends
    it and begins the next rung, `undo` ends it and takes back everything marked with `undo`."""
    describe: str = ""
    undo: bool = False
    """Taken back when a revision of the incident removes the reason for it."""
    retry: PlannedRetry = field(default_factory=PlannedRetry)
    wave: int = 0
    """Which of the step's waves the target is in: it is begun when all of the wave before are over and well, and the pause is."""
    wave_pause_s: float = 0.0
    compensation: Compensation | None = None
    approval_group: str = ""
    """Who is asked; empty for whoever may approve at all."""
    quorum: int = 1
    """How many different people have to approve."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A runbook bound to one incident. `digest` covers everything a person approves."""

    runbook: str
    runbook_revision: int
    mode: Mode
    steps: tuple[PlannedStep, ...]
    digest: str
    why: str = ""
    escalation: Escalation | None = None
    parameters: Mapping[str, Attribute] = field(default_factory=dict)
    """The values that the runbook's parameters had when the plan was made."""
    left_out: tuple[str, ...] = ()
    """Steps of the runbook that nothing here carries out, `step: why`. They are left to a person."""


@dataclass(frozen=True, slots=True)
class EffectRecord:
    """The journal's row of one outward change.

    `lease_until` is on the wall clock and bounds when the call may start; `attempts` counts calls and is not in the key.
    `result` is what the connector said and what undo needs (e.g. the prior state).
    """

    key: str
    action: str
    target: Target
    state: EffectState
    intended_at: datetime
    lease_until: datetime
    attempts: int = 0
    result: Mapping[str, Attribute] = field(default_factory=dict)
    reason: str = ""
    confirmed_at: datetime | None = None
    failures: int = 0
    """How many of the calls surely did not work; waiting for a long change is no failure."""
    landed: bool = False
    """A call has taken hold, even if what it began is not done yet: a later refusal does not make it undone."""
    withheld: bool = False
    """We stopped the last call ourselves, and do not know yet whether in time."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What an approval takes: `quorum` different ones of `people`, who are called `group`. `given` are those who have approved.

    `people` is None where anybody may, and empty where the group is nobody here.
    """

    group: str = ""
    quorum: int = 1
    people: tuple[str, ...] | None = None
    given: tuple[str, ...] = ()

    @property
    def missing(self) -> int:
        """How many people have to approve yet."""
        return max(0, self.quorum - len(self.given))


@dataclass(frozen=True, slots=True)
class StepRecord:
    """How far one planned step has come. `due_at` is when to look at it next."""

    id: str
    state: StepState = StepState.PENDING
    effect: EffectRecord | None = None
    undo: EffectRecord | None = None
    due_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    deadline_at: datetime | None = None
    admitted_at: datetime | None = None
    """When the limits let this destructive step in."""
    reason: str = ""
    verdict: str = ""
    """What the guardrails last said: empty (allowed or not asked yet), `would`, `refused` or `needs_approval`."""
    demands: tuple[Demand, ...] = ()
    """While it waits for a person: who may approve, and who has."""
    kept_for: str = ""
    """The incident that accuses the same node: it is given back only once that incident's run holds it, or has no need of it."""
    keeper_lost_since: datetime | None = None
    """Since when that incident cannot be read; None while it can."""

    @property
    def is_being_undone(self) -> bool:
        """True while taking the step back is meant or under way."""
        return self.undo is not None and self.undo.state not in (EffectState.UNDONE, EffectState.REFUSED)


@dataclass(frozen=True, slots=True)
class Approval:
    """Who decided what about which plan, and when."""

    step: str
    approved: bool
    actor: str
    at: datetime
    digest: str
    reason: str = ""
    via: str = ""
    """Where it was said: `cli`, `slack`; empty in documents from before this was kept."""


@dataclass(frozen=True, slots=True)
class Run:
    """A plan being carried out: the value of the `runs` topic."""

    id: str
    incident: str
    incarnation: int
    cluster: str
    plan: Plan
    state: RunState
    steps: tuple[StepRecord, ...]
    created_at: datetime
    updated_at: datetime
    revision: int = 1
    approvals: tuple[Approval, ...] = ()
    title: str = ""
    reason: str = ""
    incident_revision: int = 0
    incident_facts: Mapping[str, Attribute] = field(default_factory=dict)
    finished_at: datetime | None = None
    admitted_at: datetime | None = None
    """When its first destructive step passed the limits. All that it had then was let in with it; what a revision adds later
    has to pass them anew."""
    outcome: RunOutcome = RunOutcome.NONE
    undoing: str = ""
    """Why what was done is being taken back; empty while it is not."""
    commands: tuple[str, ...] = ()
    """Ids of a person's decisions that this run has taken in, latest last, bounded."""
    context: Mapping[str, Attribute] = field(default_factory=dict)
    """What people and connectors are told about the incident."""
    offender: str = ""
    """What repeated runs are counted for: `gpu:UUID`, `gpu:NODE/PCI`, `node:NAME` or `job:KEY`; empty where none is known."""
    offenders: tuple[str, ...] = ()
    """Every name of what repeated runs are counted for, in the forms of `offender`."""
    escalated_from: str = ""
    """The run that this one goes on from, a rung higher."""
    round: int = 1
    """The how-manieth time it is that this runbook is begun for the same incarnation of the incident."""
    incident_over: bool = False
    """The incident has been over since the run began: should it come back, that is another run's matter."""
    flaps: int = 0
    """How often the place had come back by itself when the run last moved; more than that is another run's matter."""
    overruled: bool = False
    """A person has stopped the run or changed what it acts on: it is not begun again for the same incarnation."""
    blind_since: datetime | None = None
    """Since when the incident cannot be read, which the run was begun for; None while it can."""
    schema: int = SCHEMA

    @property
    def has_work(self) -> bool:
        """True while anything is left to do or to find out."""
        return not self.state.is_over or any(not r.state.is_over or r.is_being_undone for r in self.steps)

    def planned(self, step_id: str) -> PlannedStep:
        """One step of the plan. Raises KeyError for an id the plan does not have."""
        for step in self.plan.steps:
            if step.id == step_id:
                return step
        raise KeyError(step_id)

    def step(self, step_id: str) -> StepRecord:
        """The record of one step. Raises KeyError for an id the plan does not have."""
        for record in self.steps:
            if record.id == step_id:
                return record
        raise KeyError(step_id)


on_decode(Run, SCHEMA, upgraded)


def run_id(incident: str, runbook: str, revision: int, round_: int = 1) -> str:
    """The deterministic id of a run: `run-` and 16 hex digits."""
    return "run-" + digest(incident, runbook, revision, *_again(round_), size=8)


def effect_key(
    incident: str, incarnation: int, runbook: str, revision: int, step: str, target: Target, round_: int = 1
) -> str:
    """The idempotency key of an outward change. The attempt number is not in it, on purpose."""
    what = (incident, incarnation, runbook, revision, step, target.kind, target.uid or target.key)
    return digest(*what, *_again(round_), size=16)


def _again(round_: int) -> tuple[str, ...]:
    """What tells a later round from the first, whose ids are those from before there were rounds."""
    return (f"round {round_}",) if round_ > 1 else ()
