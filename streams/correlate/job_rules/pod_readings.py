"""What the pods of a job tell, read again only where one of them told something new.

Every batch that touches a job or one of its nodes asks for it, mostly of pods that said nothing since. Rows and placements are
replaced and never changed in place once they are evaluated, so what was read from the very same objects is what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import is_
from typing import Generic, TypeVar

from streams.correlate.state.placement import Placement, Placements
from streams.correlate.state.pod_jobs import PodJobs
from streams.correlate.state.rows import PodRow
from streams.correlate.state.store import SightingStore

T = TypeVar("T")
Read = Callable[[PodRow, Sequence[Placement], str], Sequence[T]]
"""Reads one pod's row, with the placements of pods of its name, for the job with this key."""


@dataclass(slots=True)
class _OfPod(Generic[T]):
    row: PodRow
    placements: Sequence[Placement]
    job: str
    found: Sequence[T]


@dataclass(slots=True)
class _OfJob(Generic[T]):
    placements: Sequence[Placement]
    """All of the job. While it is the same object, no pod has come to the job, left it, or moved."""
    unplaced: list[str]
    pods: list[str]
    rows: list[PodRow | None]
    found: tuple[T, ...]


class PodReadings(Generic[T]):
    """What `read` finds in the rows of each job's pods: the placed ones by name, then those that were never placed."""

    def __init__(
        self, pods: SightingStore[PodRow], placements: Placements, pod_jobs: PodJobs, read: Read[T]
    ) -> None:
        self._rows, self._placements, self._pod_jobs, self._read = pods, placements, pod_jobs, read
        self._of_pod: dict[str, _OfPod[T]] = {}
        self._of_job: dict[str, _OfJob[T]] = {}

    def of_job(self, job: str) -> tuple[T, ...]:
        """What the job's pods tell; the very same tuple while nothing of that has changed."""
        placements, unplaced = self._placements.placements_of(job), self._pod_jobs.unplaced(job)
        kept = self._of_job.get(job)
        # What pods that were never placed tell depends on no more: placing one of them for whatever job takes it out here.
        if kept is not None and kept.placements is placements and kept.unplaced == unplaced:
            if all(map(is_, map(self._rows.get, kept.pods), kept.rows)):
                return kept.found
            pods = kept.pods
        else:
            pods = [*sorted(self._placements.names_of(job)), *unplaced]
        rows = list(map(self._rows.get, pods))
        found = tuple(
            chain.from_iterable(
                self._of_row(pod, row, job)
                for pod, row in zip(pods, rows, strict=True)
                if row is not None and row.seen
            )
        )
        self._of_job[job] = _OfJob(placements, unplaced, pods, rows, found)
        return found

    def _of_row(self, pod: str, row: PodRow, job: str) -> Sequence[T]:
        placements = self._placements.of_pod(pod)
        kept = self._of_pod.get(pod)
        if kept is None or kept.row is not row or kept.placements is not placements or kept.job != job:
            kept = _OfPod(row, placements, job, self._read(row, placements, job))
            self._of_pod[pod] = kept
        return kept.found

    def forget(self) -> None:
        """Drop what is kept of pods and jobs of which nothing is left."""
        for name in self._of_pod.keys() - self._rows.reporting:
            del self._of_pod[name]
        for job, kept in list(self._of_job.items()):
            if not kept.found or not all(map(is_, map(self._rows.get, kept.pods), kept.rows)):
                del self._of_job[job]
