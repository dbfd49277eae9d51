"""Every shipped template on the real API server: its kind served by a definition of our own, its controller a simulation.

The simulations say what the controllers' documentation says they write; the controllers themselves are not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from connectors.base import (
    Absent,
    AlreadyDone,
    Blocked,
    Connector,
    Done,
    Effect,
    NoLease,
    Outcome,
    Refused,
    Waiting,
)
from connectors.kubernetes.client import Object
from connectors.kubernetes.errors import NotFound
from connectors.kubernetes.node_work_objects import TemplatedObjects
from connectors.kubernetes.nodes import NodeConnector
from connectors.kubernetes.work_object_templates import ObjectTemplate, object_name, read_object_templates
from streams.config.connector_settings import NodeWorkSettings
from streams.model.run import Target
from tests.connectors.kube_world import NODES, KubeWorld
from tests.connectors.kubernetes.node_jobs import new_boot
from tests.contract.case import Case
from tests.contract.suite import EffectContract
from tests.testbed.definitions import serve

pytestmark = pytest.mark.cluster

LEASE = NoLease()
SHIPPED = read_object_templates(Path(__file__).parents[3] / "k8s" / "components" / "templates" / "objects")
CREATED = sorted(name for name, one in SHIPPED.items() if one.does == "create")
DELETED = sorted(name for name, one in SHIPPED.items() if one.does == "delete")
HEALTH = "sagemaker.amazonaws.com/node-health-status"


def condition(kind: str, status: str = "True", reason: str = "Because") -> Object:
    at = "2026-03-01T12:00:00Z"
    return {
        "conditions": [
            {"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": at}
        ]
    }


ENDS_WELL: Mapping[str, Object] = {
    "nvsentinel-reboot": condition("NodeReady", reason="NodeReady"),
    "nvsentinel-gpu-reset": condition("Complete", reason="GPUResetSucceeded"),
    "nvsentinel-maintenance": condition("HealthEventEmitted"),
    "nvsentinel-validation": {"phase": "Succeeded"},
    "nvcre-certification": condition("Succeeded"),
    "medik8s-self-node": condition("Succeeded"),
    "medik8s-fence-agents": condition("Succeeded"),
}
FAILS: Mapping[str, Object] = {
    "nvsentinel-reboot": condition("NodeReady", "False", "Timeout"),
    "nvsentinel-gpu-reset": condition("Complete", reason="GPUResetFailed"),
    "nvsentinel-validation": {"phase": "Failed"},
    "nvcre-certification": condition("Failed"),
    "medik8s-self-node": condition("Succeeded", "False"),
    "medik8s-fence-agents": condition("Succeeded", "False"),
}


def objects(world: KubeWorld, **settings: Any) -> TemplatedObjects:
    return TemplatedObjects(world.cluster, NodeWorkSettings(namespace=world.namespace, **settings), SHIPPED)


async def closed(world: KubeWorld, template: ObjectTemplate, **metadata: Any) -> Effect:
    """An effect of the template on a node that is closed for its incident and empty."""
    await serve(world.cluster, template)
    target = Target("Node", await world.add_node(kubelet=True))
    await new_boot(world, target.name, "boot-1")
    if metadata:
        await world.patch_node(target.name, {"metadata": metadata})
    await NodeConnector(world.cluster).apply(world.effect("cordon_node", target), LEASE)
    key = f"{world.namespace}-1"
    effect = world.effect(
        "apply_template", target, key=key, template=template.template, **{"as": template.class_}
    )
    return replace(effect, context={"gpu_uuid": "GPU-00000000-0000-0000-0000-000000000000"})


async def path_for(world: KubeWorld, template: ObjectTemplate, effect: Effect) -> str:
    resource = await world.cluster.resource(template.kind)
    where = world.namespace if resource.namespaced else None
    return resource.path(where, object_name(template, effect))


async def says(world: KubeWorld, template: ObjectTemplate, effect: Effect, status: Object) -> None:
    """What the template's controller writes."""
    path = await path_for(world, template, effect)
    await world.cluster.patch(f"{path}/status", {"status": status})


async def then(connector: Connector, effect: Effect, before: Outcome) -> Outcome:
    assert isinstance(before, Waiting), before
    return await connector.apply(replace(effect, prior=before.result), LEASE)


@pytest.mark.parametrize("name", CREATED)
async def test_a_shipped_template_is_created_once_and_ends_as_its_controller_says(
    world: KubeWorld, name: str
) -> None:
    template = SHIPPED[name]
    effect = await closed(world, template)
    connector = objects(world)
    assert isinstance(await connector.lookup(effect), Absent)
    begun = await connector.apply(effect, LEASE)
    assert isinstance(await connector.lookup(effect), Waiting)
    again = await then(connector, effect, begun)
    await says(world, template, effect, ENDS_WELL[name])
    if template.proof == "new_boot":
        again = await then(connector, effect, again)
        assert isinstance(again, Waiting)
        assert "has not come back with another boot" in again.detail
        await new_boot(world, effect.target.name, "boot-2")
    assert isinstance(await then(connector, effect, again), Done)
    assert isinstance(await connector.lookup(effect), AlreadyDone)
    plural = template.rights[0].resources[0]
    assert len(world.writes(resource=plural, verb="create", code=201)) == 1


@pytest.mark.parametrize("name", sorted(FAILS))
async def test_a_shipped_template_fails_as_its_controller_says(world: KubeWorld, name: str) -> None:
    effect = await closed(world, SHIPPED[name])
    connector = objects(world)
    begun = await connector.apply(effect, LEASE)
    await says(world, SHIPPED[name], effect, FAILS[name])
    assert isinstance(await then(connector, effect, begun), Refused)
    assert isinstance(await connector.lookup(effect), Waiting)


@pytest.mark.parametrize("name", DELETED)
async def test_a_machine_is_deleted_once_and_replaced_when_its_node_is_gone(
    world: KubeWorld, name: str
) -> None:
    template = SHIPPED[name]
    machine = f"machine-{world.namespace}"
    marks = {"cluster.x-k8s.io/machine": machine, "cluster.x-k8s.io/cluster-namespace": world.namespace}
    await serve(world.cluster, template)
    resource = await world.cluster.resource(template.kind)
    where = world.namespace if resource.namespaced else None
    about: Object = {"apiVersion": resource.api_version, "kind": resource.kind}
    about |= {"metadata": {"name": machine, "finalizers": ["example.com/instance"]}}
    made = await world.cluster.create(resource.path(where), about)
    # Karpenter's nodes belong to their claims: the garbage collector deletes one whose claim is gone. The finalizer keeps it.
    owner = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": machine,
        "uid": made["metadata"]["uid"],
    }
    owned = {} if resource.namespaced else {"ownerReferences": [owner], "finalizers": ["example.com/node"]}
    effect = await closed(world, template, annotations=marks, **owned)
    connector = objects(world)
    assert isinstance(await connector.lookup(effect), Absent)
    begun = await connector.apply(effect, LEASE)
    leaving = await then(connector, effect, begun)
    assert isinstance(await connector.lookup(effect), Waiting)
    await world.cluster.patch(resource.path(where, machine), {"metadata": {"finalizers": None}})
    gone = await then(connector, effect, leaving)
    assert isinstance(gone, Waiting)
    assert "is still there" in gone.detail
    world.nodes.remove(effect.target.name)
    await world.patch_node(effect.target.name, {"metadata": {"finalizers": None}})
    with suppress(NotFound):
        await world.cluster.delete(f"{NODES}/{effect.target.name}")
    assert isinstance(await then(connector, effect, gone), Done)
    assert len(world.writes(resource=resource.plural, verb="delete")) == 1


async def test_a_label_is_set_once_and_the_machine_reboots(world: KubeWorld) -> None:
    effect = await closed(world, SHIPPED["hyperpod-reboot"])
    connector = objects(world)
    assert isinstance(await connector.lookup(effect), Absent)
    begun = await connector.apply(effect, LEASE)
    node = await world.node(effect.target.name)
    assert node["metadata"]["labels"][HEALTH] == "UnschedulablePendingReboot"
    await new_boot(world, effect.target.name, "boot-2")
    pending = await then(connector, effect, begun)
    await world.patch_node(effect.target.name, {"metadata": {"labels": {HEALTH: "Schedulable"}}})
    assert isinstance(await then(connector, effect, pending), Done)


async def test_an_object_that_a_person_deleted_is_not_made_again(world: KubeWorld) -> None:
    template = SHIPPED["nvcre-certification"]
    effect = await closed(world, template)
    connector = objects(world)
    begun = await connector.apply(effect, LEASE)
    await world.cluster.delete(await path_for(world, template, effect))
    outcome = await then(connector, effect, begun)
    assert isinstance(outcome, Blocked)
    assert outcome.by_person


async def test_nothing_is_asked_for_on_a_node_in_service_or_with_pods_on_its_gpus(world: KubeWorld) -> None:
    template = SHIPPED["nvsentinel-reboot"]
    await serve(world.cluster, template)
    target = Target("Node", await world.add_node(kubelet=True))
    await new_boot(world, target.name, "boot-1")
    key = f"{world.namespace}-1"
    effect = world.effect("apply_template", target, key=key, template=template.template, **{"as": "reboot"})
    assert isinstance(await objects(world).apply(effect, LEASE), Refused)
    await NodeConnector(world.cluster).apply(world.effect("cordon_node", target), LEASE)
    pod = await world.add_pod(target.name)
    blocked = await objects(world).apply(effect, LEASE)
    assert isinstance(blocked, Blocked)
    assert pod in blocked.reason
    assert world.writes(resource="rebootnodes", verb="create") == []


async def test_what_the_template_and_the_runbook_count_it_as_must_agree(world: KubeWorld) -> None:
    effect = world.effect(
        "apply_template", Target("Node", "any"), template="nvsentinel-reboot", **{"as": "nothing"}
    )
    outcome = await objects(world).apply(effect, LEASE)
    assert isinstance(outcome, Refused)
    assert "counts as reboot, and the runbook says nothing" in outcome.reason


async def test_what_can_be_taken_back_is_deleted_once_and_only_as_we_left_it(world: KubeWorld) -> None:
    template = SHIPPED["nvsentinel-maintenance"]
    effect = await closed(world, template)
    connector = objects(world)
    begun = await connector.apply(effect, LEASE)
    assert isinstance(begun, Waiting)
    path = await path_for(world, template, effect)
    await world.cluster.patch(path, {"spec": {"startTime": "2027-01-01T00:00:00Z"}})
    changed = await connector.undo(replace(effect, prior=begun.result), LEASE)
    assert isinstance(changed, Blocked)
    assert changed.by_person
    other = replace(effect, key=f"{effect.key}-again")
    again = await connector.apply(other, LEASE)
    assert isinstance(again, Waiting)
    taking = await connector.undo(replace(other, prior=again.result), LEASE)
    assert isinstance(taking, Waiting)
    assert isinstance(await connector.undo(replace(other, prior=again.result), LEASE), AlreadyDone)
    assert len(world.writes(resource="maintenancerequests", verb="delete")) == 1
    left = await closed(world, SHIPPED["nvcre-certification"])
    assert isinstance(await connector.undo(left, LEASE), Refused)


class TemplateCase(Case):
    """A MaintenanceRequest whose controller has already said its word whenever it is looked at."""

    def __init__(self, world: KubeWorld, effect: Effect, template: ObjectTemplate, collection: str) -> None:
        super().__init__(world.proxy)
        self.world, self._effect, self.template, self.collection = world, effect, template, collection

    def effect(self) -> Effect:
        return self._effect

    def connector(self) -> Connector:
        settings = NodeWorkSettings(namespace=self.world.namespace)
        return TemplatedObjects(self.world.through_proxy(), settings, {self.template.template: self.template})

    async def changes(self) -> int:
        return len(self.world.taken("POST", self.collection))

    async def snapshot(self) -> object:
        name = object_name(self.template, self._effect)
        found = await self.world.cluster.list_all(self.collection)
        return [
            (one["metadata"]["name"], one["metadata"]["uid"])
            for one in found
            if one["metadata"]["name"] == name
        ]


class TestApplyTemplate(EffectContract):
    @pytest.fixture
    async def case(self, world: KubeWorld) -> Case:
        """Done as soon as the server has given it a uid: what a controller says later is tested above."""
        shipped = SHIPPED["nvsentinel-maintenance"]
        template = ObjectTemplate.model_validate(
            shipped.model_dump(by_alias=True) | {"done": [{"path": "metadata.uid", "values": ".+"}]}
        )
        effect = await closed(world, template)
        resource = await world.cluster.resource(template.kind)
        return TemplateCase(world, effect, template, resource.path())
