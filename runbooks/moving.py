"""Has somebody moved this job already? Two incidents can name one job; it is stopped again only if that still helps."""

from __future__ import annotations

from runbooks.desk import Desk, Situation, same_target
from streams.model.run import EffectState, Mode, PlannedStep, Run, StepState


def moved_already(desk: Desk, planned: PlannedStep, situation: Situation) -> str:
    """Why a `suspend_job` is not needed, nor the `resume_job` that belongs to it; empty when it is.

    It is not when another run has let the job start again since the fault and none of its pods is on the bad node any more.
    """
    if planned.action == "resume_job":
        return _left_alone(desk, planned)
    node, target = situation.incident.root.node, planned.target
    if planned.action != "suspend_job" or target is None or node is None:
        return ""
    movers = [run.id for run in situation.others if _started_again(run, planned, situation)]
    if not movers or target.key in situation.view.jobs_on(node):
        return ""
    return f"{movers[0]} has moved {target} since the fault, and it is not on {node} any more"


def _started_again(run: Run, planned: PlannedStep, situation: Situation) -> bool:
    if run.plan.mode is Mode.SHADOW:
        return False
    for other in run.plan.steps:
        if not same_target(other.target, planned.target):
            continue
        record = run.step(other.id)
        row = {"resume_job": record.effect, "suspend_job": record.undo}.get(other.action)
        if row is None or row.confirmed_at is None or row.confirmed_at <= situation.incident.fault_at:
            continue
        if row.state in (EffectState.CONFIRMED, EffectState.UNDONE):
            return True
    return False


def _left_alone(desk: Desk, planned: PlannedStep) -> str:
    for other in desk.run.plan.steps:
        record = desk.records[other.id]
        if other.action == "suspend_job" and same_target(other.target, planned.target):
            return record.reason if record.state is StepState.SKIPPED else ""
    return ""
