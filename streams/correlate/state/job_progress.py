"""Progress of the jobs on a node: the one thing that a node reports all the time while it lives."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from streams.correlate.state.placement import Placements, Stay
from streams.correlate.state.rows import JobRow, PodRow
from streams.correlate.state.store import State
from streams.model.entity import JobRef


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """A job that stood on a node at some time, and its signs of progress as long as it stood there."""

    job: JobRef
    moves: tuple[datetime, ...]
    is_over: bool
    """Whether the job had finished or was deleted before it could report more progress."""


class ProgressReports:
    """Reads progress out of the rows of pods. What is read of a job is kept until `forget`."""

    def __init__(self, state: State, placements: Placements, slack: timedelta) -> None:
        self._state = state
        self._placements = placements
        self._slack = slack
        self._moves: dict[str, tuple[datetime, ...]] = {}

    def forget(self) -> None:
        """Drop the cache: more progress may have been reported since."""
        self._moves.clear()

    def on(self, node: str, since: datetime) -> list[ProgressReport]:
        """Jobs with a pod on the node at that time. Progress after a job was placed anew does not count: it may run elsewhere."""
        stays: dict[str, list[Stay]] = {}
        for stay in self._placements.on_node(node, since, since):
            if stay.start <= since:
                stays.setdefault(stay.job.key, []).append(stay)
        return [self._pulse(key, stays[key], since) for key in sorted(stays)]

    def _pulse(self, key: str, stays: list[Stay], since: datetime) -> ProgressReport:
        ends = [stay.end for stay in stays]
        anew = [stay.start for stay in self._placements.stays_of(key) if stay.start > since]
        until = None if None in ends else max(end for end in ends if end is not None)
        bounds = [at for at in (until, min(anew, default=None)) if at is not None]
        moves = tuple(at for at in self._moves_of(key) if all(at <= bound for bound in bounds))
        row = self._state.jobs.get(key, JobRow())
        ended = [at for at in row.ends if at <= since + self._slack]
        gone = until is not None and until <= since + self._slack
        return ProgressReport(stays[0].job, moves, bool(ended) or gone)

    def _moves_of(self, key: str) -> tuple[datetime, ...]:
        if key not in self._moves:
            self._moves[key] = moves_of(self._state, self._placements, key)
        return self._moves[key]


def moves_of(state: State, placements: Placements, job: str) -> tuple[datetime, ...]:
    """Signs of progress of any of the job's pods, in order: the first of each minute, and the latest."""
    rows = [row for pod in placements.names_of(job) if (row := state.pods.get(pod))]
    latest = {row.progress_at for row in rows if row.progress_at is not None}
    return tuple(sorted(latest.union(*(row.moves for row in rows))))


def latest_progress(state: State, placements: Placements, job: str) -> tuple[datetime | None, int | None]:
    """The latest sign of progress of any of the job's pods, and its step."""
    rows = [row for pod in placements.pods_of(job) if (row := state.pods.get(pod)) and row.progress_at]
    best = max(rows, key=lambda row: (row.progress_at, row.progress_step or 0), default=PodRow())
    return best.progress_at, best.progress_step
