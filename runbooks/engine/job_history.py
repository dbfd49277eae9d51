"""How often the jobs of an incident were moved before, by the runs of those moves. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from runbooks.engine.guardrails.cordoned_nodes import is_shadow
from runbooks.engine.job_condition import MOVABLE, condition_of, immovable
from runbooks.language.job_history import JobHistory
from streams.inventory.cluster_view import ClusterView
from streams.job_kinds.kind import Lever
from streams.job_kinds.known import KNOWN
from streams.model.entity import JobRef
from streams.model.incident import Incident
from streams.model.run import EffectState, PlannedStep, Run, StepState

FEWEST_NODES, MOST_NODES = 3, 256
"""Two nodes cannot vote; the upper limit is that of `connectors/kubernetes/work_pairs.py`."""


def history_of(
    incident: Incident,
    view: ClusterView,
    runs_on: Callable[[str], Iterable[Run]],
    *,
    shadow: bool,
    diagnoses: bool,
) -> JobHistory:
    """What was done for the jobs of an incident before its fault.

    Args:
        runs_on: All runs with a step on a target, by the target's key.
        shadow: Whether to count what runs in shadow mode would have done, instead of what was done.
        diagnoses: Whether anything here carries out `diagnose_nodes`.
    """
    movable = [job for job in incident.jobs if condition_of(job.key, view) in MOVABLE]
    moves = {job.key: found for job in movable if (found := _moves(job, incident, runs_on(job.key), shadow))}
    can = diagnoses and bool(movable) and all(is_diagnosable(job.key, view) for job in movable)
    return JobHistory(moves, can)


def is_diagnosable(job: str, view: ClusterView) -> bool:
    """Whether the nodes of a job can be measured while it is stopped, and can vote."""
    nodes = {pod.node for pod in view.pods_of(job) if pod.node}
    return stays_stopped(job, view) and FEWEST_NODES <= len(nodes) <= MOST_NODES


def stays_stopped(job: str, view: ClusterView) -> bool:
    """Whether a job that was stopped starts only when it is resumed. An evicted one is made anew by its controller at once."""
    if immovable(job, view):
        return False
    fact, kind = view.jobs.get(job), KNOWN.get(job.partition("/")[0])
    if fact is not None and fact.lever is not None:
        return fact.lever == Lever.SUSPEND
    return kind is not None and kind.lever is None and bool(kind.suspend_at)


def _moves(job: JobRef, incident: Incident, runs: Iterable[Run], shadow: bool) -> tuple[float, ...]:
    """Seconds from each move to the fault, the latest first, since the last diagnosis."""
    moved: list[datetime] = []
    diagnosed: list[datetime] = []
    for run in runs:
        if run.incident == incident.id or is_shadow(run) is not shadow:
            continue
        resumed = [at for _, at in _done(run, job, "resume_job") if at < incident.fault_at]
        if resumed:  # most of many runs on one job have not come so far
            looked = any(True for _ in _done(run, job, "diagnose_nodes"))
            (diagnosed if looked else moved).extend(resumed)
    since = max(diagnosed, default=None)
    counted = [at for at in moved if since is None or at > since]
    return tuple(sorted((incident.fault_at - at).total_seconds() for at in counted))


def _done(run: Run, job: JobRef, action: str) -> Iterator[tuple[PlannedStep, datetime]]:
    """The steps of a run with an action that was done for a job, or would have been, and when."""
    for planned in run.plan.steps:
        target = planned.target
        if planned.action != action or target is None or target.key != job.key:
            continue
        if None not in (target.uid, job.uid) and target.uid != job.uid:
            continue  # another job under the same name
        record = run.step(planned.id)
        if record.state is StepState.WOULD:
            yield planned, run.created_at
        elif record.effect is not None and record.effect.state is EffectState.CONFIRMED:
            yield planned, record.effect.confirmed_at or run.updated_at
