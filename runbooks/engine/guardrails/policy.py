"""The policy: which guardrails are applied, and in what order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

from runbooks.engine.approvals import LIMITS, about, approved
from runbooks.engine.guardrails.context import GuardContext, Ruling, RulingKind, Stage
from runbooks.engine.guardrails.evidence import (
    FRESHNESS,
    approval,
    certainty,
    freshness,
    old_evidence,
    retry_budget,
)
from runbooks.engine.guardrails.limits import blast_radius, blast_radius_of_places, one_run_per_target, window
from runbooks.engine.guardrails.notices import not_yet
from runbooks.engine.guardrails.operator_overrides import foreign_cordon, known_node, opted_out, reopened
from runbooks.engine.guardrails.planned_work import work_is_over
from runbooks.engine.guardrails.prerequisites import confirmed_before
from runbooks.engine.guardrails.protected import job_floor, pool_floor, protected_node
from runbooks.engine.guardrails.rollout import rollout
from runbooks.engine.guardrails.switches import breaker, closed_time, frozen, kill_switch, mode, snoozed
from runbooks.engine.guardrails.tenants import team_ceiling, team_quota

STAGES: tuple[Stage, ...] = (
    kill_switch,
    breaker,
    closed_time,
    frozen,
    rollout,
    team_ceiling,
    snoozed,
    not_yet,
    work_is_over,
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
    team_quota,
    one_run_per_target,
    confirmed_before,
    retry_budget,
    certainty,
    approval,
)
"""The policy, in its order. The first objection counts, but a refusal outweighs a hold, and a hold outweighs a question: nobody
is asked to approve what would be refused or held anyway."""

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
"""Applied once, before the first destructive step of a run, for the whole run: an admitted run may finish."""

SWITCHES: tuple[Stage, ...] = (kill_switch, breaker, frozen, rollout)
"""What a command or a trip can turn on at any moment, also while the call of a step is in flight."""

_GRAVITY = (RulingKind.ASK, RulingKind.HOLD, RulingKind.REFUSE)


def judge(context: GuardContext, *, started: bool = False) -> Ruling | None:
    """The objection to the step that counts, or None.

    Fresh approvals of this plan, as many as the step requires, clear what only asks. A step in progress (`started`) is not asked
    about again, but can still be held or refused. Once nothing has moved for `freshness_s`, only newer approvals clear it.
    """
    cleared = started or approved(context.step, context.run, context.policy, context.now)
    gravest: Ruling | None = None
    for ruling in _rulings(context):
        if ruling.kind is RulingKind.REFUSE:
            return ruling
        if ruling.kind is RulingKind.ASK and _is_cleared(context, ruling.rule, cleared=cleared):
            continue
        if gravest is None or _GRAVITY.index(ruling.kind) > _GRAVITY.index(gravest.kind):
            gravest = ruling
    return gravest


def switched_off(context: GuardContext) -> Ruling | None:
    """The switch that stops a step's call even now, as long as it has not left the process; None if there is none."""
    if not context.step.destructive:
        return None
    return next((ruling for stage in SWITCHES if (ruling := stage(context)) is not None), None)


def _is_cleared(context: GuardContext, rule: str, *, cleared: bool) -> bool:
    """Whether approvals clear what a rule asks: for a limit only those of people who were told that it is reached."""
    if rule == FRESHNESS:
        return _recently_approved(context)
    if rule in LIMITS and cleared:
        return approved(context.step, about(context.run, rule), context.policy, context.now)
    return cleared


def _recently_approved(context: GuardContext) -> bool:
    """Whether the approvals given within `freshness_s` are enough on their own."""
    fresh = timedelta(seconds=context.policy.freshness_s)
    recent = tuple(approval for approval in context.run.approvals if context.now - approval.at <= fresh)
    return approved(context.step, replace(context.run, approvals=recent), context.policy, context.now)


def _rulings(context: GuardContext) -> Iterator[Ruling]:
    if not context.step.destructive:
        return
    admitted = context.admitted
    for stage in STAGES:
        if admitted and stage in ON_ADMISSION:
            continue
        ruling = stage(context)
        if ruling is not None:
            yield ruling
