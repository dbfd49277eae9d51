"""GPU software that breaks on node after node, and what a node that is ready again takes back."""

from __future__ import annotations

import random
from typing import Any

import pytest

from streams.model.incident import Incident
from streams.model.signal import Signal
from tests.streams.correlate.world import World, at, cluster, node_fact, not_ready, sign

NODES = [f"n{i:02d}" for i in range(12)]


def broken(node: str, seconds: float, version: str = "570.10.01") -> Signal:
    return sign("gpu.driver", node, seconds, "version_mismatch", client_version=version)


def told(*signals: Signal, until: float = 9000, **about: Any) -> list[Incident]:
    world = World([*cluster({}, spare=NODES), *(node_fact(n, since=-3500, **about) for n in NODES)])
    for one in sorted(signals, key=lambda s: s.observed_at):
        world.pass_to((one.observed_at - at(0)).total_seconds(), step=10)
        world.see(one)
    world.pass_to(until, step=30)
    return [i for i in world.incidents() if i.merged_into is None]


def test_the_third_node_makes_it_a_rollout_by_the_version_that_its_lines_name() -> None:
    (incident,) = told(*(broken(n, 400 * i) for i, n in enumerate(NODES[:6])))
    assert incident.root.part is not None
    assert (incident.family, incident.root.part.name) == ("platform_fault", "570.10.01")
    assert len(incident.nodes) == 6


def test_two_nodes_are_two_nodes() -> None:
    found = told(broken("n01", 0), broken("n02", 400))
    assert sorted(i.root.node or "" for i in found) == ["n01", "n02"]


def test_nodes_of_different_versions_have_nothing_in_common() -> None:
    found = told(*(broken(n, 400 * i, version=f"57{i}.1") for i, n in enumerate(NODES[:4])))
    assert not [i for i in found if i.root.part]


def test_what_somebody_works_on_is_no_rollout_that_went_wrong() -> None:
    assert not [
        i
        for i in told(*(broken(n, 400 * i) for i, n in enumerate(NODES[:6])), maintenance=True)
        if i.root.part
    ]


@pytest.mark.parametrize("seed", range(4))
def test_the_order_does_not_matter(seed: int) -> None:
    signals = [broken(n, 400 * i) for i, n in enumerate(NODES[:6])]
    straight = {(i.id, str(i.root)) for i in told(*signals)}
    random.Random(seed).shuffle(signals)
    world = World([*cluster({}, spare=NODES), *(node_fact(n, since=-3500) for n in NODES)])
    for one in signals:
        world.see(one)
    world.restart()
    world.pass_to(9000, step=30)
    assert {(i.id, str(i.root)) for i in world.incidents() if i.merged_into is None} == straight


def test_why_a_node_was_not_ready_is_over_when_it_is_ready_again() -> None:
    gone = [
        not_ready("n01", 0),
        sign("node.condition", "n01", 0, "container_runtime", reason="PLEG is not healthy"),
    ]
    assert not told(*gone, not_ready("n01", 28, ready=True))
    assert told(*gone)
