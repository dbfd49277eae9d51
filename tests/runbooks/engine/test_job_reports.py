"""What a job reports of itself proves progress when it moves on, whatever its clock says."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from runbooks.engine.job_reports import prove_progress, with_latest
from streams.model.entity import JobRef
from streams.model.facts import JobFact
from streams.model.run import ProgressReport
from tests.streams.inventory.objects import AT

Told = tuple[int | None, int | None]
"""A report: seconds after an arbitrary moment, and percent; no seconds where nothing is reported."""


def fact(told: Told) -> JobFact:
    at_s, percent = told
    at: datetime | None = AT + timedelta(seconds=at_s) if at_s is not None else None
    job = JobRef("TrainJob", "team-a", "llm", "u-1")
    return JobFact("c1", job, AT, progress_at=at, progress_percent=percent)


@pytest.mark.parametrize(
    ("told", "proven"),
    [
        ([(0, 42)], False),
        ([(0, 42), (0, 42), (0, 42)], False),
        ([(0, 42), (60, 40)], False),
        ([(0, 42), (60, 40), (75, 40)], True),
        ([(0, 42), (60, 40), (75, 0)], False),
        ([(0, 42), (60, 40), (75, 0), (90, 0)], True),
        ([(0, 42), (9000, 43)], True),
        ([(None, None)], False),
        ([(None, None), (15, 0)], False),
        ([(None, None), (15, 0), (30, 0)], True),
        ([(0, None), (15, None)], False),
        ([(0, None), (15, None), (30, None)], True),
        ([(3600, 42), (15, 40), (30, 40)], True),
        ([(0, 42), (None, None), (15, 40)], False),
    ],
    ids=str,
)
def test_reports_prove_progress_when_they_move_on(told: list[Told], proven: bool) -> None:
    seen: tuple[ProgressReport, ...] = ()
    for one in told:
        seen = with_latest(seen, fact(one))
    assert prove_progress(seen) is proven
    assert len(seen) <= 3


def test_a_job_that_the_inventory_does_not_know_proves_nothing() -> None:
    seen = with_latest(with_latest((), None), None)
    assert seen == (ProgressReport(),)
    assert not prove_progress(seen)
