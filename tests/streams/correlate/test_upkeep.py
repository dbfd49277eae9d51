"""Nodes that people take down on purpose: what they tell then is no incident, what they tell before and after is."""

from __future__ import annotations

from itertools import permutations

import pytest

from streams.model.facts import Fact
from streams.model.incident import IncidentState
from tests.streams.correlate.world import FOUR, World, cluster, node_fact, not_ready, xid


def taken_down(since: float, until: float | None) -> list[Fact]:
    """A node's facts while it is in maintenance, and after."""
    during: list[Fact] = [node_fact("n1", since=since, maintenance=True)]
    return [*during, node_fact("n1", since=until)] if until is not None else during


def told(down: float, up: float, until: float | None) -> World:
    world = World(cluster({"llama": FOUR}, spare=["n1"]))
    for fact in taken_down(-60, until):
        world.tell(fact)
    world.see(not_ready("n1", down), not_ready("n1", up, ready=True))
    world.pass_to(1200, step=10)
    return world


def test_a_node_that_goes_and_comes_back_in_its_maintenance_is_no_incident_even_after_it() -> None:
    assert told(60, 300, 400).incidents() == []


@pytest.mark.parametrize(("down", "up"), [(-200, 300), (60, 700), (500, 900)])
def test_a_node_that_is_gone_before_or_after_its_maintenance_is_one(down: float, up: float) -> None:
    (incident,) = told(down, up, 400).incidents()
    assert (incident.family, incident.state) == ("node_down", IncidentState.RESOLVED)


def test_a_node_that_does_not_come_back_is_one_when_its_maintenance_is_over() -> None:
    world = World(cluster({"llama": FOUR}))
    world.tell(node_fact("n1", since=-60, maintenance=True))
    world.see(not_ready("n1", 60))
    world.pass_to(320)
    assert world.only().state is IncidentState.SUPPRESSED
    world.tell(node_fact("n1", since=400, ready=False))
    world.pass_to(500)
    assert world.only().state is IncidentState.OPEN


def test_what_was_held_back_is_withdrawn_when_the_node_comes_back() -> None:
    world = World(cluster({"llama": FOUR}))
    world.tell(node_fact("n1", since=-60, maintenance=True))
    world.see(not_ready("n1", 60))
    world.pass_to(320)
    world.see(not_ready("n1", 400, ready=True))
    world.pass_to(600)
    assert world.only().reason.startswith("Withdrawn")


def test_a_gpu_that_fails_in_maintenance_of_a_node_that_runs_a_job_is_told() -> None:
    world = World(cluster({"llama": FOUR}))
    world.tell(node_fact("n1", since=-60, maintenance=True))
    world.see(xid("n1", 79, 10))
    world.pass_to(60)
    assert world.only().state is IncidentState.OPEN


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_facts_and_signals_in_any_order_end_the_same(order: tuple[int, ...]) -> None:
    facts = taken_down(-60, 400)
    steps = [*facts, not_ready("n1", 60), not_ready("n1", 300, ready=True)]
    world = World(cluster({"llama": FOUR}))
    for step in (steps[i] for i in order):
        if step in facts:
            world.tell(step)
        else:
            world.see(step)  # type: ignore[arg-type]
    world.pass_to(1200, step=20)
    assert [i for i in world.incidents() if not i.reason.startswith("Withdrawn")] == []
