"""The physics of waiting: one rank stops, and everybody ends up in a collective that cannot complete."""

from __future__ import annotations

import pytest

from sandbox.simulation.layout import Layout
from sandbox.simulation.wait_for import standstill

LAYOUTS = [
    Layout(8, 1, 1),
    Layout(16, 8, 1),
    Layout(16, 2, 2),
    Layout(32, 4, 2),
    Layout(64, 8, 2),
    Layout(32, 1, 4),
]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_ranks_numbers_and_places_are_one_to_one(layout: Layout) -> None:
    places = [layout.place(rank) for rank in range(layout.world)]
    assert [layout.rank(*place) for place in places] == list(range(layout.world))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_member_of_a_collective_runs_the_same_one(layout: Layout) -> None:
    met: dict[object, set[int]] = {}
    for rank, ops in enumerate(layout.program):
        for op in ops:
            assert rank in op.members
            met.setdefault(op.key, set()).add(rank)
    for ops in layout.program:
        for op in ops:
            assert met[op.key] == set(op.members)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_step_without_a_fault_runs_to_its_end(layout: Layout) -> None:
    assert standstill(layout, {}) == {}


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_one_rank_that_stops_makes_all_others_wait(layout: Layout) -> None:
    waits = standstill(layout, {3: 0})
    assert set(waits) == set(range(layout.world)) - {3}


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_nobody_waits_in_a_collective_that_could_complete(layout: Layout) -> None:
    stopped = {layout.world - 1: 2}
    waits = standstill(layout, stopped)
    for wait in waits.values():
        there = [
            member for member in wait.op.members if member in waits and waits[member].op.key == wait.op.key
        ]
        assert len(there) < len(wait.op.members)


def test_peers_of_the_stopped_rank_wait_for_it_directly_and_the_rest_for_them() -> None:
    layout = Layout(world=16, tensor=8, pipeline=1)
    waits = standstill(layout, {3: 0})
    near = {rank for rank, wait in waits.items() if wait.depth == 1}
    assert near == {0, 1, 2, 4, 5, 6, 7, 11}  # its tensor peers, and its data-parallel peer on the other node
    assert all(waits[rank].op.group.about == "TENSOR_MODEL_PARALLEL_GROUP" for rank in near - {11})
    assert waits[9].depth == 2  # it waits for the data-parallel peer that waits for rank 3


def test_the_host_runs_ahead_so_more_is_enqueued_than_completed() -> None:
    waits = standstill(Layout(world=16, tensor=8, pipeline=1), {3: 0})
    assert waits[0].completed == 0
    assert waits[0].enqueued > waits[0].op.seq


def test_a_later_stage_waits_for_what_the_earlier_one_does_not_send() -> None:
    layout = Layout(world=16, tensor=8, pipeline=2)
    waits = standstill(layout, dict.fromkeys(range(8), 0))
    assert {wait.op.kind for wait in waits.values()} == {"RECV"}


def test_a_world_that_cannot_be_cut_so_is_refused() -> None:
    with pytest.raises(ValueError, match="divide"):
        Layout(world=8, tensor=8, pipeline=2)
