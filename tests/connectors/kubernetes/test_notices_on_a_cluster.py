"""What clouds write on nodes, as a real API server takes it: which values it allows, and what the inventory reads back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from connectors.base import Done, NoLease
from connectors.kubernetes.client import path_of
from connectors.kubernetes.nodes import NodeConnector
from streams.inventory.nodes import node_fact
from streams.model.errors import Permanent
from streams.model.facts import NodeFact
from streams.model.run import Target
from tests.connectors.kube_world import KubeWorld

pytestmark = pytest.mark.cluster

LEASE = NoLease()
SOON = (datetime.now(UTC) + timedelta(hours=2)).replace(microsecond=0)
GKE = "cloud.google.com/scheduled-maintenance-time"
NTH = "aws-node-termination-handler/spot-itn"


async def fact_of(world: KubeWorld, name: str) -> NodeFact:
    return node_fact("c1", await world.node(name), datetime.now(UTC))


async def tainted(world: KubeWorld, name: str, *keys: str) -> None:
    taints = [{"key": key, "value": "event-1", "effect": "NoSchedule"} for key in keys]
    await world.patch_node(name, {"spec": {"taints": taints}})


async def test_a_label_holds_seconds_and_no_time_with_colons(world: KubeWorld) -> None:
    name = await world.add_node()
    await world.patch_node(name, {"metadata": {"labels": {GKE: str(int(SOON.timestamp()))}}})
    notice = (await fact_of(world, name)).notice
    assert notice is not None
    assert (notice.subtype, notice.not_before) == ("host_maintenance", SOON)
    with pytest.raises(Permanent):
        await world.patch_node(name, {"metadata": {"labels": {GKE: "2026-03-01T03:09:00Z"}}})


async def test_an_annotation_of_our_own_holds_a_time(world: KubeWorld) -> None:
    name = await world.add_node()
    written = SOON.strftime("%Y-%m-%dT%H:%M:%S+00:00")
    await world.patch_node(name, {"metadata": {"annotations": {"faultline.dev/leaves-at": written}}})
    notice = (await fact_of(world, name)).notice
    assert notice is not None
    assert (notice.subtype, notice.not_before) == ("termination", SOON)


async def test_a_condition_tells_what_happens_and_when(world: KubeWorld) -> None:
    name = await world.add_node()
    told: dict[str, Any] = {
        "type": "VMEventScheduled", "status": "True", "reason": "VMEventScheduled",
        "message": SOON.strftime("Preempt Scheduled: %a, %d %b %Y %H:%M:%S GMT"),
    }  # fmt: skip
    path = f"{path_of('v1', 'nodes')}/{name}/status"
    await world.cluster.patch(path, {"status": {"conditions": [told]}}, "strategic")
    notice = (await fact_of(world, name)).notice
    assert notice is not None
    assert (notice.subtype, notice.not_before) == ("termination", SOON)


async def test_a_taint_is_read_until_it_is_taken_off_and_outlives_our_cordon(world: KubeWorld) -> None:
    name = await world.add_node()
    await tainted(world, name, NTH)
    before = await fact_of(world, name)
    assert before.notice is not None
    assert before.notice.within_s == 120
    nodes, target = NodeConnector(world.cluster), Target("Node", name)
    assert isinstance(await nodes.apply(world.effect("cordon_node", target), LEASE), Done)
    closed = await fact_of(world, name)
    assert closed.unschedulable
    assert closed.notice == before.notice
    # The handler takes its own taint off and leaves ours: the notice is taken back, the cordon is ours to undo.
    left = [t for t in (await world.node(name))["spec"]["taints"] if t["key"] != NTH]
    await world.patch_node(name, {"spec": {"taints": left}})
    assert (await fact_of(world, name)).notice is None
    undo = world.effect("cordon_node", target)
    assert isinstance(await nodes.undo(undo, LEASE), Done)
    again = await fact_of(world, name)
    assert not again.unschedulable
    assert again.owner_incident is None
