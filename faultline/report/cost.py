"""What an incident cost, in GPU-hours, as far as its documents tell. Pure; what they do not tell is None, never zero.

GPU-hours lost are GPUs of the stopped jobs × the time without progress; what they had to repeat since their last checkpoints
stands apart, and is not known unless each of them reported one. Time without progress begins with the fault and ends with the
first new step, or with what comes closest to it: its `basis`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from faultline.drawings.milestones import Milestones
from runbooks.engine.guardrails.cordoned_nodes import is_confirmed
from streams.model.checkpoint import Checkpoint, gpu_hours_since
from streams.model.facts import NodeFact
from streams.model.incident import Incident
from streams.model.run import EffectState, Mode, Run, StepState

_HOUR = timedelta(hours=1)


class Basis(StrEnum):
    """What ended the time without progress."""

    FIRST_STEP = "first step"
    """Every restarted job was seen to make progress again."""
    RUNNING = "job running"
    """Its pods ran again; the job reports no progress."""
    CLOSED = "incident closed"
    """Nobody saw the jobs start again: the incident's end stands for it."""
    NOW = "now"
    """The incident is open: this is the cost so far."""
    NOT_STOPPED = "no job stopped"


@dataclass(frozen=True, slots=True)
class Cost:
    """GPU-hours of the stopped jobs (`lost`), and of the nodes taken out of service for repair."""

    gpus: int | None
    """GPUs of the jobs that it stopped; None where it stopped some and the inventory does not tell of their GPUs."""
    without_progress_s: float | None
    basis: Basis
    lost: float | None
    culprit: float | None
    """Of them, on the node of the root cause."""
    victims: float | None
    queueing: float | None
    """Of both, between a job's resume and its pods running: waiting for GPUs, images and starts."""
    replayed: float | None = None
    """What the jobs had done since their last checkpoints; None as soon as one of them reported none."""
    checkpoints: tuple[Checkpoint, ...] = ()
    """The last one of each job that reported any."""
    out_of_service: float | None = None
    """GPUs of the nodes it closed × the time they were closed, until now; None where neither is known."""
    out_of_service_nodes: tuple[str, ...] = ()
    still_closed: tuple[str, ...] = ()
    """Those of them that are still closed for it."""


def cost_of(
    incident: Incident, runs: Sequence[Run], clocks: Milestones, nodes: Mapping[str, NodeFact], now: datetime
) -> Cost:
    """The cost of one incident."""
    closed, names = _out_of_service(incident, runs, nodes, now)
    still = tuple(name for name in names if (fact := nodes.get(name)) and incident.id in fact.owners)
    jobs, gpus = len(incident.jobs), incident.impact.gpus
    if not jobs and not gpus:
        return Cost(0, 0.0, Basis.NOT_STOPPED, 0.0, 0.0, 0.0, 0.0, 0.0, (), closed, names, still)
    end, basis = _end(incident, clocks, now)
    without = max((end - incident.fault_at).total_seconds(), 0.0)
    if not gpus:
        told = incident.checkpoints
        return Cost(None, without, basis, None, None, None, None, None, told, closed, names, still)
    hours = without / 3600
    own = _culprit_gpus(incident, nodes)
    waited = _queueing(runs)
    return Cost(
        gpus=gpus,
        without_progress_s=without,
        basis=basis,
        lost=gpus * hours,
        culprit=own * hours if own is not None else None,
        victims=(gpus - own) * hours if own is not None else None,
        queueing=gpus * waited / 3600 if waited is not None else None,
        replayed=gpu_hours_since(incident.jobs, incident.checkpoints, incident.fault_at),
        checkpoints=incident.checkpoints,
        out_of_service=closed,
        out_of_service_nodes=names,
        still_closed=still,
    )


def _end(incident: Incident, clocks: Milestones, now: datetime) -> tuple[datetime, Basis]:
    if clocks.first_step is not None:
        return clocks.first_step, Basis.FIRST_STEP
    if clocks.running is not None:
        return clocks.running, Basis.RUNNING
    if incident.state.is_over:
        return incident.closed_at or incident.updated_at, Basis.CLOSED
    return now, Basis.NOW


def _culprit_gpus(incident: Incident, nodes: Mapping[str, NodeFact]) -> int | None:
    """GPUs on the root cause's own node; 0 where it is no node, None where the inventory does not know the node."""
    name = incident.root.node
    if name is None or name not in incident.nodes:
        return 0
    fact = nodes.get(name)
    return min(fact.gpus, incident.impact.gpus) if fact is not None and fact.gpus else None


def _queueing(runs: Iterable[Run]) -> float | None:
    """Seconds between the resume and the pods running, of the slowest job; None where no job was resumed and seen to run."""
    longest: float | None = None
    for run in runs:
        if run.plan.mode is Mode.SHADOW:
            continue
        resumed = {
            planned.target.key: record.effect.confirmed_at
            for planned in run.plan.steps
            if planned.action == "resume_job" and planned.target is not None
            if is_confirmed(record := run.step(planned.id)) and record.effect is not None
        }
        for planned in run.plan.steps:
            record = run.step(planned.id)
            if planned.action != "verify_job" or planned.target is None or record.state is not StepState.DONE:
                continue
            since = resumed.get(planned.target.key)
            if since is not None and record.finished_at is not None:
                longest = max(longest or 0.0, (record.finished_at - since).total_seconds())
    return longest


def _out_of_service(
    incident: Incident, runs: Iterable[Run], nodes: Mapping[str, NodeFact], now: datetime
) -> tuple[float | None, tuple[str, ...]]:
    """GPU-hours of the nodes that were closed, and their names; None as soon as one of them is not known."""
    total: float | None = 0.0
    names: dict[str, None] = {}
    for run in runs:
        if run.plan.mode is Mode.SHADOW:
            continue
        for planned in run.plan.steps:
            record = run.step(planned.id)
            if planned.action != "cordon_node" or planned.target is None or record.effect is None:
                continue
            begin = record.effect.confirmed_at
            if begin is None or planned.target.name in names:
                continue
            name = planned.target.name
            names[name] = None
            fact = nodes.get(name)
            end = _opened(incident, run, name, fact, now)
            if fact is None or not fact.gpus or end is None:
                total = None
            elif total is not None:
                total += fact.gpus * (max(end - begin, timedelta()) / _HOUR)
    return total, tuple(names)


def _opened(incident: Incident, run: Run, name: str, fact: NodeFact | None, now: datetime) -> datetime | None:
    """When a node was returned to service, now while it is still closed; None where only others can have opened it."""
    for planned in run.plan.steps:
        if planned.target is None or planned.target.name != name:
            continue
        record = run.step(planned.id)
        if planned.action == "cordon_node" and record.undo and record.undo.state is EffectState.UNDONE:
            return record.undo.confirmed_at
        if planned.action == "uncordon_node" and record.state is StepState.DONE:
            return record.finished_at
    return now if fact is not None and incident.id in fact.owners else None
