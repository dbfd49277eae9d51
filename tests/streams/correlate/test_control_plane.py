"""Most nodes are NotReady, and a node of the control plane tells of its own host: one incident, and that node is its root."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from streams.model.facts import Fact
from streams.model.incident import Certainty, IncidentState
from streams.model.signal import Severity, Signal
from tests.streams.correlate.world import World, at, cluster, node_fact, not_ready, sign, xid

WORKERS, MASTERS = [f"n{i:02d}" for i in range(24)], ["m1", "m2", "m3"]


def facts() -> list[Fact]:
    made = cluster({"llama": WORKERS[:8]}, spare=WORKERS)
    # Nothing is scheduled on a control plane in many clusters; nobody works on it for that.
    return [*made, *(node_fact(m, since=-3500, control_plane=True, unschedulable=True) for m in MASTERS)]


def disk(node: str, seconds: float, times: int = 4) -> list[Signal]:
    return [
        sign("node.storage", node, seconds + 70 * i, "nvme_timeout", device="nvme0") for i in range(times)
    ]


def wave(seconds: float, lasts: float = 120, names: Sequence[str] = WORKERS[:20]) -> list[Signal]:
    gone = [not_ready(n, seconds + i) for i, n in enumerate(names)]
    return gone + [not_ready(n, seconds + lasts + i, ready=True) for i, n in enumerate(names)]


def told(signals: Sequence[Signal], until: float, order: int | None = None) -> World:
    world, ordered = World(facts()), sorted(signals, key=lambda s: s.observed_at)
    if order is not None:
        Random(order).shuffle(ordered)
        world.see(*ordered)
        world.restart()
        ordered = []
    for signal in ordered:
        world.pass_to((signal.observed_at - at(0)).total_seconds(), step=10)
        world.see(signal)
    world.pass_to(until, step=10)
    return world


def standing(world: World) -> set[tuple[str, str]]:
    return {(i.family, i.root.key) for i in world.published.values() if i.state is not IncidentState.MERGED}


ONE = {("nodes_not_ready", "node/m2")}


@pytest.mark.parametrize("order", [None, 1, 2, 3])
def test_a_disk_of_the_control_plane_is_why_most_nodes_are_not_ready(order: int | None) -> None:
    world = told([*disk("m2", 0), *wave(100)], 500, order)
    assert standing(world) == ONE
    incident = world.only()
    assert incident.certainty is Certainty.LIKELY
    assert incident.state is not IncidentState.SUPPRESSED
    assert incident.fault_at == at(0)
    assert "m2, a node of the control plane" in incident.reason


@pytest.mark.parametrize("order", [None, 1, 2])
def test_a_later_occasion_of_the_same_disk_is_the_same_incident(order: int | None) -> None:
    later = [*disk("m2", 1800, times=5), *wave(1900)]
    world = told([*disk("m2", 0), *wave(100), *later], 2400, order)
    assert standing(world) == ONE
    assert len([i for i in world.published.values() if i.family == "nodes_not_ready"]) == 1


def test_the_incident_keeps_its_name_when_the_disk_is_heard_of_later() -> None:
    world = told(wave(100), 200)
    first = world.only()
    world.see(*disk("m2", 90, times=2), *disk("m2", 240, times=2))
    world.pass_to(500, step=10)
    assert (world.only().id, world.only().root.key) == (first.id, "node/m2")


APART: dict[str, tuple[list[Signal], set[tuple[str, str]]]] = {
    "a worker's disk": (
        [*disk("n23", 0), *wave(100)],
        {("nodes_not_ready", "cluster"), ("host_fault", "node/n23")},
    ),
    "a disk long before": (
        [
            sign("node.storage", "m2", -2000, "fs_shutdown", severity=Severity.CRITICAL, cleared=c)
            for c in (False, True)
        ]
        + wave(100),
        {("nodes_not_ready", "cluster"), ("host_fault", "node/m2")},
    ),
    "a few nodes": (
        [*disk("m2", 0), *wave(100, names=WORKERS[:6])],
        {("nodes_not_ready", "cluster"), ("host_fault", "node/m2")},
    ),
}


@pytest.mark.parametrize("name", APART)
def test_what_has_nothing_to_do_with_it_stays_apart(name: str) -> None:
    signals, expected = APART[name]
    world = told(signals, 600)
    assert standing(world) >= {("nodes_not_ready", "cluster")}
    assert standing(world) <= expected


def test_a_gpu_that_is_lost_meanwhile_stays_the_nodes_own() -> None:
    world = told([*disk("m2", 0), *wave(100), xid("n22", 79, 130)], 500)
    assert {family for family, _ in standing(world)} == {"nodes_not_ready", "gpu_off_bus"}


def test_an_etcd_host_outside_the_cluster_is_known_by_what_it_runs() -> None:
    words = sign("unknown", "etcd-7", -30, "etcd", author="kubernetes", severity=Severity.INFO)
    assert standing(told([words, *disk("etcd-7", 0), *wave(100)], 500)) == {
        ("nodes_not_ready", "node/etcd-7")
    }
    silent = told([*disk("etcd-7", 0), *wave(100)], 500)
    assert ("nodes_not_ready", "cluster") in standing(silent)
