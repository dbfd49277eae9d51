"""A slow job, and something faint on one of its nodes that began then, are one incident; each by itself is none."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from streams.model.entity import Entity, PodRef
from streams.model.signal import Severity, Signal, signal
from tests.streams.correlate.world import CLUSTER, World, at, cluster, job, nic_names, sign

FOUR = ["n1", "n2", "n3", "n4"]


def slow(seconds: float, since: float = 0) -> Signal:
    entity = Entity(CLUSTER, pod=PodRef("train", "llama-worker-0"))
    return signal(
        "job.stalled", entity, severity=Severity.WARNING, occurred_at=at(seconds), observed_at=at(seconds + 0.5),
        attributes={"subtype": "slow", "percent": 55, "elapsed_ms": int(1000 * (seconds - since))},
    )  # fmt: skip


def narrow(node: str, seconds: float) -> Signal:
    return sign("node.thermal", node, seconds, "temperature", severity=Severity.WARNING)


def fewer_lanes(node: str, seconds: float) -> Signal:
    """What is seen of a device, whatever it is, whose PCIe link lost lanes while it ran."""
    return sign("node.pcie", node, seconds, "link_narrowed", pci="0000:5e:00", lanes=4, usual=16)


def told(signals: Sequence[Signal]) -> World:
    world = World(cluster({"llama": FOUR}))
    for one in sorted(signals, key=lambda s: s.observed_at):
        world.pass_to((one.observed_at - at(0)).total_seconds(), step=20)
        world.see(one)
    world.pass_to(2400, step=20)
    return world


@pytest.mark.parametrize("backwards", [False, True])
def test_what_began_on_one_node_when_the_job_became_slow_is_told_with_the_job(backwards: bool) -> None:
    story = [narrow("n3", -300), slow(900)]
    if backwards:
        world = World(cluster({"llama": FOUR}))
        world.see(*reversed(story))
        world.pass_to(2400, step=20)
    else:
        world = told(story)
    incident = world.only()
    assert (incident.family, incident.root.node, incident.jobs) == ("power_cooling", "n3", (job("llama"),))


def test_a_device_whose_pcie_link_lost_lanes_is_why_its_job_is_slow() -> None:
    incident = told([fewer_lanes("n3", -100), slow(900)]).only()
    assert (incident.family, incident.root.node, incident.jobs) == ("straggler", "n3", (job("llama"),))
    assert "its device 0000:5e:00 has 4 lanes of the 16 that it had" in incident.reason


def test_the_nic_that_the_device_is_is_named() -> None:
    known = nic_names("n3", -600, "mlx5_3", pci="0000:5e:00", netdev="ens3np0")
    incident = told([known, fewer_lanes("n3", -100), slow(900)]).only()
    assert "its device mlx5_3 (0000:5e:00) has 4 lanes" in incident.reason


NONE = {
    "a link that lost lanes, and no job that is slow": [fewer_lanes("n3", -300)],
    "links that lost lanes on all of its nodes": [*(fewer_lanes(n, -300) for n in FOUR), slow(900)],
    "a link that had lost lanes hours before": [fewer_lanes("n3", -9000), slow(900)],
    "a job that is slow, and nothing beside it": [slow(900)],
    "something faint, and no job that is slow": [narrow("n3", -300)],
    "something faint on two of its nodes": [narrow("n3", -300), narrow("n2", -200), slow(900)],
    "something faint hours before": [narrow("n3", -4000), slow(900)],
    "something faint on a node of another job": [narrow("n9", -300), slow(900)],
}


@pytest.mark.parametrize("name", NONE)
def test_what_does_not_come_together_is_none(name: str) -> None:
    assert told(NONE[name]).incidents() == []
