"""The axis of a timeline: in order, within its bounds, and the same for the same moments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from faultline.drawings.time_axis import MAX_MOMENTS, TimeAxis

BEGIN = datetime(2026, 3, 3, tzinfo=UTC)
moments = st.lists(
    st.integers(0, 90 * 86400).map(lambda seconds: BEGIN + timedelta(seconds=seconds)),
    min_size=1,
    max_size=600,
)


@given(moments, moments)
def test_places_are_in_the_order_of_time_and_within_the_axis(
    known: list[datetime], asked: list[datetime]
) -> None:
    axis = TimeAxis(known, 10, 400)
    places = [axis.place(at) for at in sorted([*known, *asked])]
    assert all(a <= b + 1e-6 for a, b in pairwise(places))
    assert all(10 <= place <= 400 + 1e-6 for place in places)


@given(moments)
def test_the_order_in_which_moments_are_told_does_not_matter(known: list[datetime]) -> None:
    one, other = TimeAxis(known, 0, 100), TimeAxis(known[::-1], 0, 100)
    assert [one.place(at) for at in known] == [other.place(at) for at in known]


def test_a_night_takes_less_room_than_its_minutes_would() -> None:
    axis = TimeAxis([BEGIN, BEGIN + timedelta(seconds=30), BEGIN + timedelta(hours=9)], 0, 100)
    assert axis.place(BEGIN + timedelta(seconds=30)) > 15
    (pause,) = axis.pauses()
    assert pause.length == timedelta(hours=8, minutes=59, seconds=30)


def test_an_axis_of_one_moment_has_one_place() -> None:
    axis = TimeAxis([BEGIN], 5, 100)
    assert [axis.place(BEGIN + timedelta(hours=hours)) for hours in (-1, 0, 1)] == [5, 5, 5]
    assert axis.pauses() == ()


def test_very_many_moments_keep_the_ends() -> None:
    times = [BEGIN + timedelta(seconds=n) for n in range(MAX_MOMENTS * 10)]
    axis = TimeAxis(times, 0, 100)
    assert (axis.begin, axis.end) == (times[0], times[-1])
