"""May this step be taken now? Small stages of one shape; their order is the policy and is read in `STAGES`.

Each stage looks at one `Case` and returns None (nothing against it) or a `Ruling` that names the rule, the numbers, and what
would lift it. Only destructive steps are limited: what gives something back always flows. The limits on how much may be under
action are checked for the whole run before its first destructive step, so that a run that has begun can finish: a job must not
stay suspended because a window is full.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from math import floor

from runbooks.view import ClusterView
from streams.model.clock import rfc3339
from streams.model.incident import Certainty, Incident
from streams.model.inventory import NodeFact
from streams.model.run import Approval, EffectState, Mode, PlannedStep, Run, RunState, StepRecord, StepState
from streams.model.settings import ResponderSettings

INVENTORY_LAG = timedelta(seconds=10)
"""How old news of a node may be: a fact observed this soon after our own change may still show the state before it."""

OWN_TAINT = "faultline.dev/incident="
"""How the taint of a node that Faultline closed begins, in a `NodeFact`."""

_MADE = (EffectState.INTENDED, EffectState.CONFIRMED, EffectState.UNKNOWN, EffectState.WAITING)


class Kind(StrEnum):
    """What a ruling means for the step: ask a person, wait until it lifts, or give the run up."""

    ASK = "ask"
    HOLD = "hold"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Ruling:
    """Something against a step. `reason` carries the numbers, `lift` what would make it go on."""

    kind: Kind
    rule: str
    reason: str
    lift: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.reason}; {self.lift}"


@dataclass(frozen=True, slots=True)
class Case:
    """Everything a stage may look at. `others` are all other runs of the cluster, finished ones included."""

    incident: Incident
    run: Run
    step: PlannedStep
    view: ClusterView
    others: Sequence[Run]
    policy: ResponderSettings
    now: datetime

    @property
    def node(self) -> NodeFact | None:
        """The node the step acts on, as inventory knows it."""
        target = self.step.target
        return self.view.nodes.get(target.name) if target and target.kind == "Node" else None

    @property
    def shadow(self) -> bool:
        """Whether this is a run that only says what it would do."""
        return self.run.plan.mode is Mode.SHADOW


def judge(case: Case, *, begun: bool = False) -> Ruling | None:
    """The first thing that stands against the step, or None.

    A fresh approval of this very plan lifts what only asks. A step that is under way (`begun`) is not asked about any more, but
    it can still be held or refused.
    """
    approved = begun or any(
        a.approved and counts(a, case.run, case.policy, case.now) for a in case.run.approvals
    )
    for ruling in _rulings(case):
        if not (ruling.kind is Kind.ASK and approved):
            return ruling
    return None


def counts(word: Approval, run: Run, policy: ResponderSettings, now: datetime) -> bool:
    """Whether a person's word is about this plan and fresh: what was held for long is asked about again before it begins."""
    fresh = run.admitted_at is not None or (now - word.at).total_seconds() <= policy.freshness_s
    return word.digest == run.plan.digest and fresh


def _rulings(case: Case) -> Iterator[Ruling]:
    if not case.step.destructive:
        return
    admitted = case.run.admitted_at is not None
    for stage in STAGES if not admitted else tuple(s for s in STAGES if s not in ON_ADMISSION):
        ruling = stage(case)
        if ruling is not None:
            yield ruling


def kill_switch(case: Case) -> Ruling | None:
    """One setting stops every destructive step, running ones included at their next step."""
    if not case.policy.kill_switch:
        return None
    return Ruling(Kind.HOLD, "kill switch", "responder.kill_switch is on", "switching it off lifts it")


def opted_out(case: Case) -> Ruling | None:
    """What a person has told us to keep off, and what carries the cluster itself, is never touched."""
    node, target = case.node, case.step.target
    if node is not None and not node.managed:
        return Ruling(
            Kind.REFUSE, "opt-out", f"{node.name} has faultline.dev/managed=false", "a person acts here"
        )
    if node is not None and node.control_plane:
        return Ruling(
            Kind.REFUSE, "control plane", f"{node.name} carries the control plane", "a person acts here"
        )
    job = case.view.jobs.get(target.key) if target else None
    if job is not None and not job.managed:
        return Ruling(
            Kind.REFUSE, "opt-out", f"{job.job} has faultline.dev/managed=false", "a person acts here"
        )
    return None


def reopened(case: Case) -> Ruling | None:
    """A person who opened our node again has decided otherwise."""
    for record, planned in _cordons(case.run):
        fact = case.view.nodes.get(planned.target.name) if planned.target else None
        if fact is not None and _opened_since(record, fact):
            return Ruling(
                Kind.REFUSE, "a person's change", f"{fact.name} was uncordoned", "a person acts here"
            )
    return None


def approval(case: Case) -> Ruling | None:
    """The runbook, the installation or this one step wants a person's word."""
    if case.step.approval or case.run.plan.mode is Mode.APPROVE:
        mode = "mode approve" if case.run.plan.mode is Mode.APPROVE else "the runbook asks first"
        return Ruling(Kind.ASK, "approval", mode, "an approval of this plan lifts it")
    return None


def certainty(case: Case) -> Ruling | None:
    """Only decisive evidence leads to an automatic destructive step."""
    if case.incident.certainty is Certainty.DECISIVE:
        return None
    return Ruling(
        Kind.ASK,
        "certainty",
        f"the evidence is {case.incident.certainty}, not decisive",
        "an approval or decisive evidence lifts it",
    )


def freshness(case: Case) -> Ruling | None:
    """What has lain about for long (a stopped process, a tripped limit) is asked about, not acted on."""
    latest = max(case.incident.updated_at, case.incident.opened_at)
    if case.run.admitted_at is not None:
        latest = max(latest, case.run.updated_at)
    age_s = (case.now - latest).total_seconds()
    if age_s <= case.policy.freshness_s:
        return None
    return Ruling(
        Kind.ASK,
        "freshness",
        f"last news {age_s:.0f} s ago, at most {case.policy.freshness_s:.0f} s count as fresh",
        "an approval or a new revision of the incident lifts it",
    )


def known_node(case: Case) -> Ruling | None:
    """A node that inventory does not know cannot be checked for an opt-out or counted."""
    target = case.step.target
    if target is None or target.kind != "Node" or case.node is not None:
        return None
    return Ruling(
        Kind.ASK, "inventory", f"{target.name} is not in the inventory", "an approval or its arrival lifts it"
    )


def foreign_cordon(case: Case) -> Ruling | None:
    """A node that a person has closed, or put in maintenance, already has somebody's attention."""
    node = case.node
    if node is None or node.owner_incident is not None:
        return None
    if node.maintenance:
        return Ruling(Kind.ASK, "maintenance", f"{node.name} is in maintenance", "an approval lifts it")
    if node.unschedulable:
        return Ruling(
            Kind.ASK, "foreign cordon", f"a person has cordoned {node.name}", "an approval lifts it"
        )
    return None


def one_run_per_target(case: Case) -> Ruling | None:
    """Two runs must not pull at one node or job; the later one waits and then looks again."""
    wanted = {s.target.key: s.target for s in case.run.plan.steps if s.destructive and s.target}
    for other in case.others:
        if other.state.is_over or other.admitted_at is None or _is_shadow(other) is not case.shadow:
            continue
        for step in other.plan.steps:
            if step.destructive and step.target and step.target.key in wanted:
                return Ruling(
                    Kind.HOLD,
                    "one run per target",
                    f"{other.id} ({other.plan.runbook}) acts on {step.target}",
                    "its end lifts it",
                )
    return None


def blast_radius(case: Case) -> Ruling | None:
    """Not more nodes closed by Faultline at once than the installation allows, absolute and as a share."""
    wanted = {
        s.target.name for s in case.run.plan.steps if s.action == "cordon_node" and s.target is not None
    }
    closed = closed_nodes(case) - wanted
    limit = case.policy.blast_radius
    share = max(1, floor(limit.max_share * len(case.view.nodes))) if limit.max_share > 0 else 0
    allowed = min(limit.max_nodes, share)
    if not wanted or len(closed) + len(wanted) <= allowed:
        return None
    return Ruling(
        Kind.HOLD,
        "blast radius",
        f"{len(closed)} of {len(case.view.nodes)} nodes are closed by Faultline, {allowed} are allowed "
        f"(max_nodes {limit.max_nodes}, max_share {limit.max_share:g})",
        "a node given back or a higher responder.blast_radius lifts it",
    )


def window(case: Case) -> Ruling | None:
    """Not more destructive steps per window than the installation allows. A run is counted whole when it is admitted."""
    limit = case.policy.blast_radius
    since = case.now - timedelta(seconds=limit.window_s)
    begun = [
        (other.admitted_at, _destructive(other))
        for other in case.others
        if other.admitted_at is not None and other.admitted_at > since and _is_shadow(other) is case.shadow
    ]
    spent, wanted = sum(n for _, n in begun), _destructive(case.run)
    if spent + wanted <= limit.max_per_window:
        return None
    numbers = f"{spent} destructive steps in {limit.window_s:.0f} s, this run adds {wanted}, {limit.max_per_window} are allowed"
    if wanted > limit.max_per_window:
        return Ruling(Kind.ASK, "window", numbers, "an approval lifts it")
    free = min(at for at, _ in begun) + timedelta(seconds=limit.window_s)
    return Ruling(Kind.HOLD, "window", numbers, f"time lifts it, first at {rfc3339(free)}")


Stage = Callable[[Case], Ruling | None]

ON_ADMISSION: tuple[Stage, ...] = (known_node, foreign_cordon, one_run_per_target, blast_radius, window)
"""Asked once, before the first destructive step of a run, for the whole run."""

STAGES: tuple[Stage, ...] = (
    kill_switch,
    opted_out,
    reopened,
    known_node,
    foreign_cordon,
    one_run_per_target,
    blast_radius,
    window,
    freshness,
    certainty,
    approval,
)
"""The policy. What forbids comes before what asks, so that nobody approves what would be refused anyway."""


def closed_nodes(case: Case) -> set[str]:
    """Nodes that Faultline holds closed: by the other runs' own record, and by the marks that inventory sees."""
    closed = {name for name, fact in case.view.nodes.items() if _is_held(fact)}
    for other in case.others:
        # A run that was never admitted has closed nothing; most runs are of that kind when there are many.
        if other.admitted_at is None or _is_shadow(other) is not case.shadow:
            continue
        for record, planned in _cordons(other):
            if planned.target is None:
                continue
            fact = case.view.nodes.get(planned.target.name)
            if (fact is None and not _gone_for_good(record, case)) or (
                fact and not _opened_since(record, fact)
            ):
                closed.add(planned.target.name)
    return closed


def _is_held(fact: NodeFact) -> bool:
    """Closed under our name: who opens a node again by hand often leaves our annotations on it, and they mean nothing then."""
    tainted = any(taint.startswith(OWN_TAINT) for taint in fact.taints)
    return fact.owner_incident is not None and (fact.unschedulable or tainted)


def _gone_for_good(record: StepRecord, case: Case) -> bool:
    """A closed node that has left the cluster is under nobody's action any more; for one window it may only be not seen yet."""
    effect = record.effect
    if effect is None or effect.confirmed_at is None:
        return False
    return effect.confirmed_at + timedelta(seconds=case.policy.blast_radius.window_s) < case.now


def _cordons(run: Run) -> Iterator[tuple[StepRecord, PlannedStep]]:
    """Cordons of a run that are made, may be made, or (in shadow) would be made, and are not taken back."""
    for planned in run.plan.steps:
        if planned.action != "cordon_node":
            continue
        record = run.step(planned.id)
        if record.undo is not None and record.undo.state is EffectState.UNDONE:
            continue
        would = record.state is StepState.WOULD and not run.undoing
        if would or (record.effect is not None and record.effect.state in _MADE):
            yield record, planned


def _opened_since(record: StepRecord, fact: NodeFact) -> bool:
    effect = record.effect
    if effect is None or effect.confirmed_at is None or fact.unschedulable:
        return False
    return fact.observed_at > effect.confirmed_at + INVENTORY_LAG


def _destructive(run: Run) -> int:
    return sum(step.destructive for step in run.plan.steps)


def _is_shadow(run: Run) -> bool:
    return run.plan.mode is Mode.SHADOW or run.state is RunState.SHADOWED
