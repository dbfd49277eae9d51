"""`request_checkpoint`: whether a job is asked before it is stopped, how long it is waited for, and what proves an answer. Pure.

Only what still lives can answer: a job that hangs or has died is stopped at once. That nobody answers holds nothing up longer
than the deadline.
"""

from __future__ import annotations

from datetime import datetime

from runbooks.engine.guardrails.notices import departure
from runbooks.engine.job_condition import JobCondition
from runbooks.engine.run.job_already_moved import condition
from runbooks.engine.run.transition import RunContext, RunTransition
from runbooks.language.schema import IF_OFFERED
from streams.job_kinds.checkpoint_way import way_of
from streams.model.clock import span
from streams.model.incident import Incident
from streams.model.kinds import IncidentFamily, SignalKind
from streams.model.node_notice import remaining
from streams.model.run import PlannedStep, StepRecord

ACTION = "request_checkpoint"

_STOPS_JOBS = frozenset(
    {
        IncidentFamily.GPU_OFF_BUS,
        IncidentFamily.SILENT_NODE,
        IncidentFamily.NODE_DOWN,
        IncidentFamily.NODES_NOT_READY,
        IncidentFamily.HANG,
        IncidentFamily.APPLICATION,
    }
)
"""What no job goes on after, unless it is seen to."""
_ENDS = (SignalKind.NCCL_TIMEOUT, SignalKind.NCCL_ERROR, SignalKind.JOB_FAILED)
"""Signs that a job's ranks wait for one another, or have died."""
_SHORTEST_S = 5.0
_WHY_NOT = {
    JobCondition.HEALS: "it is left to its own controller",
    JobCondition.RESTARTED: "it was started anew since the fault",
    JobCondition.COMPLETED: "it has completed",
    JobCondition.DIED: "it has failed",
}


def not_asked(planned: PlannedStep, context: RunContext, now: datetime) -> str:
    """Why a job is not asked for a checkpoint, or no evidence collected; empty when it is, and for any other step."""
    if planned.action in IF_OFFERED and departure(context.incident, context.policy.notices, None) is not None:
        return "its node goes at a known time: nothing is broken there"
    if planned.action != ACTION or planned.target is None:
        return ""
    fact = context.view.jobs.get(planned.target.key)
    said = fact.checkpoint_by if fact is not None else None
    if way_of(said) is None:
        return (
            f"its faultline.dev/checkpoint-request cannot be read: {said[:60]}"
            if said
            else "it declares nothing"
        ) + ": it gets SIGTERM and its own grace"
    if (now_is := condition(planned, context)) is not JobCondition.STANDS:
        return _WHY_NOT.get(now_is, f"it is {now_is}")
    if fact is not None and fact.suspended:
        return "it is suspended"
    if silent := _cannot_answer(planned.target.key, context):
        return f"{silent}: it is not waited for"
    left_s = _left_s(context, now)
    if left_s is not None and left_s < _SHORTEST_S:
        leaves = departure(context.incident, context.policy.notices, None)
        assert leaves is not None
        stop = span(context.policy.notices.stop_s)
        return f"{leaves.node} goes {remaining(leaves.due, now)}, and it needs {stop} to stop (responder.notices.stop_s)"
    return ""


def shorten(transition: RunTransition, planned: PlannedStep, context: RunContext) -> None:
    """Let a request wait no longer than the time in which its job has to be stopped."""
    deadline = transition.records[planned.id].deadline_at
    left_s = _left_s(context, transition.now)
    if planned.action == ACTION and left_s is not None and deadline is not None:
        transition.set(planned.id, deadline_at=min(deadline, transition.in_seconds(left_s)))


def answered(planned: PlannedStep, record: StepRecord, incident: Incident) -> str:
    """That the job has reported a checkpoint since it was asked; empty while it has not, and for any other step."""
    if planned.action != ACTION or planned.target is None or record.started_at is None:
        return ""
    for one in incident.checkpoints:
        if one.job.key == planned.target.key and one.at > record.started_at:
            step = f" of step {one.step:,}" if one.step is not None else ""
            return f"{planned.target} has saved a checkpoint{step}"
    return ""


def out_of_time(planned: PlannedStep, record: StepRecord, reason: str) -> str:
    """Why a step that is not done at its deadline has failed; of a request that the job has not answered."""
    if planned.action != ACTION or record.started_at is None or record.deadline_at is None:
        return f"not done within {planned.deadline_s:.0f} s: {reason}"
    waited = span((record.deadline_at - record.started_at).total_seconds())
    return f"no answer within {waited}, {planned.target} is stopped as it is: {reason}"


def _cannot_answer(job: str, context: RunContext) -> str:
    incident = context.incident
    moved = max((p.at for p in incident.progress if p.job.key == job), default=None)
    pods = {pod.key.split("/", 2)[2] for pod in context.view.pods_of(job)}
    ends = [
        proof
        for proof in incident.proofs
        if proof.kind in _ENDS and (proof.entity.pod is None or proof.entity.pod.key in pods)
    ]
    last = max(ends, key=lambda proof: proof.occurred_at, default=None)
    if last is not None and not (moved is not None and moved > last.occurred_at):
        return f"it hangs or has died ({last.kind} at {last.occurred_at:%H:%M:%S})"
    if incident.family in _STOPS_JOBS and not (moved is not None and moved > incident.fault_at):
        return f"it has made no progress since the fault, and hardly any job does after this one ({incident.family})"
    return ""


def _left_s(context: RunContext, now: datetime) -> float | None:
    """Seconds until a job on a node that goes has to be stopped; None where no node goes."""
    leaves = departure(context.incident, context.policy.notices, None)
    if leaves is None:
        return None
    return (leaves.due - now).total_seconds() - context.policy.notices.stop_s
