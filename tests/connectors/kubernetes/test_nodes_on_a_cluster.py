"""Closing and emptying nodes on a real API server, with budgets, DaemonSets, people and other incidents about."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from connectors.base import AlreadyDone, Blocked, Done, NoLease, Refused, Waiting
from connectors.kubernetes.annotations import INCIDENT, MANAGED, annotations_of
from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.nodes import NodeConnector
from connectors.kubernetes.pod_roles import MIRROR
from streams.model.run import Target
from tests.connectors.kube_world import KubeWorld
from tests.connectors.responding import until_over
from tests.testbed import workloads
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.cluster

LEASE = NoLease()


async def budget(world: KubeWorld, name: str, *, min_available: int) -> str:
    path = path_of("policy/v1", "poddisruptionbudgets", namespace=world.namespace)
    labels = {"app": "train"}
    made = workloads.disruption_budget(
        name, world.namespace, match_labels=labels, min_available=min_available
    )
    await world.cluster.create(path, made)

    async def counted() -> bool:
        status = (await world.cluster.get(f"{path}/{name}")).get("status") or {}
        return bool(status.get("observedGeneration") == 1 and status.get("currentHealthy") == 2)

    await eventually(counted, f"{name} has counted its pods")
    return f"{path}/{name}"


async def two_train_pods(world: KubeWorld) -> tuple[str, list[str]]:
    node = await world.add_node(kubelet=True)
    pods = [await world.add_pod(node, labels={"app": "train"}) for _ in range(2)]
    await world.patch_node(node, {"spec": {"unschedulable": True}})
    return node, sorted(f"{world.namespace}/{pod}" for pod in pods)


async def test_a_budget_blocks_a_drain_by_name_until_it_is_released(world: KubeWorld) -> None:
    node, pods = await two_train_pods(world)
    path = await budget(world, "keep-two", min_available=2)
    nodes, drain = NodeConnector(world.cluster), world.effect("drain_node", Target("Node", node))
    blocked = await nodes.apply(drain, LEASE)
    assert isinstance(blocked, Blocked)
    assert blocked.by == f"PodDisruptionBudget {world.namespace}/keep-two"
    assert all(pod in blocked.reason for pod in pods)
    assert [write.code for write in world.writes(subresource="eviction")] == [429, 429]
    await world.cluster.delete(path)
    outcome = await until_over(nodes, drain)
    assert isinstance(outcome, Done)
    assert outcome.result["evicted"] == 2
    assert (set(outcome.result["gone"]), outcome.result["left"]) == (set(pods), ())  # type: ignore[arg-type]
    assert [write.code for write in world.writes(subresource="eviction", code=201)] == [201, 201]
    assert world.writes(verb="delete", resource="pods") == []


async def test_a_budget_that_spares_one_pod_lets_one_go(world: KubeWorld) -> None:
    node, _ = await two_train_pods(world)
    await budget(world, "keep-one", min_available=1)
    outcome = await NodeConnector(world.cluster).apply(
        world.effect("drain_node", Target("Node", node)), LEASE
    )
    assert isinstance(outcome, Blocked)
    assert "keep-one" in outcome.by
    assert outcome.result["evicted"] == 1
    assert "1 terminating" in outcome.reason


async def test_two_budgets_over_one_pod_are_a_block_and_not_an_unclear_answer(world: KubeWorld) -> None:
    node, pods = await two_train_pods(world)
    await budget(world, "one", min_available=1)
    await budget(world, "other", min_available=1)
    outcome = await NodeConnector(world.cluster).apply(
        world.effect("drain_node", Target("Node", node)), LEASE
    )
    assert isinstance(outcome, Blocked)
    assert outcome.by == "several PodDisruptionBudgets"
    assert pods[0] in outcome.reason


async def test_only_what_a_drain_concerns_leaves_the_node(world: KubeWorld) -> None:
    node = await world.add_node(kubelet=True)
    daemon = await world.add_pod(node, controlled=False)
    await world.cluster.patch(
        path_of("v1", "pods", namespace=world.namespace, name=daemon),
        {"metadata": {"ownerReferences": [await world.owner("DaemonSet")]}},
    )
    kept = {
        daemon,
        await world.add_pod(node, annotations={MIRROR: "from-a-file"}),
        await world.add_pod(node, gpus=0),
    }
    training = await world.add_pod(node)
    await world.patch_node(node, {"spec": {"unschedulable": True}})
    await until_over(
        NodeConnector(world.cluster), world.effect("drain_node", Target("Node", node), only="gpu")
    )
    assert {pod["metadata"]["name"] for pod in await world.pods()} == kept
    assert [write.name for write in world.writes(subresource="eviction")] == [training]


async def test_a_pod_nobody_would_bring_back_is_left_for_a_person_to_decide(world: KubeWorld) -> None:
    node = await world.add_node(kubelet=True)
    pod = await world.add_pod(node, controlled=False)
    await world.patch_node(node, {"spec": {"unschedulable": True}})
    nodes, drain = NodeConnector(world.cluster), world.effect("drain_node", Target("Node", node))
    outcome = await nodes.apply(drain, LEASE)
    assert isinstance(outcome, Blocked)
    assert pod in outcome.reason
    assert world.writes(subresource="eviction") == []
    assert isinstance(await until_over(nodes, replace(drain, params={"bare": True})), Done)


async def test_a_pod_that_hangs_in_its_end_is_waited_for_and_never_deleted(world: KubeWorld) -> None:
    node = await world.add_node(kubelet=True)
    pod = await world.add_pod(node, annotations={"testbed.faultline.dev/on-delete": "hang"})
    await world.patch_node(node, {"spec": {"unschedulable": True}})
    nodes, drain = NodeConnector(world.cluster), world.effect("drain_node", Target("Node", node))
    for _ in range(3):
        outcome = await nodes.apply(drain, LEASE)
        assert isinstance(outcome, Waiting)
        assert pod in outcome.detail
    assert len(world.writes(subresource="eviction")) == 1
    assert world.writes(verb="delete", resource="pods") == []


class StaleList(Cluster):
    """Lists what was there a moment ago, as a slow reader sees it."""

    stale: list[Object]

    async def list_all(self, path: str, *, query: Mapping[str, str] | None = None) -> list[Object]:
        return self.stale


async def test_a_pod_made_anew_under_the_same_name_is_not_evicted(world: KubeWorld) -> None:
    node = await world.add_node(kubelet=True)
    pod = await world.add_pod(node)
    await world.patch_node(node, {"spec": {"unschedulable": True}})
    cluster = world.through_proxy(timeout_s=60)
    cluster.__class__ = StaleList
    assert isinstance(cluster, StaleList)
    cluster.stale = [item | {"metadata": item["metadata"] | {"uid": "gone"}} for item in await world.pods()]
    outcome = await NodeConnector(cluster).apply(world.effect("drain_node", Target("Node", node)), LEASE)
    await cluster.close()
    assert isinstance(outcome, Waiting)
    assert [write.code for write in world.writes(subresource="eviction")] == [409]
    (still,) = await world.pods()
    assert still["metadata"]["name"] == pod
    assert "deletionTimestamp" not in still["metadata"]


async def test_a_persons_uncordon_stops_the_drain_and_stands(world: KubeWorld) -> None:
    node = await world.add_node(kubelet=True)
    await world.add_pod(node)
    nodes, target = NodeConnector(world.cluster), Target("Node", node)
    cordon, drain = world.effect("cordon_node", target), world.effect("drain_node", target)
    assert isinstance(await nodes.apply(cordon, LEASE), Done)
    world.real.kubectl("uncordon", node)
    for outcome in (
        await nodes.apply(drain, LEASE),
        await nodes.apply(cordon, LEASE),
        await nodes.undo(cordon, LEASE),
    ):
        assert isinstance(outcome, Blocked)
        assert outcome.by_person
    assert "unschedulable" not in (await world.node(node))["spec"]
    assert world.writes(subresource="eviction") == []


async def test_what_the_reason_tells_a_person_to_run_removes_the_rest(world: KubeWorld) -> None:
    node = await world.add_node()
    nodes, cordon = NodeConnector(world.cluster), world.effect("cordon_node", Target("Node", node))
    await nodes.apply(cordon, LEASE)
    world.real.kubectl("uncordon", node)
    blocked = await nodes.undo(cordon, LEASE)
    assert isinstance(blocked, Blocked)
    command = blocked.reason.split("`")[1].split()
    assert command[0] == "kubectl"
    world.real.kubectl(*command[1:])
    taints = (await world.node(node))["spec"].get("taints") or []
    assert INCIDENT not in [taint["key"] for taint in taints]


async def test_a_persons_cordon_outlives_ours(world: KubeWorld) -> None:
    node = await world.add_node()
    world.real.kubectl("cordon", node)
    nodes, cordon = NodeConnector(world.cluster), world.effect("cordon_node", Target("Node", node))
    done = await nodes.apply(cordon, LEASE)
    assert isinstance(done, Done)
    assert done.result["prior"] == "unschedulable"
    assert isinstance(await nodes.undo(cordon, LEASE), Done)
    after = await world.node(node)
    assert after["spec"]["unschedulable"] is True
    assert INCIDENT not in annotations_of(after)


async def test_incidents_that_close_a_node_at_once_all_own_it(world: KubeWorld) -> None:
    node = await world.add_node()
    nodes, target = NodeConnector(world.cluster), Target("Node", node)
    cordons = [world.effect("cordon_node", target, key=f"key-{n}") for n in range(4)]
    outcomes = await asyncio.gather(*(until_over(nodes, cordon) for cordon in cordons))
    assert all(isinstance(outcome, Done) for outcome in outcomes)
    assert set(annotations_of(await world.node(node))[INCIDENT].split(",")) == {f"inc-{n}" for n in range(4)}
    for cordon in cordons:
        assert (await world.node(node))["spec"]["unschedulable"] is True
        assert isinstance(await nodes.undo(cordon, LEASE), Done)
    after = await world.node(node)
    assert "unschedulable" not in after["spec"]
    assert INCIDENT not in annotations_of(after)


async def test_uncordoning_for_an_incident_leaves_other_incidents_their_hold(world: KubeWorld) -> None:
    node = await world.add_node()
    nodes, target = NodeConnector(world.cluster), Target("Node", node)
    for n in (1, 2):
        await nodes.apply(world.effect("cordon_node", target, key=f"key-{n}"), LEASE)
    assert isinstance(await nodes.apply(world.effect("uncordon_node", target, key="other-1"), LEASE), Done)
    assert (await world.node(node))["spec"]["unschedulable"] is True
    assert isinstance(await nodes.apply(world.effect("uncordon_node", target, key="other-2"), LEASE), Done)
    assert "unschedulable" not in (await world.node(node))["spec"]


async def test_a_node_that_people_keep_for_themselves_is_refused(world: KubeWorld) -> None:
    node = await world.add_node()
    await world.patch_node(node, {"metadata": {"labels": {MANAGED: "false"}}})
    for action in ("cordon_node", "drain_node"):
        outcome = await NodeConnector(world.cluster).apply(world.effect(action, Target("Node", node)), LEASE)
        assert isinstance(outcome, Refused)
        assert MANAGED in outcome.reason
    assert world.writes(resource="nodes", name=node, verb="patch", code=200)[1:] == []


async def test_a_node_that_is_gone_is_refused_to_close_and_needs_no_drain(world: KubeWorld) -> None:
    nodes, target = NodeConnector(world.cluster), Target("Node", "no-such-node")
    cordon, drain = world.effect("cordon_node", target), world.effect("drain_node", target)
    assert isinstance(await nodes.apply(cordon, LEASE), Refused)
    assert isinstance(await nodes.undo(cordon, LEASE), AlreadyDone)
    assert isinstance(await nodes.apply(drain, LEASE), AlreadyDone)
