"""A job that is started again prefers nodes that are under no suspicion, and what was written for that is taken out later."""

from __future__ import annotations

from dataclasses import replace

import pytest

from connectors.base import AlreadyDone, Done, NoLease
from connectors.jobs.placement import AVOIDS, avoiding
from connectors.jobs.suspension import resume, suspend
from connectors.jobs.training import TrainingJobs
from connectors.kubernetes.client import Object
from connectors.kubernetes.guarded_patch import GuardedChange
from streams.job_kinds.batch_job import JOB
from streams.job_kinds.pytorch_job import PYTORCH_JOB
from streams.model.run import Target
from tests.connectors.jobs.paths import jobs_at
from tests.connectors.kube_world import KubeWorld
from tests.connectors.objects import effect, made, merged
from tests.connectors.responding import until_over
from tests.testbed import workloads
from tests.testbed.waiting import eventually

TARGET = Target("Job", "train", "team-a")
SUSPEND = effect("suspend_job", TARGET, 1)
RESUME = replace(effect("resume_job", TARGET, 1), key="resume-1")
OWN = {"weight": 1, "preference": {"matchExpressions": [{"key": "site/zone", "operator": "Exists"}]}}
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def job(*terms: Object) -> Object:
    made_job = workloads.indexed_job("train", "team-a", pool="p")
    made_job["metadata"]["uid"] = "uid-train"
    if terms:
        made_job["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": {PREFERRED: list(terms)}}
    return made_job


def preferred(of: Object) -> list[Object]:
    found: list[Object] = of["spec"]["template"]["spec"]["affinity"]["nodeAffinity"].get(PREFERRED, [])
    return found


def started(of: Object, *avoid: str) -> Object:
    return made(of, resume(of, JOB, RESUME, avoid))


def suspended(of: Object) -> Object:
    return made(of, suspend(of, JOB, SUSPEND))


def test_a_job_prefers_other_nodes_beside_its_own_wishes() -> None:
    after = started(suspended(job(OWN)), "gpu-02", "gpu-03")
    own, ours = preferred(after)
    assert own == OWN
    assert [field["values"] for field in ours["preference"]["matchFields"]] == [["gpu-02"], ["gpu-03"]]
    assert after["metadata"]["annotations"][AVOIDS] == "gpu-02,gpu-03"
    assert after["spec"]["suspend"] is False


def test_the_next_start_takes_out_what_the_last_one_wrote() -> None:
    again = merged(started(suspended(job(OWN)), "gpu-02"), {"spec": {"suspend": True}})
    cleared = merged(again, avoiding(again, JOB, ()))
    assert preferred(cleared) == [OWN]
    assert AVOIDS not in cleared["metadata"]["annotations"]
    bare = started(suspended(job()), "gpu-02")
    assert preferred(merged(bare, avoiding(bare, JOB, ()))) == []


def test_without_suspects_nothing_but_the_suspend_field_is_written() -> None:
    decided = resume(suspended(job()), JOB, RESUME)
    assert isinstance(decided, GuardedChange)
    assert decided.patch["spec"] == {"suspend": False}


def test_every_role_of_a_kubeflow_job_avoids_them() -> None:
    patch = avoiding(workloads.pytorch_job("train", "team-a", pool="p"), PYTORCH_JOB, ["gpu-02"])
    roles = patch["spec"]["pytorchReplicaSpecs"]
    assert roles.keys() == {"Master", "Worker"}


async def scheduler_uses_both(world: KubeWorld) -> None:
    """Wait until the scheduler has placed pods on two nodes: it may learn later than we do that one has lost its taints."""
    both = workloads.indexed_job("both", world.namespace, pool=world.namespace, pods=2)
    await world.cluster.create(jobs_at("Job", world.namespace), both)
    await world.all_run(2)
    await world.cluster.delete(jobs_at("Job", world.namespace, "both"), propagation="Background")

    async def gone() -> bool:
        return not await world.pods()

    await eventually(gone, "its pods are gone")


@pytest.mark.cluster
async def test_the_real_scheduler_puts_a_job_elsewhere_while_there_is_room_and_back_when_there_is_none(
    world: KubeWorld,
) -> None:
    for _ in range(2):
        await world.add_node(kubelet=True)
    await scheduler_uses_both(world)
    made_job = workloads.pytorch_job("train", world.namespace, pool=world.namespace, workers=0)
    # For a role of no replicas the operator makes a pod and deletes it, again and again: for a moment it holds the other node.
    del made_job["spec"]["pytorchReplicaSpecs"]["Worker"]
    created = await world.cluster.create(jobs_at("PyTorchJob", world.namespace), made_job)
    target = Target("PyTorchJob", "train", world.namespace, created["metadata"]["uid"])
    (pod,) = await world.all_run(1)
    jobs, first = TrainingJobs(world.cluster), pod["spec"]["nodeName"]
    assert isinstance(await until_over(jobs, world.effect("suspend_job", target)), Done)
    done = await jobs.apply(world.effect("resume_job", target, key="resume-1", avoid=first), NoLease())
    assert isinstance(done, Done)
    assert "may come back" not in done.detail
    (moved,) = await world.all_run(1)
    assert moved["spec"]["nodeName"] != first
    everywhere = ",".join(world.nodes)
    assert isinstance(await until_over(jobs, world.effect("suspend_job", target, key="key-2")), Done)
    again = world.effect("resume_job", target, key="resume-2", avoid=everywhere)
    assert isinstance(await jobs.apply(again, NoLease()), Done)
    await world.all_run(1)


@pytest.mark.cluster
async def test_a_server_that_lets_no_template_change_gets_the_job_started_again_all_the_same(
    world: KubeWorld,
) -> None:
    """A batch Job that has run: servers before 1.36 refuse."""
    first = await world.add_node(kubelet=True)
    made_job = workloads.indexed_job("train", world.namespace, pool=world.namespace, pods=1)
    created = await world.cluster.create(jobs_at("Job", world.namespace), made_job)
    target = Target("Job", "train", world.namespace, created["metadata"]["uid"])
    await world.all_run(1)
    jobs = TrainingJobs(world.cluster)
    assert isinstance(await until_over(jobs, world.effect("suspend_job", target)), Done)
    resume_job = world.effect("resume_job", target, key="resume-1", avoid=first)
    done = await jobs.apply(resume_job, NoLease())
    assert isinstance(done, Done)
    assert f"it may come back to {first}" in done.detail
    assert "immutable" in done.detail
    assert isinstance(await jobs.lookup(resume_job), AlreadyDone)
    await world.all_run(1)
