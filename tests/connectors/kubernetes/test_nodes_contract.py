"""Cordon, uncordon and drain hold to the contract, on a real API server and on the emulated one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from connectors.base import Connector, Effect, NoLease
from connectors.kubernetes.annotations import annotations_of
from connectors.kubernetes.client import Object, path_of
from connectors.kubernetes.nodes import NodeConnector
from connectors.kubernetes.out_of_service import TAINT
from streams.model.clock import utc_now
from streams.model.run import Target
from tests.connectors.kube_world import NODES, KubeWorld
from tests.contract.case import Case
from tests.contract.suite import ConnectorContract, EffectContract


def is_kubernetes_own(key: str) -> bool:
    return key.startswith(("node.kubernetes.io/", "node.alpha.kubernetes.io/"))


class NodeCase(Case):
    """An effect on one node of the world."""

    action = ""
    deadline_s = 120.0

    def __init__(self, world: KubeWorld, node: str) -> None:
        super().__init__(world.proxy)
        self.world = world
        self.node = node

    def effect(self) -> Effect:
        return self.world.effect(self.action, Target("Node", self.node))

    def connector(self) -> Connector:
        return NodeConnector(self.world.through_proxy())

    async def snapshot(self) -> object:
        node = await self.world.node(self.node)
        # Kubernetes' own controllers add and remove taints and annotations of theirs when they like.
        taints = [t for t in node["spec"].get("taints") or [] if not is_kubernetes_own(t["key"])]
        marks = {k: v for k, v in annotations_of(node).items() if not is_kubernetes_own(k)}
        return node["spec"].get("unschedulable"), taints, marks

    async def foreign_change(self) -> None:
        await self.world.patch_node(self.node, {"spec": {"unschedulable": None}})

    def taken(self) -> list[Object]:
        """The bodies of the patches that the server took from Faultline."""
        return self.world.taken("PATCH", f"{NODES}/{self.node}")


class CordonCase(NodeCase):
    action = "cordon_node"

    async def changes(self) -> int:
        closed = [body["spec"]["unschedulable"] is True for body in self.taken()]
        return closed.count(True) - closed.count(False)


class UncordonCase(NodeCase):
    action = "uncordon_node"

    async def changes(self) -> int:
        return [body["spec"]["unschedulable"] is None for body in self.taken()].count(True)


class DrainCase(NodeCase):
    action = "drain_node"

    def __init__(self, world: KubeWorld, node: str, pod: str) -> None:
        super().__init__(world, node)
        self.pod = path_of("v1", "pods", namespace=world.namespace, name=pod, subresource="eviction")

    async def changes(self) -> int:
        return len(self.world.taken("POST", self.pod))

    async def snapshot(self) -> object:
        return [
            (p["metadata"]["uid"], p["metadata"].get("deletionTimestamp")) for p in await self.world.pods()
        ]


class DeadNodeCase(NodeCase):
    """A drain of a dead node, and what its taint does to the pod that hangs there; an hour later, so that no test waits."""

    action = "drain_node"

    def connector(self) -> Connector:
        return NodeConnector(self.world.through_proxy(), clock=lambda: utc_now() + timedelta(hours=1))

    async def changes(self) -> int:
        return [TAINT in body["spec"]["taints"] for body in self.taken()].count(True)

    async def snapshot(self) -> object:
        return await self.world.node(self.node), await self.world.pods()


class TestCordonNode(ConnectorContract):
    @pytest.fixture
    async def case(self, either_world: KubeWorld) -> Case:
        world = either_world
        return CordonCase(world, await world.add_node())


class TestUncordonNode(EffectContract):
    @pytest.fixture
    async def case(self, either_world: KubeWorld) -> Case:
        world = either_world
        node = await world.add_node()
        cordon = world.effect("cordon_node", Target("Node", node))
        await NodeConnector(world.cluster).apply(cordon, NoLease())
        return UncordonCase(world, node)


class TestDrainNode(EffectContract):
    @pytest.fixture
    async def case(self, either_world: KubeWorld) -> Case:
        world = either_world
        node = await world.add_node(kubelet=True)
        pod = await world.add_pod(node)
        await world.patch_node(node, {"spec": {"unschedulable": True}})
        return DrainCase(world, node, pod)


# The real garbage collector looks every 20 seconds: what it does is shown once, in test_dead_nodes_on_a_cluster.
@pytest.mark.parametrize(
    "either_world", [pytest.param("emulated", marks=pytest.mark.embedded)], indirect=True
)
class TestDrainDeadNode(EffectContract):
    @pytest.fixture
    async def case(self, either_world: KubeWorld) -> Case:
        world = either_world
        node = await world.add_node(kubelet=True)
        pod = await world.add_pod(node)
        await NodeConnector(world.cluster).apply(world.effect("cordon_node", Target("Node", node)), NoLease())
        await world.silenced(node)
        await world.cluster.delete(path_of("v1", "pods", namespace=world.namespace, name=pod))
        return DeadNodeCase(world, node)
