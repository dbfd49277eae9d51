"""The checkpoints of jobs: from lines of their pods, and from an annotation of the job's object."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from streams.correlate.state.placement import Placement, Placements
from streams.correlate.state.rows import JobRow, PodRow, Save
from streams.correlate.state.store import State
from streams.model.checkpoint import Checkpoint
from streams.model.entity import JobRef
from streams.model.facts import JobFact

_KEPT = 16
"""Saves kept of a pod or a job: enough to reach back from a job that runs again to those before its fault."""
_CLOCKS = timedelta(minutes=2)
"""How far a trainer's clock may be ahead of the API server's; a save from later than that is none."""


def with_save(row: PodRow, save: Save) -> PodRow:
    """The row with a save that its pod reported."""
    return replace(row, saves=_merged(row.saves, save))


def with_annotation(row: JobRow, fact: JobFact) -> JobRow:
    """The row with the save that the job's annotation names."""
    at = fact.checkpoint_at
    if at is None or at > fact.observed_at + _CLOCKS:
        return row
    return replace(row, saves=_merged(row.saves, Save(at)))


def _merged(saves: tuple[Save, ...] | None, save: Save) -> tuple[Save, ...]:
    return tuple(sorted({*(saves or ()), save}, key=lambda s: (s.at, s.step or 0, s.begun))[-_KEPT:])


def last_checkpoint(
    state: State, placements: Placements, job: JobRef, fault_at: datetime, standing: Sequence[Placement]
) -> Checkpoint | None:
    """The last checkpoint of the pods that ran at the fault, or of those before them; None where nobody reported any.

    `standing` are those pods of it. One that was only begun counts once the job has gone on: programs that print no more than
    that write before they go on.
    """
    placed = placements.placements_of(job.key)
    anew = min((p.start for p in placed if p.start > fault_at), default=None)
    rows = [row for pod in sorted(placements.names_of(job.key)) if (row := state.pods.get(pod))]
    told = [*(s for row in rows for s in row.saves or ()), *(state.jobs.get(job.key, JobRow()).saves or ())]
    before = [s for s in told if anew is None or s.at < anew]
    last = max((s for s in before if not s.begun or _went_on(rows, s.at, anew)), key=_order, default=None)
    if last is None:
        return None
    began = max((p.start for p in standing), default=last.at)
    return Checkpoint(job, last.at, max(last.at, began), last.step, sum(p.gpus for p in standing))


def _order(save: Save) -> tuple[datetime, int]:
    return save.at, save.step or 0


def _went_on(rows: Iterable[PodRow], at: datetime, before: datetime | None) -> bool:
    """Whether any pod of the job made progress after that time, and before it was started anew."""
    moves = (move for row in rows for move in (*row.moves, *([row.progress_at] if row.progress_at else [])))
    return any(at < move and (before is None or move < before) for move in moves)
