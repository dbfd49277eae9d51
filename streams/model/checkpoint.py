"""The last checkpoint that a job saved before a fault, and what it did since: that is lost when it has to start again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import AwareDatetime

from streams.model.entity import JobRef

UNKNOWN = "not known"
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The last one of a job before its fault, or after it while the same pods still ran.

    `since` is when the work began that is in no checkpoint: when it was saved, or later, when the pods that ran at the fault
    were placed; they had started again from it.
    """

    job: JobRef
    at: AwareDatetime
    since: AwareDatetime
    step: int | None = None
    gpus: int = 0
    """GPUs that the job held at the fault; 0 where nobody tells."""

    def lost(self, fault_at: datetime) -> timedelta:
        """How long the job had worked since, at the fault; zero where it was saved after it."""
        return max(fault_at - self.since, timedelta())

    def gpu_hours(self, fault_at: datetime) -> float | None:
        """The same × its GPUs; None where those are not known."""
        return self.gpus * (self.lost(fault_at) / _HOUR) if self.gpus else None


def gpu_hours_since(
    jobs: Iterable[JobRef], checkpoints: Iterable[Checkpoint], fault_at: datetime
) -> float | None:
    """GPU-hours that all these jobs had worked since their last checkpoints; None as soon as one of them is not known."""
    known = {one.job.key: one.gpu_hours(fault_at) for one in checkpoints}
    total = 0.0
    for job in jobs:
        hours = known.get(job.key)
        if hours is None:
            return None
        total += hours
    return total


def checkpoint_lines(
    jobs: Iterable[JobRef], checkpoints: Iterable[Checkpoint], fault_at: datetime
) -> Iterator[str]:
    """For each job when it saved last and what it had done since, in words; one line where it is known of none of them."""
    known = {one.job.key: one for one in checkpoints}
    if not known:
        yield UNKNOWN
        return
    for job in jobs:
        one = known.get(job.key)
        yield f"{job}: {_words(one, fault_at) if one is not None else UNKNOWN}"


def _words(one: Checkpoint, fault_at: datetime) -> str:
    step = f" (step {one.step:,})" if one.step is not None else ""
    saved = f"{one.at:%Y-%m-%d %H:%M} UTC{step}"
    if one.at >= fault_at:
        return f"{saved}, after the fault"
    hours = one.gpu_hours(fault_at)
    lost = (
        f"{hours:,.1f} GPU-hours"
        if hours is not None
        else f"{one.lost(fault_at) / timedelta(minutes=1):,.0f} min"
    )
    begun = "" if one.since == one.at else f", started again from it {one.since:%Y-%m-%d %H:%M} UTC"
    return f"{saved}{begun}, {lost} of work since"
