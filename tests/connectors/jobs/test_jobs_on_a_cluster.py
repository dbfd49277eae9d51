"""A training job moves away from a closed node, through the real controllers of its kind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tests.testbed
from connectors.base import Absent, AlreadyDone, Done, NoLease, Refused, Waiting
from connectors.jobs.training import TrainingJobs
from connectors.kubernetes.client import Cluster, Object
from connectors.kubernetes.nodes import NodeConnector
from streams.job_kinds.known import KNOWN
from streams.model.run import Target
from tests.connectors.jobs.paths import jobs_at
from tests.connectors.kube_world import KubeWorld
from tests.connectors.responding import until_over
from tests.testbed import workloads
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.cluster

LEASE = NoLease()
ALIKE = ("TFJob", "XGBoostJob", "PaddleJob")
"""Kinds of the training operator that share their controller's frame with PyTorchJob: they get the whole story at night."""
every_kind = pytest.mark.parametrize(
    "kind", ["Job", "PyTorchJob", *(pytest.param(kind, marks=pytest.mark.nightly) for kind in ALIKE)]
)


async def running_job(world: KubeWorld, kind: str, *, nodes: int) -> tuple[Target, list[Object]]:
    """A job of four pods of a whole node each, running on four of `nodes` nodes."""
    for _ in range(nodes):
        await world.add_node(kubelet=True)
    build = workloads.indexed_job if kind == "Job" else partial(workloads.kubeflow_job, kind)
    job = build("train", world.namespace, pool=world.namespace)
    made = await world.cluster.create(jobs_at(kind, world.namespace, version=job["apiVersion"]), job)
    pods = await world.all_run(4)
    return Target(kind, "train", world.namespace, made["metadata"]["uid"]), pods


async def leave_the_bad_node(world: KubeWorld, kind: str) -> None:
    """Close a node under a job of four pods, move the job, and open the node again."""
    target, pods = await running_job(world, kind, nodes=5)
    bad, before = pods[1]["spec"]["nodeName"], {pod["metadata"]["uid"] for pod in pods}
    nodes, jobs = NodeConnector(world.cluster), TrainingJobs(world.cluster)
    cordon = world.effect("cordon_node", Target("Node", bad))
    assert isinstance(await nodes.apply(cordon, LEASE), Done)
    verify = world.effect("verify_job", target)
    early = await jobs.apply(verify, LEASE)
    assert isinstance(early, Waiting)
    assert f"{bad} (cordoned by Faultline)" in early.detail

    suspend = world.effect("suspend_job", target)
    assert isinstance(await until_over(jobs, suspend), Done)
    assert await world.pods() == []

    resume = world.effect("resume_job", target, key="resume-1")
    assert isinstance(await until_over(jobs, resume), Done)
    whole = await until_over(jobs, verify)
    assert isinstance(await jobs.lookup(verify), AlreadyDone)
    assert isinstance(whole, Done)
    placements = whole.result["placements"]
    assert isinstance(placements, tuple)
    assert len(placements) == 4
    assert not any(str(placement).endswith(f"={bad}") for placement in placements)
    assert before.isdisjoint(pod["metadata"]["uid"] for pod in await world.pods())
    assert isinstance(await nodes.undo(cordon, LEASE), Done)
    assert "unschedulable" not in (await world.node(bad))["spec"]


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob", *ALIKE])
async def test_a_job_leaves_its_bad_node_and_is_whole_elsewhere(world: KubeWorld, kind: str) -> None:
    await leave_the_bad_node(world, kind)


@every_kind
async def test_a_second_incident_moves_the_job_once_more(world: KubeWorld, kind: str) -> None:
    target, _ = await running_job(world, kind, nodes=4)
    jobs = TrainingJobs(world.cluster)
    for n in (1, 2):
        assert isinstance(await until_over(jobs, world.effect("suspend_job", target, key=f"key-{n}")), Done)
        assert isinstance(await until_over(jobs, world.effect("resume_job", target, key=f"resume-{n}")), Done)
        assert isinstance(await until_over(jobs, world.effect("verify_job", target)), Done)
    taken = world.writes(namespace=world.namespace, name="train", verb="patch", code=200)
    assert len(taken) == 4


@every_kind
async def test_a_job_without_room_to_go_waits_with_the_schedulers_words(world: KubeWorld, kind: str) -> None:
    target, pods = await running_job(world, kind, nodes=4)
    jobs = TrainingJobs(world.cluster)
    cordon = world.effect("cordon_node", Target("Node", pods[0]["spec"]["nodeName"]))
    await NodeConnector(world.cluster).apply(cordon, LEASE)
    await until_over(jobs, world.effect("suspend_job", target))
    await until_over(jobs, world.effect("resume_job", target, key="resume-1"))

    async def told() -> bool:
        outcome = await jobs.apply(world.effect("verify_job", target), LEASE)
        return isinstance(outcome, Waiting) and "3 of 4" in outcome.detail and "available" in outcome.detail

    await eventually(told, "it says that three of four have a place and why the fourth has none")


@every_kind
async def test_a_job_suspends_while_a_pod_hangs_and_is_not_done_before_it_is_gone(
    world: KubeWorld, kind: str
) -> None:
    target, pods = await running_job(world, kind, nodes=4)
    name = pods[0]["metadata"]["name"]
    world.real.annotate("pod", name, "on-delete=hang", namespace=world.namespace)
    jobs, suspend = TrainingJobs(world.cluster), world.effect("suspend_job", target)

    async def only_it_is_left() -> bool:
        outcome = await jobs.apply(suspend, LEASE)
        assert isinstance(outcome, Waiting)
        return outcome.detail == f"1 pods terminating: {name}"

    await eventually(only_it_is_left, "all but the hanging pod are gone")
    hanging = await jobs.lookup(suspend)
    assert isinstance(hanging, Waiting)
    world.real.annotate("pod", name, "on-delete-", namespace=world.namespace)
    assert isinstance(await until_over(jobs, replace(suspend, prior=hanging.result)), Done)


class SlowPatch(Cluster):
    """Hears of a change so late that everybody else has acted on it already."""

    all_is_done: Callable[[], Awaitable[bool]]

    async def patch(self, path: str, body: Object | list[Object], *how: Any, **more: Any) -> Object:
        changed = await super().patch(path, body, *how, **more)
        await eventually(self.all_is_done, "everybody has acted on the change")
        return changed


@every_kind
async def test_a_suspend_that_finds_the_pods_gone_at_once_is_its_own_doing_all_the_same(
    world: KubeWorld, kind: str
) -> None:
    target, _ = await running_job(world, kind, nodes=4)
    field, slow = KNOWN[kind], world.through_proxy(timeout_s=60)
    slow.__class__ = SlowPatch
    assert isinstance(slow, SlowPatch)

    async def no_pod_is_left() -> bool:
        job = await world.cluster.get(jobs_at(kind, world.namespace, "train"))
        return field.is_suspension_seen(job) and not await world.pods()

    slow.all_is_done = no_pod_is_left
    assert isinstance(await TrainingJobs(slow).apply(world.effect("suspend_job", target), LEASE), Done)
    await slow.close()


@every_kind
async def test_a_job_that_is_gone_or_another_one_is_refused(world: KubeWorld, kind: str) -> None:
    jobs = TrainingJobs(world.cluster)
    missing = Target(kind, "train", world.namespace)
    gone = await jobs.apply(world.effect("suspend_job", missing), LEASE)
    assert isinstance(gone, Refused)
    assert "there is no" in gone.reason
    assert isinstance(await jobs.lookup(world.effect("verify_job", missing)), Absent)
    target, _ = await running_job(world, kind, nodes=4)
    other = replace(target, uid="uid-of-an-earlier-one")
    assert isinstance(await jobs.apply(world.effect("suspend_job", other), LEASE), Refused)
    assert world.writes(namespace=world.namespace, name="train", verb="patch") == []


async def test_a_version_without_the_suspend_field_is_refused_and_nothing_is_written(
    world: KubeWorld,
) -> None:
    world.real.define(Path(tests.testbed.__file__).parent / "crds" / "jaxjob_without_suspend.yaml")
    made: Object = {"metadata": {"name": "train"}, "spec": {"jaxReplicaSpecs": {"Worker": {"replicas": 2}}}}
    made |= {"apiVersion": "kubeflow.org/v1", "kind": "JAXJob"}
    before = await world.cluster.create(jobs_at("JAXJob", world.namespace), made)
    target = Target("JAXJob", "train", world.namespace)
    outcome = await TrainingJobs(world.cluster).apply(world.effect("suspend_job", target), LEASE)
    assert isinstance(outcome, Refused)
    assert 'unknown field "spec.runPolicy.suspend"' in outcome.reason
    assert await world.cluster.get(jobs_at("JAXJob", world.namespace, "train")) == before


async def test_a_kind_without_a_lever_is_refused_by_name(world: KubeWorld) -> None:
    target = Target("FlinkDeployment", "train", world.namespace)
    outcome = await TrainingJobs(world.cluster).apply(world.effect("suspend_job", target), LEASE)
    assert isinstance(outcome, Refused)
    assert "FlinkDeployment" in outcome.reason
