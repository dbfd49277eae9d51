"""Work on a node holds to the contract on a real API server, with the real Job controller and scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from connectors.base import Connector, Effect, NoLease
from connectors.kubernetes.node_work import NodeWork
from connectors.kubernetes.nodes import NodeConnector
from connectors.kubernetes.work_templates import Template
from streams.config.connector_settings import NodeWorkSettings
from streams.model.run import Target
from tests.connectors.kube_world import KubeWorld
from tests.connectors.kubernetes.node_jobs import a_template, boots, jobs_path, new_boot
from tests.contract.case import Case
from tests.contract.suite import EffectContract

pytestmark = pytest.mark.cluster


class NodeWorkCase(Case):
    """One action on one node that is closed for the incident and empty."""

    deadline_s = 120.0

    def __init__(self, world: KubeWorld, node: str, action: str) -> None:
        super().__init__(world.proxy)
        self.world = world
        self.node = node
        self.action = action
        self.templates = {action: Template(action, a_template(outcome="complete"))}

    def effect(self) -> Effect:
        return self.world.effect(self.action, Target("Node", self.node))

    def connector(self) -> Connector:
        settings = NodeWorkSettings(namespace=self.world.namespace)
        return NodeWork(self.world.through_proxy(), settings, self.templates)

    async def changes(self) -> int:
        return len(self.world.taken("POST", jobs_path(self.world)))

    async def snapshot(self) -> object:
        jobs = await self.world.cluster.list_all(jobs_path(self.world))
        return [(job["metadata"]["name"], job["metadata"]["uid"]) for job in jobs]


async def closed_node(world: KubeWorld) -> str:
    node = await world.add_node(kubelet=True)
    await new_boot(world, node, "boot-1")
    await NodeConnector(world.cluster).apply(world.effect("cordon_node", Target("Node", node)), NoLease())
    return node


class TestResetGpu(EffectContract):
    @pytest.fixture
    async def case(self, world: KubeWorld) -> Case:
        return NodeWorkCase(world, await closed_node(world), "reset_gpu")


@pytest.mark.nightly  # done by a Job as a reset is
class TestValidateNode(EffectContract):
    @pytest.fixture
    async def case(self, world: KubeWorld) -> Case:
        return NodeWorkCase(world, await closed_node(world), "validate_node")


@pytest.mark.nightly
class TestRebootNode(EffectContract):
    @pytest.fixture
    async def case(self, world: KubeWorld) -> AsyncIterator[Case]:
        """Besides, a machine that boots anew as soon as the Job's pod has been started on it."""
        node = await closed_node(world)
        machine = asyncio.create_task(boots(world, node, "boot-2"))
        yield NodeWorkCase(world, node, "reboot_node")
        machine.cancel()
        with suppress(asyncio.CancelledError):
            await machine
