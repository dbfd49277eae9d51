"""A job that Kueue admits is stopped and started by its Workload, on a real API server with the real Job controller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

import tests.testbed
from connectors.base import AlreadyDone, Blocked, Done, NoLease, Refused, Waiting
from connectors.jobs import kueue_topology
from connectors.jobs.kueue_topology import assigned_nodes
from connectors.jobs.kueue_workload import VERSIONS, holds_quota, is_admitted
from connectors.jobs.suspension import RESUMED, SUSPENDED
from connectors.jobs.training import TrainingJobs
from connectors.kubernetes.annotations import INCIDENT
from connectors.kubernetes.client import Object, path_of
from connectors.kubernetes.nodes import NodeConnector
from streams.job_kinds.known import KNOWN
from streams.model.kube_objects import condition
from streams.model.run import Target
from tests.connectors.jobs.job_case import JobCase
from tests.connectors.jobs.paths import jobs_at
from tests.connectors.kube_world import KubeWorld
from tests.connectors.responding import until_over
from tests.contract.case import Case
from tests.contract.suite import ConnectorContract, EffectContract
from tests.testbed import workloads
from tests.testbed.simulators.kueue import CLUSTER_QUEUE, Kueue, local_queue, queued
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.cluster

CRDS = Path(tests.testbed.__file__).parent / "crds"
LEASE = NoLease()


@pytest.fixture
async def queue(world: KubeWorld) -> AsyncIterator[Kueue]:
    world.real.define(CRDS / "kueue-workload.yaml", CRDS / "kueue-localqueue.yaml")
    queues = path_of(VERSIONS[0], "localqueues", namespace=world.namespace)
    await world.cluster.create(queues, local_queue("team", world.namespace))
    async with Kueue(world.cluster, world.namespace, kinds=("Job", "PyTorchJob")).running() as kueue:
        yield kueue
        for kind in ("Job", "PyTorchJob"):
            path = jobs_at(kind, world.namespace)
            for one in await world.cluster.list_all(path):
                await world.cluster.delete(f"{path}/{one['metadata']['name']}", propagation="Background")


async def submitted(world: KubeWorld, kind: str = "Job", name: str = "train", *, grace_s: int = 1) -> Target:
    """A job of two pods in the queue."""
    pool = world.namespace
    made = (
        workloads.indexed_job(name, pool, pool=pool, pods=2, gpus=4, grace_s=grace_s)
        if kind == "Job"
        else workloads.pytorch_job(name, pool, pool=pool, workers=1, gpus=4, grace_s=grace_s)
    )
    created = await world.cluster.create(jobs_at(kind, pool), queued(made))
    return Target(kind, name, pool, created["metadata"]["uid"])


async def running(world: KubeWorld, kind: str = "Job", *, nodes: int = 2, grace_s: int = 1) -> Target:
    for _ in range(nodes):
        await world.add_node(kubelet=True)
    target = await submitted(world, kind, grace_s=grace_s)
    await world.all_run(2)
    return target


def workloads_at(world: KubeWorld) -> str:
    return path_of(VERSIONS[0], "workloads", namespace=world.namespace)


async def workload(world: KubeWorld, job: str = "train") -> Object:
    listed = await world.cluster.list_all(workloads_at(world))
    return next(one for one in listed if one["metadata"]["ownerReferences"][0]["name"] == job)


async def patched(world: KubeWorld, body: Object, job: str = "train") -> None:
    """Change the Workload as a person would: whatever its version."""
    name = (await workload(world, job))["metadata"]["name"]
    await world.cluster.patch(f"{workloads_at(world)}/{name}", body)


async def until(world: KubeWorld, kind: str, status: str, job: str = "train") -> Object:
    """The condition of the Workload, once it has this status."""

    async def told() -> Object | None:
        listed = await world.cluster.list_all(workloads_at(world))
        of_job = [one for one in listed if one["metadata"]["ownerReferences"][0]["name"] == job]
        said = condition(of_job[0], kind) if of_job else {}
        return dict(said) if said.get("status") == status else None

    return await eventually(told, f"the Workload of {job} is {kind}={status}")


# What the simulator does, as the project documents it


@pytest.mark.nightly
async def test_simulated_a_job_is_admitted_and_whoever_suspends_it_is_reverted(
    world: KubeWorld, queue: Kueue
) -> None:
    """Admission; Workload: "Kueue suspends and unsuspends the job"."""
    target = await running(world)
    path = jobs_at("Job", world.namespace, target.name)
    assert is_admitted(await workload(world))
    version = (await world.cluster.patch(path, {"spec": {"suspend": True}}))["metadata"]["generation"]

    async def reverted() -> bool:
        job = await world.cluster.get(path)
        return job["spec"]["suspend"] is False and job["metadata"]["generation"] > version

    await eventually(reverted, "Kueue starts it again")


@pytest.mark.nightly
async def test_simulated_deactivation_evicts_takes_the_quota_back_and_can_be_reverted(
    world: KubeWorld, queue: Kueue
) -> None:
    """Workload, "active"; API reference: Evicted (Deactivated), Requeued (Reactivated)."""
    await running(world)
    await patched(world, {"spec": {"active": False}})
    assert (await until(world, "Evicted", "True"))["reason"] == "Deactivated"
    assert (await until(world, "Admitted", "False"))["reason"] == "NoReservation"
    assert not holds_quota(await workload(world))
    assert (await world.cluster.get(jobs_at("Job", world.namespace, "train")))["spec"]["suspend"] is True
    await patched(world, {"spec": {"active": True}})
    assert (await until(world, "Requeued", "True"))["reason"] == "Reactivated"
    await until(world, "Admitted", "True")
    await until(world, "Evicted", "False")
    await world.all_run(2)


@pytest.mark.nightly
async def test_simulated_one_beyond_the_quota_waits_until_another_has_ended(
    world: KubeWorld, queue: Kueue
) -> None:
    """Admission: a Workload is admitted when it fits the quota."""
    queue.quota = 2
    await running(world)
    await submitted(world, name="later")
    said = await until(world, "QuotaReserved", "False", "later")
    assert "2 more needed" in said["message"]
    await world.cluster.delete(jobs_at("Job", world.namespace, "train"), propagation="Background")
    await until(world, "Admitted", "True", "later")


# What the lever does


@pytest.mark.parametrize("kind", ["Job", pytest.param("PyTorchJob", marks=pytest.mark.nightly)])
async def test_a_job_leaves_its_closed_node_through_its_queue_and_runs_elsewhere(
    world: KubeWorld, queue: Kueue, kind: str
) -> None:
    target = await running(world, kind, nodes=3)
    bad = (await world.pods())[0]["spec"]["nodeName"]
    closed = await NodeConnector(world.cluster).apply(world.effect("cordon_node", Target("Node", bad)), LEASE)
    assert isinstance(closed, Done)
    jobs, stop = TrainingJobs(world.cluster), world.effect("suspend_job", target)
    stopped = await until_over(jobs, stop)
    assert isinstance(stopped, Done), stopped
    assert not [pod for pod in await world.pods() if not pod["metadata"].get("deletionTimestamp")]
    assert not holds_quota(await workload(world)), "its quota is free for others"
    assert isinstance(await jobs.lookup(stop), AlreadyDone)
    started = await until_over(jobs, world.effect("resume_job", target, key="resume-1", avoid="node-x"))
    assert isinstance(started, Done), started
    assert "may come back to node-x" in started.detail
    verified = await until_over(jobs, world.effect("verify_job", target))
    assert isinstance(verified, Done), verified
    assert verified.result["pods"] == 2
    assert bad not in {pod["spec"]["nodeName"] for pod in await world.pods()}
    by_us = [
        one
        for one in world.writes(namespace=world.namespace, verb="patch")
        if one.resource == KNOWN[kind].plural
    ]
    assert "faultline.dev" not in str(
        (await world.cluster.get(jobs_at(kind, world.namespace, "train")))["metadata"]
    )
    assert by_us, "Kueue has suspended and resumed it"


async def test_a_job_that_waits_for_quota_is_told_with_its_queue_and_has_not_failed(
    world: KubeWorld, queue: Kueue
) -> None:
    queue.quota = 2
    target = await running(world)
    jobs = TrainingJobs(world.cluster)
    assert isinstance(await until_over(jobs, world.effect("suspend_job", target)), Done)
    queue.quota = 0
    assert isinstance(await until_over(jobs, world.effect("resume_job", target, key="resume-1")), Done)
    verify = world.effect("verify_job", target)

    async def told() -> Waiting | None:
        outcome = await jobs.apply(verify, LEASE)
        known = (
            isinstance(outcome, Waiting) and outcome.queued and "insufficient unused quota" in outcome.detail
        )
        return outcome if known else None  # type: ignore[return-value]

    waiting = await eventually(told, "it is told to wait for its quota")
    assert f"waits for quota in ClusterQueue {CLUSTER_QUEUE} (queue team): couldn't assign" in waiting.detail
    second = await jobs.apply(replace(world.effect("suspend_job", target, key="key-2")), LEASE)
    assert isinstance(second, Refused), second
    assert second.moot, "nothing of it runs: there is nothing to stop"
    assert isinstance(
        await jobs.apply(world.effect("resume_job", target, key="resume-2"), LEASE), AlreadyDone
    )
    queue.quota = 2
    assert isinstance(await until_over(jobs, verify), Done)


async def test_what_kueue_or_a_person_deactivated_is_told_and_left_to_them(
    world: KubeWorld, queue: Kueue
) -> None:
    target = await running(world)
    jobs = TrainingJobs(world.cluster)
    await patched(world, {"spec": {"active": False}})
    await until(world, "Admitted", "False")
    for action in ("suspend_job", "resume_job", "verify_job"):
        outcome = await jobs.apply(world.effect(action, target), LEASE)
        assert isinstance(outcome, Blocked), outcome
        assert "not by Faultline" in outcome.reason
    await patched(world, {"spec": {"active": True}})
    await until(world, "Admitted", "True")
    queue.deactivates["train"] = "exceeding the maximum number of re-queuing retries"
    await until(world, "Admitted", "False")
    blocked = await jobs.apply(world.effect("suspend_job", target), LEASE)
    assert isinstance(blocked, Blocked)
    assert blocked.by == "Kueue"
    refused = await jobs.apply(world.effect("verify_job", target), LEASE)
    assert isinstance(refused, Refused)
    assert "exceeding the maximum number of re-queuing retries" in refused.reason
    assert not [
        one for one in world.writes(namespace=world.namespace, verb="patch") if "faultline.dev" in str(one)
    ]


@pytest.mark.nightly
async def test_a_pod_stuck_on_a_dead_node_is_handed_to_the_drain(world: KubeWorld, queue: Kueue) -> None:
    target = await running(world, nodes=3)
    dead = (await world.pods())[0]["spec"]["nodeName"]
    await world.silenced(dead)
    nodes, jobs = NodeConnector(world.cluster), TrainingJobs(world.cluster)
    assert isinstance(await nodes.apply(world.effect("cordon_node", Target("Node", dead)), LEASE), Done)
    stopped = await until_over(jobs, world.effect("suspend_job", target))
    assert isinstance(stopped, Done), stopped
    assert stopped.result["nodes"] == (dead,)
    resume = world.effect("resume_job", target, key="resume-1")
    early = await jobs.apply(resume, LEASE)
    assert isinstance(early, Waiting), "activated now it would keep the quota of its former admission"
    assert isinstance(await until_over(nodes, world.effect("drain_node", Target("Node", dead))), Done)
    assert isinstance(await until_over(jobs, resume), Done)
    assert isinstance(await until_over(jobs, world.effect("verify_job", target)), Done)


# Where Kueue assigns the nodes


async def spread(world: KubeWorld, queue: Kueue, *, replaces: bool = True) -> tuple[Target, str, set[str]]:
    """A job of two pods on a node each, one of which is closed, and the uids of its pods."""
    queue.replaces = replaces
    for _ in range(3):
        await world.add_node(kubelet=True)
    made = workloads.indexed_job("train", world.namespace, pool=world.namespace, pods=2, gpus=8, grace_s=1)
    created = await world.cluster.create(jobs_at("Job", world.namespace), queued(made))
    pods = await world.all_run(2)

    async def assigned() -> bool:
        return len(assigned_nodes(await workload(world))) == 2

    await eventually(assigned, "Kueue has assigned two nodes")
    bad = str(pods[0]["spec"]["nodeName"])
    closed = await NodeConnector(world.cluster).apply(world.effect("cordon_node", Target("Node", bad)), LEASE)
    assert isinstance(closed, Done)
    target = Target("Job", "train", world.namespace, created["metadata"]["uid"])
    return target, bad, {pod["metadata"]["uid"] for pod in pods}


def evictions(world: KubeWorld) -> int:
    found = world.writes(namespace=world.namespace, verb="create", code=201)
    return len([one for one in found if one.subresource == "eviction"])


async def test_kueue_replaces_the_closed_node_and_the_rest_of_the_job_stays(
    world: KubeWorld, queue: Kueue
) -> None:
    target, bad, before = await spread(world, queue)
    jobs, stop = TrainingJobs(world.cluster), world.effect("suspend_job", target)
    stopped = await until_over(jobs, stop)
    assert isinstance(stopped, Done), stopped
    assert stopped.result["node"] == bad
    assert "the rest of it stays" in stopped.detail
    assert isinstance(await jobs.lookup(stop), AlreadyDone)
    assert isinstance(
        await jobs.apply(world.effect("resume_job", target, key="resume-1"), LEASE), AlreadyDone
    )
    assert isinstance(await until_over(jobs, world.effect("verify_job", target)), Done)
    assert len(before & {pod["metadata"]["uid"] for pod in await world.all_run(2)}) == 1
    assert evictions(world) == 1
    assert (await workload(world))["spec"]["active"] is True
    assert isinstance(await jobs.undo(stop, LEASE), Done)
    assert isinstance(await jobs.undo(stop, LEASE), AlreadyDone)


@pytest.mark.nightly
async def test_a_node_that_kueue_does_not_replace_in_time_sends_the_job_back_to_its_queue(
    world: KubeWorld, queue: Kueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kueue_topology, "LONGEST_S", 3.0)
    target, bad, _ = await spread(world, queue, replaces=False)
    jobs = TrainingJobs(world.cluster)
    stopped = await until_over(jobs, world.effect("suspend_job", target))
    assert isinstance(stopped, Done), stopped
    assert (await workload(world))["spec"]["active"] is False
    queue.replaces = True
    assert isinstance(await until_over(jobs, world.effect("resume_job", target, key="resume-1")), Done)
    assert isinstance(await until_over(jobs, world.effect("verify_job", target)), Done)
    assert bad not in {pod["spec"]["nodeName"] for pod in await world.pods()}


@pytest.mark.nightly
async def test_simulated_a_second_node_that_fails_evicts_the_workload(world: KubeWorld, queue: Kueue) -> None:
    """Topology Aware Scheduling: NodeFailures."""
    await spread(world, queue)
    for pod in await world.pods():
        await world.patch_node(pod["spec"]["nodeName"], {"spec": {"unschedulable": True}})
        await world.cluster.evict(world.namespace, pod["metadata"]["name"])
    assert (await until(world, "Evicted", "True"))["reason"] == "NodeFailures"


class QueueCase(JobCase):
    """An effect on one job of two pods that Kueue admits."""

    async def snapshot(self) -> object:
        one = await workload(self.world)
        return one["spec"], one["metadata"].get("annotations")

    async def foreign_change(self) -> None:
        active = (await workload(self.world))["spec"].get("active") is not False
        await patched(self.world, {"spec": {"active": not active}})

    async def marks(self, mark: str) -> list[str | None]:
        path = f"{workloads_at(self.world)}/{(await workload(self.world))['metadata']['name']}"
        return [body["metadata"]["annotations"].get(mark) for body in self.world.taken("PATCH", path)]


class DeactivateCase(QueueCase):
    action = "suspend_job"

    async def changes(self) -> int:
        keys = await self.marks(SUSPENDED)
        return keys.count("key-1") - keys.count(None)


class ActivateCase(QueueCase):
    action = "resume_job"

    async def changes(self) -> int:
        return (await self.marks(RESUMED)).count("key-1")


@pytest.mark.nightly
class TestDeactivate(ConnectorContract):
    @pytest.fixture
    async def case(self, world: KubeWorld, queue: Kueue) -> Case:
        return DeactivateCase(world, await running(world, nodes=1))


@pytest.mark.nightly
class TestActivate(EffectContract):
    @pytest.fixture
    async def case(self, world: KubeWorld, queue: Kueue) -> Case:
        target = await submitted(world)
        await until(world, "Admitted", "True")
        marks = {"annotations": {INCIDENT: "inc-1", SUSPENDED: "key-0"}}
        await patched(world, {"metadata": marks, "spec": {"active": False}})
        await until(world, "Admitted", "False")
        return ActivateCase(world, target)
