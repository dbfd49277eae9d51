"""The policy: which rules are asked, and in what order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from runbooks.engine.approvals import approved
from runbooks.engine.guardrails.context import GuardContext, Ruling, RulingKind, Stage
from runbooks.engine.guardrails.evidence import FRESHNESS, approval, certainty, freshness, old_evidence
from runbooks.engine.guardrails.limits import blast_radius, blast_radius_of_places, one_run_per_target, window
from runbooks.engine.guardrails.operator_overrides import foreign_cordon, known_node, opted_out, reopened
from runbooks.engine.guardrails.prerequisites import confirmed_before
from runbooks.engine.guardrails.protected import job_floor, pool_floor, protected_node
from runbooks.engine.guardrails.switches import breaker, closed_time, frozen, kill_switch, mode

STAGES: tuple[Stage, ...] = (
    kill_switch,
    breaker,
    closed_time,
    frozen,
    mode,
    freshness,
    old_evidence,
    known_node,
    opted_out,
    reopened,
    foreign_cordon,
    protected_node,
    pool_floor,
    job_floor,
    blast_radius,
    blast_radius_of_places,
    window,
    one_run_per_target,
    confirmed_before,
    certainty,
    approval,
)
"""The policy, in its order. The first objection counts, but what forbids outweighs what holds, and what holds what asks:
nobody is asked to approve what would be refused or held anyway."""

ON_ADMISSION: frozenset[Stage] = frozenset(
    {
        known_node,
        foreign_cordon,
        pool_floor,
        job_floor,
        blast_radius,
        blast_radius_of_places,
        window,
        one_run_per_target,
    }
)
"""Asked once, before the first destructive step of a run, for the whole run: what was let in may finish."""

SWITCHES: tuple[Stage, ...] = (kill_switch, breaker, frozen)
"""What a word or a trip can put against a step from one moment to the next, also while its call is under way."""

_GRAVITY = (RulingKind.ASK, RulingKind.HOLD, RulingKind.REFUSE)


def judge(context: GuardContext, *, begun: bool = False) -> Ruling | None:
    """What stands against the step, or None.

    Fresh approvals of this very plan, as many as the step takes, lift what only asks. A step that is under way (`begun`) is not
    asked about any more, but it can still be held or refused; and when nothing has moved for long, only words that are younger
    than that lift it.
    """
    lifted = begun or approved(context.step, context.run, context.policy, context.now)
    gravest: Ruling | None = None
    for ruling in _rulings(context):
        if ruling.kind is RulingKind.REFUSE:
            return ruling
        if ruling.kind is RulingKind.ASK and (_lately(context) if ruling.rule == FRESHNESS else lifted):
            continue
        if gravest is None or _GRAVITY.index(ruling.kind) > _GRAVITY.index(gravest.kind):
            gravest = ruling
    return gravest


def switched_off(context: GuardContext) -> Ruling | None:
    """What was switched off since a step was begun and stops its call even now, as long as it has not left; None if nothing."""
    if not context.step.destructive:
        return None
    return next((ruling for stage in SWITCHES if (ruling := stage(context)) is not None), None)


def _lately(context: GuardContext) -> bool:
    """Whether people have approved within the time that counts as fresh, whatever they approved before."""
    fresh = timedelta(seconds=context.policy.freshness_s)
    words = tuple(word for word in context.run.approvals if context.now - word.at <= fresh)
    return approved(context.step, replace(context.run, approvals=words), context.policy, context.now)


def _rulings(context: GuardContext) -> Iterator[Ruling]:
    if not context.step.destructive:
        return
    let_in = context.let_in
    for stage in STAGES:
        if let_in and stage in ON_ADMISSION:
            continue
        ruling = stage(context)
        if ruling is not None:
            yield ruling
