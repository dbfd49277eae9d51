"""Rows that are replaced by hand are the same as rows that are replaced field by field."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.correlate.state.rows import NodeRow, PodRow, PortRow, _thinned, with_own_work, with_progress
from tests.streams.correlate.world import at


@pytest.mark.parametrize("kind", [NodeRow, PodRow, PortRow])
def test_a_row_with_other_sightings_keeps_all_else(kind: type[Any]) -> None:
    row = kind(**{field.name: f"its {field.name}" for field in fields(kind)})
    assert row.with_seen({"group": ()}) == replace(row, seen={"group": ()})


@given(st.lists(st.integers(0, 9 * 3600), max_size=40))
def test_moments_that_come_one_by_one_are_thinned_as_all_at_once(seconds: list[int]) -> None:
    row = PodRow()
    moments: tuple[datetime, ...] = ()
    for second in seconds:
        row = with_own_work(with_progress(row, at(second), None), at(second))
        moments = _thinned((*moments, at(second)))
        assert row.moves == row.busy == moments


def test_a_moment_before_one_of_the_same_minute_takes_its_place() -> None:
    row = with_progress(with_progress(PodRow(), at(90), 2), at(61), 1)
    assert row.moves == (at(61),)
    assert (row.progress_at, row.progress_step) == (at(90), 2)
    assert with_progress(row, at(61) + timedelta(seconds=1), 1).moves == (at(61),)
