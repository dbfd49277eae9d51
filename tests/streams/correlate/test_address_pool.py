"""No address is free for new pods: one incident of their pool, whoever asks, and no node is accused of it."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from streams.model.entity import Entity, PodRef
from streams.model.signal import Signal
from tests.streams.correlate.test_start_failures import SANDBOX, stuck
from tests.streams.correlate.world import CLUSTER, World, _signal, at, cluster, failed, job, sign

POOL = "subnet-0a1b2c3d4e5f60718"
NONE_FREE: dict[str, Any] = {"subtype": "no_addresses", "reason": "FailedCreatePodSandBox"}
NODES: dict[str, Sequence[str]] = {"llama": ["n1", "n2"], "gemma": ["n3", "n4"]}
TRIES = range(0, 600, 30)


def refused(pod: int, seconds: float, times: int = 20, name: str = "llama") -> list[Signal]:
    return [failed(name, pod, seconds + s, **NONE_FREE) for s in TRIES[:times]]


def web(
    number: int, node: str, seconds: float, times: int = 20, said: Mapping[str, Any] = NONE_FREE
) -> list[Signal]:
    """A pod of no training job."""
    entity = Entity(CLUSTER, node=node, pod=PodRef("web", f"front-{number}", f"front-uid-{number}"))
    return [_signal("job.failed", entity, seconds + s, dict(said)) for s in TRIES[:times]]


def named(node: str, seconds: float) -> Signal:
    return sign("node.condition", node, seconds, "no_addresses", pool=POOL)


def seen(signals: Sequence[Signal], mixed: int | None = None) -> World:
    world = World(cluster(NODES, spare=["n5", "n6"]))
    ordered = sorted(signals, key=lambda s: s.occurred_at)
    if mixed is not None:
        random.Random(mixed).shuffle(ordered)
    for i, signal in enumerate(ordered):
        world.see(signal)
        if mixed is not None and i == len(ordered) // 2:
            world.restart()
    world.pass_to(900, step=10)
    return world


@pytest.mark.parametrize("mixed", [None, 1, 2])
@pytest.mark.parametrize("is_named", [True, False])
def test_it_is_the_pools_from_the_first_refusal_on_and_what_cannot_start_is_its_victim(
    is_named: bool, mixed: int | None
) -> None:
    lines = [named(node, -500 + i) for i, node in enumerate(["n5", "n6"])] if is_named else []
    incident = seen([*web(1, "n5", -500, times=40), *refused(1, 0), *lines], mixed).only()
    assert incident.family == "platform_fault"
    assert incident.root.key == f"part/address-pool/{POOL if is_named else 'pods'}"
    assert (incident.fault_at, incident.jobs) == (at(-500), (job("llama"),))
    assert incident.other_workloads is not None
    assert incident.other_workloads.names == ("Pod web/front-1",)


def test_a_job_alone_that_is_refused_on_two_nodes_is_enough() -> None:
    assert seen([*refused(0, 0), *refused(1, 10)]).only().root.part is not None


def test_a_job_that_is_refused_on_one_node_is_told_by_itself_and_accuses_nothing() -> None:
    incident = seen(refused(1, 0)).only()
    assert (incident.family, incident.root.key) == ("platform_fault", "job/" + job("llama").key)


SILENT: dict[str, list[Signal]] = {
    "each was free at the next try": [
        *(s for i in range(60) for s in web(i, f"n{i % 6 + 1}", 15.0 * i, times=1)),
        *(s for pod in (0, 1) for s in refused(pod, 300 * pod, times=1)),
        *refused(0, 500, times=2, name="gemma"),
    ],
    "no job asks": [s for i in range(20) for s in web(i, f"n{i % 6 + 1}", 3.0 * i)],
    "a pool that is asked ahead of need": [named(f"n{i % 6 + 1}", 20.0 * i) for i in range(40)],
}


@pytest.mark.parametrize("name", SILENT)
@pytest.mark.parametrize("mixed", [None, 3])
def test_what_a_busy_cluster_sees_every_day_is_silent(name: str, mixed: int | None) -> None:
    assert seen(SILENT[name], mixed).incidents() == []


def test_two_thousand_that_are_refused_are_one_incident() -> None:
    others = [s for i in range(2000) for s in web(i, f"n{i % 6 + 1}", 0.02 * i, times=6)]
    before = time.perf_counter()
    incident = seen([*others, *refused(1, 0)]).only()
    assert (incident.root.part is not None, incident.jobs) == (True, (job("llama"),))
    assert time.perf_counter() - before < 60


def accused(world: World) -> list[str | None]:
    return [one.root.node for one in world.published.values() if one.root.node is not None]


def test_no_node_is_asked_about_whose_pods_have_no_address() -> None:
    assert accused(stuck([2], started=[0, 1, 3], how=NONE_FREE)) == []


def test_no_node_is_asked_about_where_the_words_name_something_else() -> None:
    assert accused(stuck([2], started=[0, 1, 3], how={**SANDBOX, "outside": "exceeded quota"})) == []


@pytest.mark.parametrize(
    ("others", "asked"),
    [
        (web(1, "n1", 0, said=SANDBOX), []),
        (web(1, "n3", 0, said=SANDBOX), ["n3"]),
        (web(1, "n1", 0, times=1, said=SANDBOX), ["n3"]),
        ([replace(s, occurred_at=at(-9000)) for s in web(1, "n1", 0, said=SANDBOX)], ["n3"]),
    ],
    ids=["on another node", "on the same node", "once elsewhere", "hours before"],
)
def test_a_node_is_asked_about_only_while_nobodys_pods_are_refused_elsewhere(
    others: list[Signal], asked: list[str]
) -> None:
    assert accused(stuck([2], started=[0, 1, 3], besides=others)) == asked
