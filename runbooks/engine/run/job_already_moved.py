"""Skips steps on a job that has already been rescheduled, or has completed, since two incidents can name one job.

That is no failure of the run: the steps that follow the suspend are skipped with it.
"""

from __future__ import annotations

from runbooks.engine.escalation import faulty_entity
from runbooks.engine.guardrails.cordoned_nodes import same_target
from runbooks.engine.run.transition import RunContext, RunTransition
from streams.model.run import EffectState, Mode, PlannedStep, Run, StepState

AFTER_STOP = ("resume_job", "verify_job", "await_progress")
"""Actions on a job that has been suspended."""


def moved_already(transition: RunTransition, planned: PlannedStep, context: RunContext) -> str:
    """Why a `suspend_job`, or a step that follows it, is not needed; empty when it is.

    It is not when the job has completed, nor when another run has resumed it since the fault and none of its pods runs on the bad
    node any more; its progress is still awaited then.
    """
    if planned.action in AFTER_STOP:
        return _skipped_with_suspend(transition, planned, context)
    target = planned.target
    if planned.action != "suspend_job" or target is None:
        return ""
    if completed(planned, context):
        return f"{target} has completed"
    node = faulty_entity(context.incident).node
    if node is None:
        return ""
    movers = [run.id for run in context.others if _has_resumed(run, planned, context)]
    if not movers or target.key in context.view.jobs_on(node):
        return ""
    return f"{movers[0]} has rescheduled {target} since the fault; it no longer runs on {node}"


def completed(planned: PlannedStep, context: RunContext) -> bool:
    """Whether the inventory shows this very job (same uid) finished and not failed."""
    fact = context.view.jobs.get(planned.target.key) if planned.target else None
    if fact is None or not fact.finished or fact.failed:
        return False
    uid = planned.target.uid if planned.target else None
    return uid is None or fact.job.uid in (None, uid)


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
    """The reason to skip a step after a skipped suspend: a job not suspended is not resumed, a completed one not awaited."""
    for other, record in transition.steps():
        if record.state is not StepState.SKIPPED or not same_target(other.target, planned.target):
            continue
        if other.action == "suspend_job" and (planned.action == "resume_job" or completed(planned, context)):
            return record.reason
        if other.action in ("suspend_job", *AFTER_STOP) and record.effect is not None:
            return record.reason
    return ""
