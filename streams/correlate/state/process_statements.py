"""What the processes of a pod reported of themselves besides sightings: ranks, progress and checkpoints, each with its time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from streams.correlate.state.checkpoints import with_save
from streams.correlate.state.rows import (
    ObservedRank,
    PodRow,
    Save,
    with_own_work,
    with_progress,
    with_rank,
)


@dataclass(frozen=True, slots=True)
class Progress:
    """A sign of progress."""

    at: datetime
    step: int | None = None


@dataclass(frozen=True, slots=True)
class OwnWork:
    """A sign that a process works on something else than training."""

    at: datetime


Statement = ObservedRank | Save | Progress | OwnWork


def statements_of(row: PodRow) -> Iterator[Statement]:
    """Everything of the kind that a row holds."""
    yield from row.ranks
    yield from row.saves or ()
    yield from map(Progress, row.moves)
    if row.progress_at is not None:
        yield Progress(row.progress_at, row.progress_step)
    yield from map(OwnWork, row.busy or ())


def without_statements(row: PodRow) -> PodRow:
    """The row without any; the same one where it holds none."""
    bare = PodRow(row.tenancies, row.gone, row.seen)
    return row if bare == row else bare


def with_statement_of(row: PodRow, one: Statement) -> PodRow:
    """The row with one of them."""
    match one:
        case ObservedRank():
            return with_rank(row, one)
        case Save():
            return with_save(row, one)
        case Progress():
            return with_progress(row, one.at, one.step)
    return with_own_work(row, one.at)
