"""What each incident of a replay cost the jobs that it stopped, and by what parts, as far as the records tell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from faultline.drawings.milestones import milestones
from faultline.report.cost import Basis, cost_of
from streams.model.facts import Fact, JobFact, PodFact
from streams.model.incident import Incident, IncidentState
from streams.model.run import Mode, Run, StepState

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class LostWork:
    """GPUs of a job that had to repeat what it did since its last checkpoint, and how long that was."""

    job: str
    gpus: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Outage:
    """One incident that stopped jobs. What the records do not tell is None, never zero."""

    incident: str
    fault_at: datetime
    jobs: tuple[str, ...]
    gpus: int | None
    without_progress_s: float
    basis: str
    """What ended the time without progress, as the report names it."""
    lost_work: tuple[LostWork, ...] | None
    """Of each of its jobs; None as soon as one of them has no checkpoint that is known."""
    queued_s: float | None
    """Between a job's resume and its pods running, of the slowest job."""
    drained_s: float | None
    """How long the longest drain of its runs took."""
    closed: tuple[tuple[datetime, datetime], ...]
    """When each node that it closed went, and came back or the records end."""

    @property
    def lost(self) -> float | None:
        """GPU-hours without progress, as the report has them."""
        return None if self.gpus is None else self.gpus * self.without_progress_s / 3600

    @property
    def repeated(self) -> float | None:
        """GPU-hours of work that was done again."""
        if self.lost_work is None:
            return None
        return sum(one.gpus * one.seconds for one in self.lost_work) / 3600


@dataclass(frozen=True, slots=True)
class Held:
    """GPU-hours that training jobs held while the records last, in all and by job."""

    by_job: tuple[tuple[str, float], ...]

    @property
    def total(self) -> float:
        """Of all jobs."""
        return sum(hours for _, hours in self.by_job)


def outages_of(incidents: Iterable[Incident], runs: Iterable[Run], until: datetime) -> tuple[Outage, ...]:
    """The incidents that stopped jobs, by their faults. Open ones count until `until`."""
    mine: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        mine[run.incident].append(run)
    found = [
        _outage(incident, mine[incident.id], until)
        for incident in incidents
        if (incident.jobs or incident.impact.gpus)
        and incident.state not in (IncidentState.SUPPRESSED, IncidentState.MERGED)
    ]
    return tuple(sorted(found, key=lambda one: (one.fault_at, one.incident)))


def _outage(incident: Incident, runs: list[Run], until: datetime) -> Outage:
    cost = cost_of(incident, runs, milestones(incident, runs), {}, until)
    gpus = cost.gpus or None
    waited = cost.queueing * 3600 / gpus if cost.queueing is not None and gpus else None
    return Outage(
        incident=incident.id,
        fault_at=incident.fault_at,
        jobs=tuple(map(str, incident.jobs)),
        gpus=gpus,
        without_progress_s=cost.without_progress_s or 0.0,
        basis=(cost.basis if cost.basis is not Basis.NOT_STOPPED else Basis.CLOSED).value,
        lost_work=_lost_work(incident),
        queued_s=waited,
        drained_s=_drained(runs),
        closed=tuple(_closed(runs, until)),
    )


def _lost_work(incident: Incident) -> tuple[LostWork, ...] | None:
    known = {one.job.key: one for one in incident.checkpoints if one.gpus}
    if any(job.key not in known for job in incident.jobs):
        return None
    return tuple(
        LostWork(str(job), known[job.key].gpus, known[job.key].lost(incident.fault_at).total_seconds())
        for job in incident.jobs
    )


def _drained(runs: Iterable[Run]) -> float | None:
    longest: float | None = None
    for run in runs:
        for planned in run.plan.steps:
            record = run.step(planned.id)
            if run.plan.mode is Mode.SHADOW or planned.action != "drain_node":
                continue
            if record.state is StepState.DONE and record.started_at and record.finished_at:
                longest = max(longest or 0.0, (record.finished_at - record.started_at).total_seconds())
    return longest


def _closed(runs: Iterable[Run], until: datetime) -> list[tuple[datetime, datetime]]:
    found = []
    for run in runs:
        for planned in run.plan.steps:
            effect, undo = run.step(planned.id).effect, run.step(planned.id).undo
            if run.plan.mode is Mode.SHADOW or planned.action != "cordon_node" or effect is None:
                continue
            if effect.confirmed_at is not None:
                back = undo.confirmed_at if undo is not None and undo.confirmed_at is not None else until
                found.append((effect.confirmed_at, back))
    return found


class HeldHours:
    """Adds up the GPU-hours of training jobs from the facts of their pods, in the order of time.

    A job holds what its pods had together at most so far, also while it has fewer: it waits for the rest.
    """

    def __init__(self, begin: datetime) -> None:
        self._begin = begin
        self._now: defaultdict[str, int] = defaultdict(int)
        self._most: defaultdict[str, int] = defaultdict(int)
        self._since: dict[str, datetime] = {}
        self._pods: dict[str, tuple[str, int]] = {}
        self._jobs: dict[str, str] = {}
        self._total: defaultdict[str, float] = defaultdict(float)

    def take(self, at: datetime, key: str, fact: Fact | None) -> None:
        """One fact of the inventory; None for a deletion."""
        if isinstance(fact, JobFact):
            self._jobs[key] = fact.job.key
        if key in self._jobs and (fact is None or (isinstance(fact, JobFact) and fact.finished)):
            self._end(self._jobs.pop(key), at)
        if (before := self._pods.pop(key, None)) is not None:
            self._now[before[0]] -= before[1]
        if isinstance(fact, PodFact) and fact.job is not None and fact.trains and fact.ended_at is None:
            job = fact.job.key
            self._count(job, at)
            self._pods[key] = (job, fact.gpus)
            self._now[job] += fact.gpus
            self._most[job] = max(self._most[job], self._now[job])

    def _end(self, job: str, at: datetime) -> None:
        """Count a job that is over; should it begin again, it is counted from then on."""
        if job in self._since:
            self._count(job, at)
            self._since.pop(job)
            self._most.pop(job, None)

    def _count(self, job: str, at: datetime) -> None:
        since = self._since.get(job, at)
        self._total[job] += self._most[job] * (max(at, self._begin) - max(since, self._begin)) / _HOUR
        self._since[job] = at

    def until(self, end: datetime) -> Held:
        """What was held by then."""
        for job in [*self._since]:
            self._count(job, end)
        return Held(tuple(sorted(self._total.items())))
