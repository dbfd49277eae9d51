"""A step before each job that fails on node after node: what it asks for is at fault, and none of the nodes."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from streams.model.incident import Incident
from streams.model.signal import Severity, Signal
from tests.streams.correlate.world import FOUR, World, at, cluster, sign, xid

NODES = [f"n{i}" for i in range(1, 13)]


def fails(node: str, seconds: float, step: str = "prolog") -> Signal:
    return sign("node.condition", node, seconds, "slurm_prolog", severity=Severity.WARNING, reason=step)


def wave(count: int, apart: float = 40, step: str = "prolog") -> list[Signal]:
    return [fails(node, apart * i, step) for i, node in enumerate(NODES[:count])]


def told(signals: Sequence[Signal], until: float = 3000) -> World:
    world = World(cluster({"llama": FOUR}, spare=NODES))
    for one in sorted(signals, key=lambda s: s.observed_at):
        world.pass_to((one.observed_at - at(0)).total_seconds(), step=20)
        world.see(one)
    world.pass_to(until, step=20)
    return world


def shared(world: World) -> list[Incident]:
    return [i for i in world.incidents() if i.root.part is not None]


@pytest.mark.parametrize("step", ["prolog", "Prolog", "epilog"])
def test_a_prolog_that_fails_on_node_after_node_is_one_fault_and_no_nodes(step: str) -> None:
    incident = told(wave(6, step=step)).only()
    assert incident.root.part is not None
    assert (incident.family, incident.root.part.name) == ("platform_fault", step.lower())
    assert (incident.facts["nodes_hit"], incident.root.node) == (6, None)
    assert "fails on 6 nodes" in incident.reason


def test_jobs_that_run_there_already_do_not_suffer_from_it() -> None:
    incident = told(wave(6)).only()
    assert not incident.jobs
    assert not incident.nodes


def test_it_is_over_when_no_node_fails_any_more() -> None:
    assert told(wave(6), until=1900).only().closed_at is None
    assert told(wave(6), until=4000).only().closed_at is not None


@pytest.mark.parametrize(
    "signals",
    [
        wave(3),
        [fails("n1", 30 * i) for i in range(20)],
        wave(8, apart=700),
        wave(8, step="plugin init"),
        [fails(node, 0, step) for node, step in zip(NODES, ["prolog", "epilog"] * 3, strict=False)],
    ],
    ids=["three nodes", "one node", "far apart", "a job's own container", "different steps"],
)
def test_what_may_be_each_nodes_own_opens_nothing(signals: list[Signal]) -> None:
    assert not told(signals).incidents()


def test_nodes_that_tell_of_something_else_fail_for_that() -> None:
    ill = [
        xid("n1", 79, -60),
        xid("n2", 79, 20),
        sign("node.storage", "n3", 60, "nfs_timeout", server="nfs-1"),
        xid("n4", 48, 100),
    ]
    assert not shared(told([*wave(6), *ill]))
    assert shared(told([*wave(8), *ill]))


@pytest.mark.parametrize("seed", range(4))
def test_the_order_and_a_restart_change_nothing(seed: int) -> None:
    signals = [*wave(6), xid("n1", 79, 90)]
    straight = {(i.id, i.reason) for i in told(signals).incidents()}
    world = World(cluster({"llama": FOUR}, spare=NODES))
    random.Random(seed).shuffle(signals)
    for i, one in enumerate(signals):
        world.see(one)
        if i == seed:
            world.restart()
    world.pass_to(3000, step=20)
    assert {(i.id, i.reason) for i in world.incidents()} == straight
