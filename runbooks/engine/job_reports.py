"""Progress that a job reports in its own object, e.g. `status.trainerStatus` of a TrainJob. Pure.

The times of the reports are the job's own and only ever compared with each other: its clock may be off. A job that comes back
from a checkpoint is behind what it last reported before, and a trainer may report once before its first step. So progress is
proven by a second change that is not behind the first, or by more done than when the step began to look.
"""

from __future__ import annotations

from streams.model.facts import JobFact
from streams.model.run import ProgressReport

RECHECK_S = 15.0
"""How often a step looks: nothing else tells it that a job has reported."""


def with_latest(seen: tuple[ProgressReport, ...], fact: JobFact | None) -> tuple[ProgressReport, ...]:
    """What a step has seen, with what the inventory tells now: what it found at first, then up to two changes."""
    now = ProgressReport(fact.progress_at, fact.progress_percent) if fact is not None else ProgressReport()
    if not seen:
        return (now,)
    if now.at is None or now.at == seen[-1].at:
        return seen
    if len(seen) > 1 and _is_behind(now, seen[-1]):
        return (seen[0], now)
    return (*seen, now)


def prove_progress(reports: tuple[ProgressReport, ...]) -> bool:
    """Whether they prove that training goes on."""
    first, last = reports[0], reports[-1]
    more = first.percent is not None and last.percent is not None and last.percent > first.percent
    return len(reports) > 2 or more


def _is_behind(report: ProgressReport, former: ProgressReport) -> bool:
    return report.percent is not None and former.percent is not None and report.percent < former.percent
