"""Nodes and jobs that hang on a storage which many nodes do not reach: nodes that flap, volumes that cannot be mounted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from streams.model.entity import Entity
from streams.model.facts import Fact
from streams.model.incident import IncidentState
from streams.model.signal import Signal
from tests.streams.correlate.world import CLUSTER, World, cluster, failed, not_ready, sign, xid

LLAMA, GEMMA = ["n1", "n2", "n3"], ["n7", "n8"]
CLIENTS, SPARE = [f"n{i}" for i in range(1, 7)], [f"n{i}" for i in range(9, 13)]
FILER = "10.3.0.9"


def facts() -> list[Fact]:
    return cluster({"llama": LLAMA, "gemma": GEMMA}, spare=[*CLIENTS, *SPARE])


def lost(nodes: Sequence[str] = CLIENTS, server: str = FILER, *, back: float | None = None) -> list[Signal]:
    kept = [sign("node.storage", n, i, "nfs", server=server) for i, n in enumerate(nodes)]
    kept += [sign("node.storage", n, 240 + i, "nfs", server=server) for i, n in enumerate(nodes)]
    ends = [back + i for i in range(len(nodes))] if back is not None else []
    return kept + [
        sign("node.storage", n, end, "nfs", server=server, cleared=True)
        for n, end in zip(nodes, ends, strict=False)
    ]


def flaps(node: str, seconds: float, times: int = 3) -> list[Signal]:
    found = []
    for i in range(times):
        found += [not_ready(node, seconds + 300 * i), not_ready(node, seconds + 300 * i + 200, ready=True)]
    return found


def unmounted(
    name: str, seconds: float, node: str, pod: int = 1, times: int = 6, **more: Any
) -> list[Signal]:
    """A kubelet that tries again to mount a volume."""
    lines = [
        failed(name, pod, seconds + 90 * i, "volume", reason="FailedMount", **more) for i in range(times)
    ]
    return [replace(one, entity=replace(one.entity, node=node)) for one in lines]


def told(*groups: list[Signal], order: int | None = None, until: float = 2400) -> World:
    world, signals = World(facts()), [s for group in groups for s in group]
    signals.sort(key=lambda s: s.occurred_at)
    if order is not None:
        Random(order).shuffle(signals)
        world.see(*signals)
        world.restart()
    else:
        for signal in signals:
            world.pass_to((signal.occurred_at - signals[0].occurred_at).total_seconds(), step=20)
            world.see(signal)
    world.pass_to(until, step=20)
    return world


def standing(world: World) -> set[tuple[str, str]]:
    over = (IncidentState.MERGED, IncidentState.SUPPRESSED)
    return {(i.family, i.root.key) for i in world.published.values() if i.state not in over}


ONE = {("storage_fault", f"storage/{FILER}")}


@pytest.mark.parametrize("order", [None, 1, 2])
def test_nodes_that_hang_on_a_storage_and_flap_are_part_of_its_fault(order: int | None) -> None:
    hung = [sign("node.kernel", "n4", 200 + 70 * i, "hung_task") for i in range(4)]
    world = told(lost(back=1500), hung, flaps("n4", 300), flaps("n5", 330), order=order)
    assert standing(world) == ONE


def test_many_that_hang_are_no_outage_of_the_control_plane() -> None:
    world = told(lost(), *(flaps(n, 300 + i, times=1) for i, n in enumerate(CLIENTS)))
    assert standing(world) == ONE


def test_a_node_that_does_not_mount_it_is_away_for_itself() -> None:
    world = told(lost(back=1500), flaps("n9", 300))
    assert standing(world) == ONE | {("node_down", "node/n9")}


def test_a_node_that_stays_away_once_the_storage_is_back_is_one_of_its_own() -> None:
    world = told(lost(back=600), [not_ready("n4", 300)], until=640)
    assert standing(world) == ONE
    world.pass_to(1200, step=20)
    assert standing(world) == ONE | {("node_down", "node/n4")}


def test_a_gpu_that_is_lost_while_the_storage_is_gone_stays_the_nodes_own() -> None:
    world = told(lost(back=1500), flaps("n4", 300), [xid("n4", 79, 320)])
    assert {family for family, _ in standing(world)} == {"storage_fault", "gpu_off_bus"}


VOLUMES: dict[str, list[Signal]] = {
    "on a node that does not reach it, by another name": unmounted(
        "llama", 420, "n2", server="filer.example.net", mount="timed out", volume="sets"
    ),
    "on a node that does not reach it, by no name": unmounted(
        "llama", 420, "n2", mount="timed out", volume="sets"
    ),
    "on any node, by its name": unmounted("gemma", 420, "n7", 0, server=FILER, volume="sets"),
}


@pytest.mark.parametrize("name", VOLUMES)
@pytest.mark.parametrize("order", [None, 1, 2])
def test_jobs_whose_volumes_are_on_it_are_its_victims(name: str, order: int | None) -> None:
    world = told(lost(), VOLUMES[name], order=order)
    assert standing(world) == ONE
    (incident,) = [i for i in world.published.values() if i.family == "storage_fault"]
    pods = [s.entity.pod for s in VOLUMES[name]]
    assert {j.name for j in incident.jobs} >= {pod.name.partition("-")[0] for pod in pods if pod is not None}


OTHER: dict[str, list[Signal]] = {
    "another server": unmounted("llama", 420, "n2", server="10.3.0.77", mount="timed out", volume="own"),
    "nobody may mount it": unmounted("llama", 420, "n2", server="filer.example.net", volume="own"),
    "a node that reaches it": unmounted("gemma", 420, "n7", 0, mount="timed out", volume="own"),
}


@pytest.mark.parametrize("name", OTHER)
def test_other_volumes_that_cannot_be_mounted_stay_a_fault_of_the_platform(name: str) -> None:
    world = told(lost(), OTHER[name])
    assert {family for family, _ in standing(world)} == {"storage_fault", "platform_fault"}


def test_the_server_is_known_by_the_name_of_the_host_that_told_of_its_disks() -> None:
    disk = replace(sign("node.storage", "filer-7", 0, "fs_shutdown"), entity=Entity(CLUSTER, node="filer-7"))
    volumes = unmounted("gemma", 420, "n7", 0, server="filer-7.dc.example.net", volume="sets")
    assert standing(told([disk], lost(), volumes)) == ONE
