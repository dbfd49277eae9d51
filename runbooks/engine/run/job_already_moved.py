"""Skips steps on a job that is not to be suspended: another run or its own controller has started it elsewhere, or it has ended.

That is no failure of the run: the steps that follow the suspend are skipped with it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from runbooks.engine.escalation import faulty_entity
from runbooks.engine.guardrails.cordoned_nodes import is_in_place, same_target
from runbooks.engine.guardrails.left_jobs import AFTER_STOP
from runbooks.engine.job_condition import (
    POD,
    UNMOVABLE,
    JobCondition,
    condition_of,
    has_healed,
    heals_within_s,
    immovable,
)
from runbooks.engine.run.rollback import holds_a_job
from runbooks.engine.run.transition import RunContext, RunTransition
from streams.model.clock import to_the_second
from streams.model.run import EffectState, Mode, PlannedStep, Run, StepState

HAS_NOT_HEALED = "its own controller has not replaced what it lost"
IS_SUSPENDED = "is suspended, and not by Faultline: it stays so, and is not resumed"
GOES_ON = "its controller replaces alone what it has on"


def moved_already(transition: RunTransition, planned: PlannedStep, context: RunContext) -> str:
    """Why a `suspend_job`, or a step that follows it, is not needed; empty when it is.

    It is not when the job has ended or cannot be moved, when its own controller replaces what it lost or what the drain evicts,
    nor when that or another run has started it since the fault and none of its pods runs on the bad node any more; its progress
    is still awaited then.
    """
    if planned.action in AFTER_STOP:
        return _skipped_with_suspend(transition, planned, context)
    if planned.action == "diagnose_nodes":
        return _not_stopped(transition, planned)
    target = planned.target
    if planned.action != "suspend_job" or target is None:
        return ""
    node = faulty_entity(context.incident).node
    if transition.run.plan.mode is Mode.SHADOW and _is_suspended_by_another(planned, context):
        return f"{target} {IS_SUSPENDED}"
    match condition(planned, context):
        case JobCondition.COMPLETED:
            return f"{target} has completed"
        case JobCondition.DIED:
            return owner_text(transition, planned, context)
        case JobCondition.HEALS if why := _left_to_heal(transition, planned, context):
            return why
        case JobCondition.FIXED:
            return owner_text(transition, planned, context)
        case JobCondition.GOES_ON:
            return f"{GOES_ON} {node}: {target} is not stopped, and the drain evicts that"
        case JobCondition.RESTARTED if _is_another(planned, context):
            return f"{target} was created anew since"
        case JobCondition.RESTARTED if node is not None:
            return f"its own controller has restarted {target} since the fault; none of its pods is on {node}"
    if node is None:
        return ""
    movers = [run.id for run in context.others if _has_resumed(run, planned, context)]
    if not movers or target.key in context.view.jobs_on(node):
        return ""
    return f"{movers[0]} has rescheduled {target} since the fault; it no longer runs on {node}"


def healing_until(
    transition: RunTransition, planned: PlannedStep, context: RunContext
) -> tuple[datetime, str] | None:
    """Until when a `suspend_job` waits for a job that heals itself, and the text for it; None when it does not wait.

    The time runs from when the run first came to this step. A job that is suspended already is not kept waiting for it.
    """
    if planned.action != "suspend_job" or planned.target is None:
        return None
    key, record = planned.target.key, transition.records[planned.id]
    within_s = heals_within_s(key, context.view)
    if condition(planned, context) is not JobCondition.HEALS or within_s is None or holds_a_job(transition):
        return None
    until = (record.started_at or transition.now) + timedelta(seconds=within_s)
    if transition.now >= until or _has_healed(planned, context):
        return None
    why = immovable(key, context.view)
    then = (
        f"its owner is told, for it cannot be suspended: {why}"
        if why
        else "it is suspended and started elsewhere"
    )
    text = f"{planned.target} is left to its own controller, which has {within_s:g} s until {to_the_second(until)}"
    return until, f"heals itself: {text}; otherwise {then}"


def _left_to_heal(transition: RunTransition, planned: PlannedStep, context: RunContext) -> str:
    """Why a job that heals itself is not suspended; empty when it had its time and has to be."""
    assert planned.target is not None
    key, record = planned.target.key, transition.records[planned.id]
    within_s = heals_within_s(key, context.view) or 0.0
    if transition.run.plan.mode is Mode.SHADOW:
        why = immovable(key, context.view)
        then = (
            f"its owner would be told, for it cannot be suspended: {why}" if why else "it would be suspended"
        )
        own = f"{planned.target} is left to its own controller, which replaces what it lost within {within_s:g} s"
        return f"{own}; otherwise {then}"
    if _has_healed(planned, context):
        return f"its own controller has replaced what {planned.target} lost"
    over = record.started_at is not None and transition.now >= record.started_at + timedelta(seconds=within_s)
    if not over:
        return f"{planned.target} is left to its own controller: another job of this incident is stopped and cannot wait for it"
    if immovable(key, context.view):
        return f"{HAS_NOT_HEALED} within {within_s:g} s: {owner_text(transition, planned, context)}"
    return ""


def _has_healed(planned: PlannedStep, context: RunContext) -> bool:
    assert planned.target is not None
    node = faulty_entity(context.incident).node
    return has_healed(planned.target.key, context.view, context.incident.fault_at, node)


def condition(planned: PlannedStep, context: RunContext) -> JobCondition:
    """How the job that a step acts on stands."""
    assert planned.target is not None
    node = faulty_entity(context.incident).node
    since = context.incident.fault_at if node is not None else None
    return condition_of(planned.target.key, context.view, since, node, planned.target.uid)


def owner_text(transition: RunTransition, planned: PlannedStep, context: RunContext) -> str:
    """What the owner of a job is told: for one that nobody but they can start again what hit it, that its place is clean, and how
    to go on; else what the step says."""
    now = condition(planned, context) if planned.target is not None else None
    if planned.target is None:
        return planned.describe
    reason = immovable(planned.target.key, context.view)
    if now not in UNMOVABLE and not (now is JobCondition.HEALS and reason):
        return planned.describe
    if planned.target.kind == POD:
        return _text_of_pod(transition, planned, context, reason)
    how = (
        f"{planned.target} has failed and cannot be suspended"
        if now is JobCondition.DIED
        else f"{planned.target} cannot be suspended: {reason}"
    )
    again = (
        "create it again from its manifest and its last checkpoint"
        if now is JobCondition.DIED
        else "unless its own controller restarts it, start it again from its last checkpoint"
    )
    closed = _closed(transition)
    place = f"{', '.join(closed)} is cordoned, so it does not come back there; " if closed else ""
    said = _said(planned, reason) if planned.action == "notify" else ""
    return f"{how}; hit by {context.incident.title}; {place}{again}{said}"


def _text_of_pod(transition: RunTransition, planned: PlannedStep, context: RunContext, reason: str) -> str:
    closed = _closed(transition)
    place = f"{', '.join(closed)} is cordoned; " if closed else ""
    said = _said(planned, reason)
    return (
        f"{planned.target} cannot be moved: {reason}, so it is not evicted; "
        f"hit by {context.incident.title}; {place}delete it and create it again, and it runs on another node{said}"
    )


def _said(planned: PlannedStep, reason: str) -> str:
    """What the step itself says, without the reason that the plan has added."""
    own = planned.describe.removesuffix(reason).removesuffix("; ")
    return f"; {own}" if own else ""


def _closed(transition: RunTransition) -> list[str]:
    """The nodes that this run holds cordoned."""
    return [
        other.target.name
        for other, record in transition.steps()
        if other.action == "cordon_node" and other.target is not None and is_in_place(record)
    ]


def completed(planned: PlannedStep, context: RunContext) -> bool:
    """Whether the inventory shows this very job (same uid) finished and not failed."""
    return planned.target is not None and condition(planned, context) is JobCondition.COMPLETED


def died(planned: PlannedStep, context: RunContext) -> bool:
    """Whether the inventory shows this very job (same uid) failed."""
    return planned.target is not None and condition(planned, context) is JobCondition.DIED


def _is_another(planned: PlannedStep, context: RunContext) -> bool:
    """Whether the inventory shows another job under the name of the one that was planned for."""
    fact = context.view.jobs.get(planned.target.key) if planned.target else None
    uid = planned.target.uid if planned.target else None
    return fact is not None and uid is not None and fact.job.uid not in (None, uid)


def _is_suspended_by_another(planned: PlannedStep, context: RunContext) -> bool:
    """Whether a job is suspended that no live run has suspended: the lever finds out by the job's marks, which nobody reads in
    shadow mode."""
    fact = context.view.jobs.get(planned.target.key) if planned.target else None
    if fact is None or not fact.suspended or fact.finished:
        return False
    return not any(
        other.action == "suspend_job"
        and same_target(other.target, planned.target)
        and is_in_place(run.step(other.id))
        for run in context.others
        if run.plan.mode is not Mode.SHADOW
        for other in run.plan.steps
    )


def _has_resumed(run: Run, planned: PlannedStep, context: RunContext) -> bool:
    if run.plan.mode is Mode.SHADOW:
        return False
    for other in run.plan.steps:
        if not same_target(other.target, planned.target):
            continue
        record = run.step(other.id)
        row = {"resume_job": record.effect, "suspend_job": record.undo}.get(other.action)
        if row is None or row.confirmed_at is None or row.confirmed_at <= context.incident.fault_at:
            continue
        if row.state in (EffectState.CONFIRMED, EffectState.UNDONE):
            return True
    return False


def _not_stopped(transition: RunTransition, planned: PlannedStep) -> str:
    """Why the nodes of a job are not measured: it was not stopped for it, and uses their GPUs, or has ended."""
    return next(
        (
            record.reason
            for other, record in transition.steps()
            if other.action == "suspend_job"
            and same_target(other.target, planned.target)
            and record.state is StepState.SKIPPED
        ),
        "",
    )


def _skipped_with_suspend(transition: RunTransition, planned: PlannedStep, context: RunContext) -> str:
    """The reason to skip a step after a skipped suspend: a job not suspended is not resumed, one that has ended not awaited."""
    for other, record in transition.steps():
        if record.state is not StepState.SKIPPED or not same_target(other.target, planned.target):
            continue
        if other.action == "suspend_job":
            gone = completed(planned, context) or died(planned, context) or _is_another(planned, context)
            left = condition(planned, context) is JobCondition.FIXED and not record.reason.startswith(GOES_ON)
            stays = left or record.reason.startswith(HAS_NOT_HEALED) or record.reason.endswith(IS_SUSPENDED)
            if planned.action == "resume_job" or gone or stays:
                return record.reason
        if other.action in ("suspend_job", *AFTER_STOP) and record.effect is not None:
            return record.reason
    return ""
