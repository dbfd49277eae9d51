"""Jobs on a closed node of a real cluster: placed there by the real scheduler, ended by the real Job controller."""

from __future__ import annotations

from dataclasses import replace

import pytest

from connectors.base import Absent, Blocked, Done, NoLease, Refused, Waiting
from connectors.kubernetes.client import Object
from connectors.kubernetes.node_work import NodeWork
from connectors.kubernetes.nodes import NodeConnector
from connectors.kubernetes.work_templates import Template, job_name
from streams.config.connector_settings import NodeWorkSettings
from streams.model.run import Target
from tests.connectors.kube_world import NODES, KubeWorld
from tests.connectors.kubernetes.node_jobs import a_template, jobs_path, new_boot
from tests.connectors.responding import until_over
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.cluster

LEASE = NoLease()


def work(world: KubeWorld, template: Object) -> NodeWork:
    settings = NodeWorkSettings(namespace=world.namespace)
    actions = ("reset_gpu", "reboot_node", "validate_node")
    return NodeWork(world.cluster, settings, {action: Template(action, template) for action in actions})


async def closed(world: KubeWorld) -> Target:
    target = Target("Node", await world.add_node(kubelet=True))
    await new_boot(world, target.name, "boot-1")
    assert isinstance(
        await NodeConnector(world.cluster).apply(world.effect("cordon_node", target), LEASE), Done
    )
    return target


async def test_the_work_is_done_on_the_closed_node_and_on_no_other(world: KubeWorld) -> None:
    target, _ = await closed(world), await world.add_node(kubelet=True)
    effect = world.effect("reset_gpu", target)
    outcome = await until_over(work(world, a_template(outcome="complete")), effect)
    assert isinstance(outcome, Done), outcome
    (pod,) = await world.pods()
    assert pod["spec"]["nodeName"] == target.name
    assert [write.name for write in world.writes(resource="jobs", verb="create", code=201)] == [
        job_name(effect)
    ]


async def test_a_job_that_fails_is_tried_once_and_refused_with_its_end(world: KubeWorld) -> None:
    target = await closed(world)
    connector = work(world, a_template(outcome="crash", exit_code="3"))
    effect = world.effect("validate_node", target)
    outcome = await until_over(connector, effect)
    assert isinstance(outcome, Refused)
    assert "exit code 3" in outcome.reason
    assert isinstance(await connector.lookup(effect), Waiting)
    assert isinstance(await connector.apply(effect, LEASE), Refused)
    assert len(await world.pods()) == 1


async def test_a_reboot_is_over_when_the_node_is_back_with_another_boot(world: KubeWorld) -> None:
    target = await closed(world)
    connector, effect = work(world, a_template(outcome="complete")), world.effect("reboot_node", target)
    assert isinstance(await connector.apply(effect, LEASE), Waiting)

    async def job_is_complete() -> bool:
        job = await world.cluster.get(jobs_path(world, job_name(effect)))
        return bool(job["status"].get("succeeded"))

    await eventually(job_is_complete, "its Job is complete")
    still = await connector.apply(effect, LEASE)
    assert isinstance(still, Waiting)
    assert "has not rebooted" in still.detail
    world.real.annotate("node", target.name, "ready=false")
    await eventually(lambda: _is_not_ready(world, target.name), "it is down")
    await new_boot(world, target.name, "boot-2")
    down = await connector.apply(effect, LEASE)
    assert isinstance(down, Waiting)
    assert "not ready yet" in down.detail
    world.real.annotate("node", target.name, "ready-")
    assert isinstance(await until_over(connector, replace(effect, prior=down.result)), Done)
    assert len(world.writes(resource="jobs", verb="create", code=201)) == 1


async def _is_not_ready(world: KubeWorld, node: str) -> bool:
    conditions = (await world.cluster.get(f"{NODES}/{node}"))["status"]["conditions"]
    return any(c["type"] == "Ready" and c["status"] != "True" for c in conditions)


async def test_a_pod_that_still_uses_a_gpu_is_waited_for(world: KubeWorld) -> None:
    target = await closed(world)
    pod = await world.add_pod(target.name)
    connector, effect = work(world, a_template(outcome="complete")), world.effect("reset_gpu", target)
    blocked = await connector.apply(effect, LEASE)
    assert isinstance(blocked, Blocked)
    assert pod in blocked.reason
    assert isinstance(await connector.lookup(effect), Absent)
    assert world.writes(resource="jobs", verb="create") == []


async def test_nothing_is_done_on_a_node_in_service_or_reopened_by_a_person(world: KubeWorld) -> None:
    target = Target("Node", await world.add_node(kubelet=True))
    connector, effect = work(world, a_template(outcome="complete")), world.effect("validate_node", target)
    assert isinstance(await connector.apply(effect, LEASE), Refused)
    await NodeConnector(world.cluster).apply(world.effect("cordon_node", target), LEASE)
    world.real.kubectl("uncordon", target.name)
    blocked = await connector.apply(effect, LEASE)
    assert isinstance(blocked, Blocked)
    assert blocked.by_person
    assert world.writes(resource="jobs", verb="create") == []


async def test_a_job_that_a_person_deleted_is_not_made_again(world: KubeWorld) -> None:
    target = await closed(world)
    connector, effect = work(world, a_template()), world.effect("reset_gpu", target)
    begun = await connector.apply(effect, LEASE)
    assert isinstance(begun, Waiting)
    await world.cluster.delete(jobs_path(world, job_name(effect)), propagation="Background")
    outcome = await connector.apply(replace(effect, prior=begun.result), LEASE)
    assert isinstance(outcome, Blocked)
    assert outcome.by_person
    assert len(world.writes(resource="jobs", verb="create")) == 1


async def test_a_job_of_that_name_that_is_not_ours_is_not_taken_for_ours(world: KubeWorld) -> None:
    target = await closed(world)
    effect = world.effect("reset_gpu", target)
    foreign = a_template(outcome="complete")
    foreign["metadata"]["name"] = job_name(effect)
    foreign["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    await world.cluster.create(jobs_path(world), foreign)
    outcome = await work(world, a_template()).apply(effect, LEASE)
    assert isinstance(outcome, Refused)
    assert "was not made for this effect" in outcome.reason
