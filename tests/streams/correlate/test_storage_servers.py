"""A server of storage that loses a disk: what it serves is gone for its clients, and both are one incident.

Kubernetes lists some of the nodes and Slurm others, so a host that neither knows may still be a node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from streams.model.incident import IncidentState
from streams.model.signal import Severity, Signal
from tests.streams.correlate.test_slurm_jobs import says
from tests.streams.correlate.world import FOUR, World, at, cluster, sign

CLIENTS = [f"n{i}" for i in range(1, 7)]
TARGET = "work2-OST0007"


def serves(host: str, seconds: float, target: str = "") -> Signal:
    """A server's own line: a thread of it hangs, or a client of a target is back."""
    more: dict[str, Any] = {"target": target} if target else {}
    return sign("node.storage", host, seconds, "storage_server", severity=Severity.INFO, **more)


def bad_disk(host: str, seconds: float) -> Signal:
    return sign("node.storage", host, seconds, "nvme_down", severity=Severity.CRITICAL, device="nvme4")


def lost(seconds: float, back: float) -> list[Signal]:
    gone = [sign("node.storage", n, seconds + i, "lustre", target=TARGET) for i, n in enumerate(CLIENTS)]
    return gone + [
        sign("node.storage", n, back + i, "lustre", target=TARGET, cleared=True)
        for i, n in enumerate(CLIENTS)
    ]


def told(signals: Sequence[Signal], until: float = 3000, seed: int | None = None) -> World:
    world = World(cluster({"llama": FOUR}, spare=CLIENTS))
    world.play([says("running", 0, "cn[001-004]"), *signals], until, seed)
    return world


def standing(world: World) -> list[tuple[str, str]]:
    left = [i for i in world.published.values() if i.state is not IncidentState.MERGED]
    return sorted((i.family, i.root.key) for i in left)


BOTH = [("host_fault", "node/store5"), ("storage_fault", f"storage/{TARGET}")]


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("target", ["", "work2-OST0003"])
def test_a_server_that_loses_a_disk_is_why_its_target_is_gone(target: str, seed: int | None) -> None:
    lines = [bad_disk("store5", 500), *lost(600, 1500), serves("store5", 700, target)]
    incident = told(lines, seed=seed).only()
    assert (incident.family, incident.root.storage) == ("storage_fault", TARGET)
    assert "What serves it is at fault: store5 (local storage: nvme_down)" in incident.reason


def test_a_host_that_says_nothing_of_serving_any_stays_a_fault_of_its_own() -> None:
    assert standing(told([bad_disk("store5", 500), *lost(600, 1500)])) == BOTH


def test_a_disk_that_failed_long_before_is_no_reason() -> None:
    lines = [bad_disk("store5", 500), serves("store5", 520), *lost(1200, 2000)]
    assert standing(told(lines)) == BOTH


@pytest.mark.parametrize(("target", "stands"), [(TARGET, False), ("work2-OST0001", True)])
def test_a_node_of_the_cluster_is_why_only_for_a_target_that_it_serves_itself(
    target: str, stands: bool
) -> None:
    lines = [bad_disk("n9", 500), *lost(600, 1500), serves("n9", 700, target)]
    world = World(cluster({"llama": FOUR}, spare=[*CLIENTS, "n9"]))
    for one in sorted(lines, key=lambda s: s.observed_at):
        world.pass_to((one.observed_at - at(0)).total_seconds(), step=20)
        world.see(one)
    world.pass_to(3000, step=20)
    assert (("host_fault", "node/n9") in standing(world)) is stands


def test_a_node_of_slurm_with_a_bad_disk_is_no_server() -> None:
    assert ("host_fault", "node/cn003") in standing(told([bad_disk("cn003", 500), *lost(600, 1500)]))
