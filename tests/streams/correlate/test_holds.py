"""What announces something graver on the same place is not told by itself."""

from __future__ import annotations

import pytest

from streams.model.kinds import IncidentFamily
from streams.model.signal import Severity, Signal
from tests.streams.correlate.world import FOUR, World, cluster, node_fact, not_ready, sign, timeouts, xid

ANNOUNCING: dict[str, tuple[list[Signal], list[Signal], str]] = {
    "PCIe before the GPU leaves the bus": (
        [sign("node.pcie", "n2", 0, "aer", severity=Severity.CRITICAL)],
        [xid("n2", 79, 8)],
        "gpu_off_bus",
    ),
    "heat before the GPU leaves the bus": (
        [sign("gpu.thermal", "n2", 0, "overheat", index=0, severity=Severity.CRITICAL)],
        [xid("n2", 79, 40)],
        "gpu_off_bus",
    ),
    "an oops before the node dies of the panic that it ends in": (
        [sign("node.kernel", "n2", 0, "oops", severity=Severity.CRITICAL)],
        [sign("node.kernel", "n2", 1, "kernel_panic", severity=Severity.CRITICAL), not_ready("n2", 40)],
        "node_down",
    ),
    "a switch before the GPU at its link": (
        [sign("gpu.sxid", "n2", 0, action="reset_gpu", sxid=12028)],
        [xid("n2", 74, 10, index=1), xid("n2", 154, 11, index=1, action="reset_gpu")],
        "gpu_nvlink",
    ),
}


@pytest.mark.parametrize("name", ANNOUNCING)
@pytest.mark.parametrize("restarted", [False, True])
def test_what_announces_something_graver_is_told_as_part_of_it(name: str, restarted: bool) -> None:
    before, after, family = ANNOUNCING[name]
    world = World(cluster({"llama": FOUR}))
    world.see(*before)
    if restarted:
        world.restart()
    world.see(*after)
    world.pass_to(300)
    assert [i.family for i in world.published.values()] == [family]


@pytest.mark.parametrize("name", ANNOUNCING)
def test_what_nothing_graver_follows_is_told_by_itself(name: str) -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*ANNOUNCING[name][0])
    assert world.incidents() == []
    world.pass_to(65)
    assert world.only().root.node == "n2"


def test_what_a_job_suffers_from_is_told_without_waiting() -> None:
    world = World(cluster({"llama": FOUR}))
    silent = [r for r in range(32) if r // 8 != 1]
    world.see(sign("node.pcie", "n2", 0, "aer", severity=Severity.CRITICAL))
    world.see(*timeouts("llama", silent, 2, waited=2))
    world.pass_to(6)
    assert [i.family for i in world.incidents()] == [IncidentFamily.HOST_FAULT]


def test_a_rack_whose_nodes_are_told_to_brake_is_told_at_once_and_its_nodes_never() -> None:
    nodes = [f"r{i}" for i in range(4)]
    world = World([*cluster({}, spare=nodes), *(node_fact(n, rack="r1") for n in nodes)])
    world.see(*(sign("gpu.power", n, float(i), "power_brake", index=0) for i, n in enumerate(nodes)))
    world.pass_to(300)
    assert [i.root.key for i in world.published.values()] == ["rack/r1"]


def test_the_links_of_a_rack_that_a_switch_tray_takes_are_told_once() -> None:
    """Each GPU reports its own link and is to be reset; what they share is known as soon as the third has spoken."""
    nodes = [f"r{i}" for i in range(6)]
    others = [f"s{i}" for i in range(6)]
    world = World([*cluster({}, spare=others), *(node_fact(n, rack="r1") for n in nodes)])
    for i, node in enumerate(nodes):
        world.see(xid(node, 149, 0.5 * i, index=i, action="reset_gpu"))
    for i, node in enumerate(nodes):
        world.see(xid(node, 154, 3 + 0.1 * i, index=i, action="drain_and_reset"))
    world.pass_to(300)
    assert [i.root.key for i in world.published.values()] == ["rack/r1"]


def test_a_recovery_that_is_read_before_its_reason_is_told_with_it() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2", 154, 0, action="drain_and_reset"))
    world.see(xid("n2", 149, 0.4, action="reset_gpu"))
    world.pass_to(60)
    assert [i.family for i in world.published.values()] == ["gpu_nvlink"]


@pytest.mark.parametrize("code", [48, 79, 119])
def test_what_a_gpu_says_of_itself_waits_for_nobody(code: int) -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(xid("n2", code, 0))
    assert world.only().root.node == "n2"
