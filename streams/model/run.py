"""Runs: a plan, its progress, and every outward change it made or intended.

A run document is committed to Kafka before each outward call and after it. The latest one holds everything needed to
continue: no state is kept in memory only.
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
    """An outward change: intended, known to have happened, known not to have, or to be looked up.

    `waiting` needs another call when the step is due: a long change is in progress, or the call was postponed.
    """

    INTENDED = "intended"
    WAITING = "waiting"
    CONFIRMED = "confirmed"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    UNDONE = "undone"


class StepState(StrEnum):
    """State of a step. `would`: shadow mode would have acted."""

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
        """True when the step is finished."""
        return self in _OVER


_OVER = {StepState.DONE, StepState.SKIPPED, StepState.WOULD, StepState.FAILED, StepState.CANCELLED}


class RunState(StrEnum):
    """State of the whole run."""

    RUNNING = "running"
    AWAITING_APPROVAL = "awaiting_approval"
    VERIFYING = "verifying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SHADOWED = "shadowed"

    @property
    def is_over(self) -> bool:
        """True when its outcome is final. A ticket or an undo may still be due: see `Run.has_work`."""
        return self in (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.SHADOWED)


class RunOutcome(StrEnum):
    """How a run ended; empty while it has not."""

    NONE = ""
    SUCCEEDED = "succeeded"
    HANDED_OVER = "handed_over"
    """An operator took it over and Faultline changed nothing but a ticket."""
    SHADOWED = "shadowed"
    FAILED = "failed"
    ESCALATED = "escalated"
    """It failed, and the next escalation step is started."""
    CANCELLED = "cancelled"
    REJECTED = "rejected"
    EXPIRED = "expired"

    @property
    def is_early(self) -> bool:
        """True when the run ended before its plan was executed."""
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
    """When a failed call is repeated: after `first_s`, then `factor` times longer each, up to `longest_s`.

    What the other side asks for (Retry-After) counts where it is longer.
    """

    attempts: int | None = None
    """How many calls are made at most; None for as many as fit before the step's deadline."""
    first_s: float = 1.0
    factor: float = 2.0
    longest_s: float = 60.0

    def pause_s(self, failures: int) -> float:
        """Seconds to wait after this many failed calls (1 at least)."""
        return min(self.longest_s, self.first_s * self.factor ** min(max(failures, 1) - 1, 64))

    def is_spent(self, failures: int) -> bool:
        """Whether no further call may be made."""
        return self.attempts is not None and failures >= self.attempts


@dataclass(frozen=True, slots=True)
class Compensation:
    """Undoes a step where its connector's own undo is not used: an ordinary action on the same target."""

    action: str
    params: Mapping[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Escalation:
    """The next escalation step: `to` replaces a runbook that ran `after` times within `within_s` for one faulty entity."""

    to: str
    after: int = 1
    within_s: float = 86400.0
    per: str = "gpu"
    """What is counted: the faulty `gpu`, `node` or `job`."""


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
    """`stop` ends the run for an operator to take over, `continue` lets the steps that need this one go on without it, `escalate`
    ends it and starts the next escalation step, `undo` ends it and undoes everything marked with `undo`."""
    describe: str = ""
    undo: bool = False
    """Undone when a revision of the incident removes the reason for it."""
    retry: PlannedRetry = field(default_factory=PlannedRetry)
    wave: int = 0
    """Which of the step's waves the target is in: it starts a pause after the previous wave succeeded."""
    wave_pause_s: float = 0.0
    compensation: Compensation | None = None
    approval_group: str = ""
    """The group that approves; empty for any approver."""
    quorum: int = 1
    """How many different approvers are needed."""
    teams: tuple[str, ...] | None = None
    """The teams of the settings whose jobs it touches; None where there are none."""
    jobs_beside: Mapping[str, int] | None = None
    """How many jobs of each of these teams are on its node beside those that the run stops by steps of their own, for a step that
    disturbs them; None where there are none."""
    job_known: bool = False
    """For a step on the job of a team: the inventory had that job when the step was planned, so that it is gone once the
    inventory has it no more."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A runbook bound to one incident. `digest` covers everything an operator approves."""

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
    """Steps of the runbook that no connector here executes, `step: why`. They are left to the operator."""
    would_evict: tuple[str, ...] = ()
    """Which pods its drains would evict, in words, by the inventory then. No part of the digest: pods come and go."""


@dataclass(frozen=True, slots=True)
class EffectRecord:
    """The stored record of one outward change.

    `lease_until` is on the wall clock and bounds when the call may start; `attempts` counts calls and is not in the key.
    `result` is what the connector reported and what undo needs (e.g. the prior state).
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
    """How many of the calls certainly failed; waiting for a long change is not a failure."""
    landed: bool = False
    """A call had an effect, even if the change is not complete yet: a later refusal does not revert it."""
    withheld: bool = False
    """We stopped the last call ourselves, and do not know yet whether it was in time."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What an approval needs: `quorum` different members of `group`, who are `people`. `given` are those who have approved.

    `people` is None where anybody may approve, and empty where the group has no members here.
    """

    group: str = ""
    quorum: int = 1
    people: tuple[str, ...] | None = None
    given: tuple[str, ...] = ()

    @property
    def missing(self) -> int:
        """How many approvals are still missing."""
        return max(0, self.quorum - len(self.given))


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """What a job's own object said of its training when a step looked; `at` is None where it said nothing."""

    at: datetime | None = None
    percent: int | None = None


@dataclass(frozen=True, slots=True)
class StepRecord:
    """Progress of one planned step. `due_at` is when to check it next."""

    id: str
    state: StepState = StepState.PENDING
    effect: EffectRecord | None = None
    undo: EffectRecord | None = None
    due_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    deadline_at: datetime | None = None
    admitted_at: datetime | None = None
    """When the limits admitted this destructive step."""
    reason: str = ""
    verdict: str = ""
    """The last verdict of the guardrails: empty (allowed or not asked yet), `would`, `refused` or `needs_approval`."""
    demands: tuple[Demand, ...] = ()
    """While it waits for approval: who may approve, and who has."""
    kept_for: str = ""
    """Another incident on the same node: the node is released only once that incident's run holds it, or does not need it."""
    keeper_lost_since: datetime | None = None
    """Since when that incident cannot be read; None while it can be."""
    reports: tuple[ProgressReport, ...] = ()
    """While it waits for progress: what the job reported at first, and what has changed since."""
    carried_from: str = ""
    """The earlier run whose work on this step this run goes on with; empty where the step is this run's own."""

    @property
    def is_being_undone(self) -> bool:
        """True while undoing the step is intended or in progress."""
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
    """Where it came from: `cli`, `slack`; empty in older documents."""
    rule: str = ""
    """The guardrail that the question was about; empty for a question of the runbook's own, and in older documents."""
    groups: tuple[str, ...] = ()
    """The approval groups of other systems that the person was in, of those that the settings name."""


@dataclass(frozen=True, slots=True)
class Snooze:
    """Destructive steps of a run that have not begun wait until `until`. `since` is when the run was first snoozed."""

    actor: str
    since: datetime
    until: datetime


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
    """When its first destructive step passed the limits: admitted with all steps it had then; steps added later are checked."""
    outcome: RunOutcome = RunOutcome.NONE
    undoing: str = ""
    """Why the run is being undone; empty while it is not."""
    commands: tuple[str, ...] = ()
    """Ids of the commands that this run has processed, latest last, bounded."""
    context: Mapping[str, Attribute] = field(default_factory=dict)
    """What messages and connectors contain about the incident."""
    offender: str = ""
    """What repeated runs are counted for: `gpu:UUID`, `gpu:NODE/PCI`, `node:NAME` or `job:KEY`; empty where none is known."""
    offenders: tuple[str, ...] = ()
    """Every name of what repeated runs are counted for, in the forms of `offender`."""
    escalated_from: str = ""
    """The run that was escalated to this one."""
    round: int = 1
    """Which attempt this is to run the runbook for the same incarnation of the incident, from 1."""
    incident_over: bool = False
    """The incident has ended since the run started: if it recurs, another run handles it."""
    flaps: int = 0
    """How often the entity had recovered by itself when the run last advanced; further flaps belong to another run."""
    overruled: bool = False
    """An operator has stopped the run or changed its target: it is not started again for the same incarnation."""
    taken_over_by: str = ""
    """Who has taken the incident over last: nothing that the run did is undone any more, whatever becomes of the incident."""
    snooze: Snooze | None = None
    """The latest one, over or not."""
    blind_since: datetime | None = None
    """Since when the run's incident cannot be read; None while it can be."""
    started_by: str = ""
    """The person who started it by hand; empty where Faultline started it by itself."""
    continues: str = ""
    """The run that ended early and that this one takes up again."""
    config: str | None = None
    """The version of runbooks and settings that its plan was made with (`faultline.runtime.config_set`); None where the process
    had none, and in older documents. What the run does follows its plan, whatever is loaded later."""
    schema: int = SCHEMA

    @property
    def has_work(self) -> bool:
        """True while anything is left to do or to look up."""
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
    """Part of the ids of later rounds; the first has none, so that ids of older versions stay the same."""
    return (f"round {round_}",) if round_ > 1 else ()
