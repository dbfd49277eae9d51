"""Progress of the jobs on a node, as proof that the node is alive."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from streams.correlate.sightings import latest_end
from streams.correlate.state.placement import Placement, Placements
from streams.correlate.state.rows import JobRow, PodRow
from streams.correlate.state.store import State
from streams.model.entity import JobRef


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """A job that ran on a node, and its signs of progress while it ran there."""

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
        """Jobs with a pod on the node at that time. Progress after a job was rescheduled does not count: it may run elsewhere."""
        placements: dict[str, list[Placement]] = {}
        for placement in self._placements.on_node(node, since, since):
            if placement.start <= since:
                placements.setdefault(placement.job.key, []).append(placement)
        return [self._pulse(key, placements[key], since) for key in sorted(placements)]

    def _pulse(self, key: str, placements: list[Placement], since: datetime) -> ProgressReport:
        anew = [p.start for p in self._placements.placements_of(key) if p.start > since]
        until = latest_end(p.end for p in placements)
        bounds = [at for at in (until, min(anew, default=None)) if at is not None]
        moves = tuple(at for at in self._moves_of(key) if all(at <= bound for bound in bounds))
        row = self._state.jobs.get(key, JobRow())
        ended = [at for at in row.ends if at <= since + self._slack]
        gone = until is not None and until <= since + self._slack
        return ProgressReport(placements[0].job, moves, bool(ended) or gone)

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
    rows = [
        row for pod in sorted(placements.names_of(job)) if (row := state.pods.get(pod)) and row.progress_at
    ]
    best = max(rows, key=lambda row: (row.progress_at, row.progress_step or 0), default=PodRow())
    return best.progress_at, best.progress_step


def last_steps(state: State, placements: Placements, job: str) -> tuple[tuple[datetime, int], ...]:
    """The last step that each of the job's pods reported, and when, in order; of pods of one name only the latest one's."""
    rows = (row for pod in placements.names_of(job) if (row := state.pods.get(pod)))
    return tuple(
        sorted(
            (row.progress_at, row.progress_step)
            for row in rows
            if row.progress_at is not None and row.progress_step is not None
        )
    )
