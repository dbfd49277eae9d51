"""Containers that start again in the same pods, pods that ended, and tries that end alike: what a restart must not undo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from streams.model.signal import Signal
from tests.streams.correlate.world import (
    World,
    at,
    cluster,
    failed,
    job,
    link,
    nccl_error,
    nic,
    off_bus,
    pods,
    run,
    sign,
    timeouts,
)

FOUR = ["n1", "n2", "n3", "n4"]


@pytest.mark.parametrize("late", [False, True])
def test_a_pod_whose_containers_start_again_stood_on_its_node_before(late: bool) -> None:
    world = World(cluster({"llama": FOUR}))
    again = [replace(p, scheduled_at=at(800), observed_at=at(800)) for p in pods("llama", FOUR)]
    story = [off_bus("n3", 0, 3), *timeouts("llama", [r for r in range(32) if r != 19], 600, waited=600)]
    for fact in again if late else ():
        world.tell(fact)
    for signal in story:
        world.pass_to((signal.observed_at - at(0)).total_seconds(), step=20)
        world.see(signal)
    for fact in () if late else again:
        world.tell(fact)
    world.pass_to(1200, step=20)
    incident = world.only()
    assert (incident.family, incident.jobs) == ("gpu_off_bus", (job("llama"),))


def errors(seconds: float) -> list[Signal]:
    return [nccl_error("llama", rank, seconds + 0.1 * rank) for rank in (0, 8, 24)]


def test_ranks_that_wait_for_a_pod_that_failed_on_an_ill_node_follow_from_that() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(sign("gpu.driver", "n3", -600, "version_mismatch"))
    world.pass_to(-300, step=20)
    world.tell(replace(pods("llama", FOUR)[2], phase="Failed", ended_at=at(-200), observed_at=at(-199)))
    world.pass_to(0, step=20)
    world.see(*errors(0))
    world.pass_to(900, step=20)
    incident = world.only()
    assert (incident.family, incident.root.node) == ("platform_fault", "n3")
    assert job("llama") in incident.jobs


def test_tries_that_end_alike_and_name_nobody_are_one_incident_with_a_count() -> None:
    world = World(cluster({"llama": FOUR}))
    for attempt in (1, 2, 3):
        begin = 900.0 * attempt
        for pod in pods("llama", FOUR, since=begin, attempt=attempt):
            world.tell(pod)
        world.pass_to(begin + 600, step=20)
        world.see(*errors(begin + 600))
        world.end("llama", FOUR, begin + 610)
    world.pass_to(4500, step=20)
    incident = world.only()
    assert (incident.family, incident.facts["crashes"]) == ("hang", 3)
    assert len(world.published) == 1


def test_a_try_that_ends_alike_after_somebody_closed_the_one_before_is_new() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*errors(0))
    world.pass_to(300, step=10)
    world.see(run("resolved", world.only().id, 310))
    for pod in pods("llama", FOUR, since=400, attempt=2):
        world.tell(pod)
    world.pass_to(1000, step=20)
    world.see(*errors(1000))
    world.pass_to(1400, step=20)
    assert [i.state.is_over for i in world.incidents()] == [True, False]


CABLED, UNCABLED = [f"c{i}" for i in range(4)], [f"u{i}" for i in range(6)]


@pytest.mark.parametrize("backwards", [False, True])
def test_links_whose_cable_is_not_known_fall_with_the_one_switch_that_fails_then(backwards: bool) -> None:
    known = [link("leaf-7", f"Ethernet{i}", node, "eth1") for i, node in enumerate(CABLED)]
    world = World([*cluster({"llama": [*CABLED, *UNCABLED]}), *known])
    lost = [nic(node, "eth1", 0.1 * i) for i, node in enumerate([*CABLED, *UNCABLED])]
    world.see(*(reversed(lost) if backwards else lost))
    world.pass_to(600, step=10)
    incident = world.only()
    assert (incident.family, incident.root.switch) == ("fabric_fault", "leaf-7")
    assert len(world.published) == 1


def test_of_two_switches_that_fail_at_once_neither_takes_links_to_nowhere_known() -> None:
    known = [
        link(f"leaf-{i % 2}", f"Ethernet{i}", node, "eth1")
        for i, node in enumerate([*CABLED, "c4", "c5", "c6", "c7"])
    ]
    nodes = [*CABLED, "c4", "c5", "c6", "c7", *UNCABLED]
    world = World([*cluster({"llama": nodes}), *known])
    world.see(*(nic(node, "eth1", 0.1 * i) for i, node in enumerate(nodes)))
    world.pass_to(600, step=10)
    assert {i.root.switch for i in world.incidents()} == {"leaf-0", "leaf-1", None}


def crash(name: str, pod: int, seconds: float, signal: str) -> Signal:
    return failed(name, pod, seconds, exitcode=f"-{signal}")


LED = {
    "in ways of their own": (["11", "7", "8"], True),
    "in one way, as a bad program does": (["11", "11", "11"], False),
}


@pytest.mark.parametrize("name", LED)
def test_rank_0_counts_where_other_jobs_crash_there_in_other_ways(name: str) -> None:
    ways, named = LED[name]
    nodes: dict[str, Sequence[str]] = {f"job{i}": ["n7", f"m{i}", f"o{i}"] for i in range(3)}
    world = World(cluster(nodes))
    for i, way in enumerate(ways):
        world.see(crash(f"job{i}", 0, 3600.0 * i, way))
        world.see(*(crash(f"job{i}", p, 3600.0 * i + 3 + p, "6") for p in (1, 2)))
        world.pass_to(3600.0 * i + 1200, step=20)
    accused = [i.root.node for i in world.incidents() if i.root.node]
    assert accused == (["n7"] if named else [])
