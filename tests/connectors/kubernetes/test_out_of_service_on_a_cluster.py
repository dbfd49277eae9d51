"""A job leaves a node that is dead: its kubelet never ends the pods that were deleted there."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from connectors.base import AlreadyDone, Done, NoLease, Waiting
from connectors.jobs.training import TrainingJobs
from connectors.kubernetes.client import Object, path_of
from connectors.kubernetes.cordon_ownership import is_marked
from connectors.kubernetes.nodes import NodeConnector
from connectors.kubernetes.out_of_service import given_up_for, is_out_of_service
from streams.model.clock import parse_rfc3339
from streams.model.run import Target
from tests.connectors.jobs.paths import jobs_at
from tests.connectors.kube_world import KubeWorld
from tests.connectors.responding import until_over
from tests.testbed import workloads
from tests.testbed.waiting import eventually
from tests.tiers import sample

pytestmark = pytest.mark.cluster

LEASE = NoLease()
GRACE_S = 3


async def running_job(world: KubeWorld, kind: str, *, nodes: int, pods: int = 4) -> tuple[Target, str]:
    """A job with a short grace, of pods of a whole node each, running on some of `nodes`; and a node with one of its pods."""
    for _ in range(nodes):
        await world.add_node(kubelet=True)
    if kind == "Job":
        job = workloads.indexed_job("train", world.namespace, pool=world.namespace, pods=pods)
        templates = [job["spec"]["template"]]
    else:
        job = workloads.pytorch_job("train", world.namespace, pool=world.namespace, workers=pods - 1)
        templates = [role["template"] for role in job["spec"]["pytorchReplicaSpecs"].values()]
    for template in templates:
        template["spec"]["terminationGracePeriodSeconds"] = GRACE_S
    collection = jobs_at(kind, world.namespace)
    made = await world.cluster.create(collection, job)
    running = await world.all_run(pods)
    return Target(kind, "train", world.namespace, made["metadata"]["uid"]), running[0]["spec"]["nodeName"]


async def back(world: KubeWorld, node: str) -> None:
    world.real.revive(node)
    await eventually(lambda: world.is_ready(node), f"{node} is ready")


def on(pods: list[Object], node: str) -> list[str]:
    """The names of the pods on a node that are not over.

    The cluster calls a pod that it lets go of Failed; the object of a Job's stays a while longer, until its controller has
    counted it.
    """
    there = [pod for pod in pods if pod["spec"].get("nodeName") == node]
    return [
        pod["metadata"]["name"] for pod in there if pod["status"].get("phase") not in ("Failed", "Succeeded")
    ]


@pytest.mark.parametrize("kind", sample(["Job", "PyTorchJob"], "PyTorchJob"))
async def test_a_job_leaves_a_dead_node_and_is_whole_elsewhere(world: KubeWorld, kind: str) -> None:
    target, dead = await running_job(world, kind, nodes=5)
    bystander = await world.add_pod(dead, gpus=0)
    nodes, jobs = NodeConnector(world.cluster), TrainingJobs(world.cluster)
    await world.silenced(dead)
    cordon = world.effect("cordon_node", Target("Node", dead))
    assert isinstance(await nodes.apply(cordon, LEASE), Done)

    suspend = world.effect("suspend_job", target)
    suspended = await until_over(jobs, suspend)
    assert isinstance(suspended, Done)
    stuck = [name for name in on(await world.pods(), dead) if name != bystander]
    assert suspended.result == {"hanging": tuple(stuck), "nodes": (dead,)}
    assert dead in suspended.detail
    assert stuck[0] in suspended.detail
    found = await jobs.lookup(suspend)
    assert isinstance(found, AlreadyDone)
    assert found.result == suspended.result
    assert not is_out_of_service(await world.node(dead)), "suspending declares nothing"

    drained = await until_over(nodes, world.effect("drain_node", Target("Node", dead)))
    assert isinstance(drained, Done)
    assert drained.result["out_of_service"] is True
    assert on(await world.pods(), dead) == [bystander], "what the drain is not about stays"
    assert isinstance(await until_over(jobs, world.effect("resume_job", target, key="resume-1")), Done)
    assert isinstance(await until_over(jobs, world.effect("verify_job", target)), Done)
    running = [pod for pod in await world.pods() if pod["metadata"]["name"] != bystander]
    assert [pod["status"]["phase"] for pod in running].count("Running") == 4
    assert on(running, dead) == []

    await back(world, dead)
    assert isinstance(await nodes.undo(cordon, LEASE), Done)
    after = await world.node(dead)
    assert not is_out_of_service(after)
    assert not is_marked(after)
    assert "unschedulable" not in after["spec"]
    assert given_up_for(after) is None


@pytest.mark.nightly
async def test_a_suspended_job_is_waited_for_while_its_dead_node_is_not_closed_by_us(
    world: KubeWorld,
) -> None:
    target, dead = await running_job(world, "Job", nodes=1, pods=1)
    nodes, jobs = NodeConnector(world.cluster), TrainingJobs(world.cluster)
    await world.silenced(dead)
    world.real.kubectl("cordon", dead)
    suspend, drain = world.effect("suspend_job", target), world.effect("drain_node", Target("Node", dead))

    async def hangs_without_us() -> bool:
        assert isinstance(await jobs.apply(suspend, LEASE), Waiting)
        told = await nodes.apply(drain, LEASE)
        assert isinstance(told, Waiting)
        return "not cordoned for this incident" in told.detail

    await eventually(hangs_without_us, "the drain says that the node is not ours to declare", timeout_s=60)
    assert not is_out_of_service(await world.node(dead))
    assert isinstance(await nodes.apply(world.effect("cordon_node", Target("Node", dead)), LEASE), Done)
    assert isinstance(await until_over(jobs, suspend), Done | AlreadyDone)
    kept = await nodes.apply(replace(drain, params={"dead_node": False}), LEASE)
    assert isinstance(kept, Waiting)
    assert not is_out_of_service(await world.node(dead)), "nor where the runbook says not to"


@pytest.mark.nightly
async def test_a_node_that_comes_back_before_its_pods_are_let_go_of_is_in_service_again(
    world: KubeWorld,
) -> None:
    target, dead = await running_job(world, "Job", nodes=1, pods=1)
    nodes, jobs = NodeConnector(world.cluster), TrainingJobs(world.cluster)
    await world.silenced(dead)
    await nodes.apply(world.effect("cordon_node", Target("Node", dead)), LEASE)
    await until_over(jobs, world.effect("suspend_job", target))
    drain = world.effect("drain_node", Target("Node", dead))
    declared = await nodes.apply(drain, LEASE)
    assert isinstance(declared, Waiting)
    assert is_out_of_service(await world.node(dead))
    await back(world, dead)
    assert isinstance(await until_over(nodes, replace(drain, prior=declared.result)), AlreadyDone)
    after = await world.node(dead)
    assert not is_out_of_service(after)
    assert given_up_for(after) is None
    assert after["spec"]["unschedulable"] is True


async def test_a_ready_node_is_never_declared_out_of_service_however_long_its_pods_hang(
    world: KubeWorld,
) -> None:
    node = await world.add_node(kubelet=True)
    pod = await world.add_pod(node, annotations={"testbed.faultline.dev/on-delete": "hang"})
    path = path_of("v1", "pods", namespace=world.namespace, name=pod)
    await world.cluster.delete(path)
    nodes = NodeConnector(world.cluster)
    await nodes.apply(world.effect("cordon_node", Target("Node", node)), LEASE)
    ends = (await world.cluster.get(path))["metadata"]["deletionTimestamp"]
    late = NodeConnector(world.cluster, clock=lambda: parse_rfc3339(ends) + timedelta(hours=1))
    for _ in range(3):
        outcome = await late.apply(world.effect("drain_node", Target("Node", node)), LEASE)
        assert isinstance(outcome, Waiting)
        assert pod in outcome.detail
    assert not is_out_of_service(await world.node(node))
