"""Is there anything to do for this job still? Two incidents can name one job; it is stopped again only if that still helps.

Nor is a job stopped that has ended well in the meantime: that is no failure of the run, and what follows the stop falls away.
"""

from __future__ import annotations

from runbooks.engine.escalation import accused
from runbooks.engine.run.transition import RunContext, RunTransition, same_target
from streams.model.run import EffectState, Mode, PlannedStep, Run, StepState

AFTER_STOP = ("resume_job", "verify_job", "await_progress")
"""What is done about a job once it has been suspended."""


def moved_already(transition: RunTransition, planned: PlannedStep, context: RunContext) -> str:
    """Why a `suspend_job` is not needed, nor what belongs to it; empty when it is.

    It is not when the job has ended well, nor when another run has let it start again since the fault and none of its pods is
    on the bad node any more: then it is still watched whether it makes progress.
    """
    if planned.action in AFTER_STOP:
        return _left_alone(transition, planned, context)
    target = planned.target
    if planned.action != "suspend_job" or target is None:
        return ""
    if ended_well(planned, context):
        return f"{target} has ended well"
    node = accused(context.incident).node
    if node is None:
        return ""
    movers = [run.id for run in context.others if _started_again(run, planned, context)]
    if not movers or target.key in context.view.jobs_on(node):
        return ""
    return f"{movers[0]} has moved {target} since the fault, and it is not on {node} any more"


def ended_well(planned: PlannedStep, context: RunContext) -> bool:
    """Whether inventory knows that this very job is over and did not fail."""
    fact = context.view.jobs.get(planned.target.key) if planned.target else None
    if fact is None or not fact.finished or fact.failed:
        return False
    uid = planned.target.uid if planned.target else None
    return uid is None or fact.job.uid in (None, uid)


def _started_again(run: Run, planned: PlannedStep, context: RunContext) -> bool:
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


def _left_alone(transition: RunTransition, planned: PlannedStep, context: RunContext) -> str:
    """What was not stopped is not started again; what there was nothing left of is not watched either."""
    for other in transition.run.plan.steps:
        record = transition.records[other.id]
        if record.state is not StepState.SKIPPED or not same_target(other.target, planned.target):
            continue
        if other.action == "suspend_job" and (planned.action == "resume_job" or ended_well(planned, context)):
            return record.reason
        if other.action in ("suspend_job", *AFTER_STOP) and record.effect is not None:
            return record.reason
    return ""
