"""Skips steps on a job that is not to be suspended: another run or its own controller has started it elsewhere, or it has ended.

That is no failure of the run: the steps that follow the suspend are skipped with it.
"""

from __future__ import annotations

from runbooks.engine.escalation import faulty_entity
from runbooks.engine.guardrails.cordoned_nodes import is_in_place, same_target
from runbooks.engine.job_condition import UNMOVABLE, JobCondition, condition_of, immovable
from runbooks.engine.run.transition import RunContext, RunTransition
from streams.model.run import EffectState, Mode, PlannedStep, Run, StepState

AFTER_STOP = ("resume_job", "verify_job", "await_progress")
"""Actions on a job that has been suspended."""


def moved_already(transition: RunTransition, planned: PlannedStep, context: RunContext) -> str:
    """Why a `suspend_job`, or a step that follows it, is not needed; empty when it is.

    It is not when the job has ended, nor when its own controller or another run has started it since the fault and none of its
    pods runs on the bad node any more; its progress is still awaited then.
    """
    if planned.action in AFTER_STOP:
        return _skipped_with_suspend(transition, planned, context)
    target = planned.target
    if planned.action != "suspend_job" or target is None:
        return ""
    node = faulty_entity(context.incident).node
    match condition(planned, context):
        case JobCondition.COMPLETED:
            return f"{target} has completed"
        case JobCondition.DIED:
            return owner_text(transition, planned, context)
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
    if planned.target is None or now not in UNMOVABLE:
        return planned.describe
    how = (
        f"{planned.target} has failed and cannot be suspended"
        if now is JobCondition.DIED
        else f"{planned.target} cannot be suspended: {immovable(planned.target.key, context.view)}"
    )
    again = (
        "create it again from its manifest and its last checkpoint"
        if now is JobCondition.DIED
        else "unless its own controller restarts it, start it again from its last checkpoint"
    )
    closed = [
        other.target.name
        for other, record in transition.steps()
        if other.action == "cordon_node" and other.target is not None and is_in_place(record)
    ]
    place = f"{', '.join(closed)} is cordoned, so it does not come back there; " if closed else ""
    said = f"; {planned.describe}" if planned.action == "notify" and planned.describe else ""
    return f"{how}; hit by {context.incident.title}; {place}{again}{said}"


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


def _skipped_with_suspend(transition: RunTransition, planned: PlannedStep, context: RunContext) -> str:
    """The reason to skip a step after a skipped suspend: a job not suspended is not resumed, one that has ended not awaited."""
    for other, record in transition.steps():
        if record.state is not StepState.SKIPPED or not same_target(other.target, planned.target):
            continue
        if other.action == "suspend_job":
            gone = completed(planned, context) or died(planned, context) or _is_another(planned, context)
            if planned.action == "resume_job" or gone:
                return record.reason
        if other.action in ("suspend_job", *AFTER_STOP) and record.effect is not None:
            return record.reason
    return ""
