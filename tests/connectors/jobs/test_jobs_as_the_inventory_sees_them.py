"""What the real Job controller replaces is seen as healed, by the facts of the inventory alone; LeaderWorkerSets likewise."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import tests.testbed
from connectors.base import Done, NoLease, Refused
from connectors.jobs.training import TrainingJobs
from connectors.kubernetes.client import path_of
from runbooks.engine.job_condition import JobCondition, condition_of, has_healed
from runbooks.engine.job_list import listed_jobs
from streams.job_kinds.known import KNOWN
from streams.model.clock import utc_now
from streams.model.run import Target
from tests.connectors.jobs.paths import jobs_at
from tests.connectors.jobs.simulated import simulating
from tests.connectors.kube_world import KubeWorld
from tests.connectors.responding import until_over
from tests.connectors.watching import viewing
from tests.testbed import workloads
from tests.testbed.simulators.app_wrappers import app_wrapper
from tests.testbed.simulators.lws import LeaderWorkerSets, leader_worker_set
from tests.testbed.simulators.train_jobs import train_job
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.cluster

LWS = "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet"
CHAIN = ("JobSet", "TrainJob", "AppWrapper")
FORGIVING = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}


async def test_a_job_whose_pod_fails_is_seen_to_heal_by_itself(world: KubeWorld) -> None:
    for _ in range(3):
        await world.add_node(kubelet=True)
    job = workloads.indexed_job("train", world.namespace, pool=world.namespace, pods=2)
    job["spec"]["podFailurePolicy"] = FORGIVING
    await world.cluster.create(jobs_at("Job", world.namespace), job)
    pods = await world.all_run(2)
    key, bad = f"Job/{world.namespace}/train", pods[0]["spec"]["nodeName"]
    async with viewing(world.real, ("v1/Node", "v1/Pod", "batch/v1/Job")) as view:

        async def heals() -> bool:
            ready = [pod for pod in view.pods_of(key) if pod.ready]
            return len(ready) == 2 and condition_of(key, view) is JobCondition.HEALS

        await eventually(heals, "the job is known and heals itself")
        fault_at = max(pod.scheduled_at for pod in view.pods_of(key) if pod.scheduled_at is not None)

        async def a_second_later() -> bool:  # the API server tells times in whole seconds
            return utc_now() > fault_at + timedelta(seconds=1)

        await eventually(a_second_later, "what is scheduled now is told apart from what was before")
        assert not has_healed(key, view, fault_at, bad)
        (listed,) = [one for one in listed_jobs(view) if one.namespace == world.namespace]
        assert listed.can.startswith("left to its own controller for 180 s; then suspended")
        await world.patch_node(bad, {"spec": {"unschedulable": True}})
        world.real.annotate("pod", pods[0]["metadata"]["name"], "outcome=crash", namespace=world.namespace)

        async def healed() -> bool:
            return has_healed(key, view, fault_at, bad)

        await eventually(healed, "its controller has replaced the pod elsewhere")
    await world.cluster.delete(jobs_at("Job", world.namespace, "train"), propagation="Background")


async def test_the_pods_of_a_leader_worker_set_are_known_to_be_its_own(world: KubeWorld) -> None:
    world.real.define(Path(tests.testbed.__file__).parent / "crds" / "leaderworkerset.yaml")
    for _ in range(2):
        await world.add_node(kubelet=True)
    made = leader_worker_set("moe", world.namespace, pool=world.namespace, groups=2, gpus=4)
    await world.cluster.create(jobs_at("LeaderWorkerSet", world.namespace), made)
    key = f"LeaderWorkerSet/{world.namespace}/moe"
    async with (
        LeaderWorkerSets.running(world.cluster, world.namespace),
        viewing(world.real, ("v1/Node", "v1/Pod", LWS)) as view,
    ):

        async def known() -> bool:
            return len([pod for pod in view.pods_of(key) if pod.ready]) == 4 and key in view.jobs

        await eventually(known, "all four pods belong to the set")
        assert condition_of(key, view) is JobCondition.STANDS
        assert view.jobs[key].lever == "evict"
        (listed,) = [one for one in listed_jobs(view) if one.namespace == world.namespace]
        assert (listed.kind, listed.gpus, listed.state) == ("LeaderWorkerSet", 16, "running")
        await world.cluster.delete(
            jobs_at("LeaderWorkerSet", world.namespace, "moe"), propagation="Background"
        )

        async def gone() -> bool:
            sets = await world.cluster.list_all(path_of("apps/v1", "statefulsets", namespace=world.namespace))
            return not sets

        await eventually(gone, "its sets are gone")


async def test_of_many_owners_the_top_most_is_moved_and_no_other(world: KubeWorld) -> None:
    """A Job of a JobSet of a TrainJob of an AppWrapper, each made by its own controller."""
    for _ in range(3):
        await world.add_node(kubelet=True)
    inside = train_job("train", world.namespace, pool=world.namespace, pods=2)
    wrapper = app_wrapper("wrap", world.namespace, pool=world.namespace, pods=2, inside=inside)
    kinds = ("v1/Node", "v1/Pod", *(KNOWN[name].watched_as[0] for name in ("Job", *CHAIN)))
    key, jobs = f"AppWrapper/{world.namespace}/wrap", TrainingJobs(world.cluster)
    async with (
        simulating("TrainJob", world),
        simulating("AppWrapper", world),
        viewing(world.real, kinds) as view,
    ):
        made = await world.cluster.create(jobs_at("AppWrapper", world.namespace), wrapper)
        pods = await world.all_run(2)

        async def known() -> bool:
            ranks = sorted(pod.rank or 0 for pod in view.pods_of(key) if pod.ready)
            return ranks == [0, 8] and key in view.jobs

        await eventually(known, "both pods are the AppWrapper's, with their ranks")
        assert [job for job in view.jobs if world.namespace in job] == [key]
        assert condition_of(key, view) is JobCondition.HEALS
        for kind, name in (("Job", "train-node-0"), ("JobSet", "train"), ("TrainJob", "train")):
            refused = await jobs.apply(
                world.effect("suspend_job", Target(kind, name, world.namespace)), NoLease()
            )
            assert isinstance(refused, Refused)
            assert "act on the parent" in refused.reason
        target = Target("AppWrapper", "wrap", world.namespace, made["metadata"]["uid"])
        await world.patch_node(str(pods[0]["spec"]["nodeName"]), {"spec": {"unschedulable": True}})
        assert isinstance(await until_over(jobs, world.effect("suspend_job", target)), Done)
        assert await world.pods() == []
        resumed = await until_over(jobs, world.effect("resume_job", target, key="resume-1"))
        assert isinstance(resumed, Done)
        back = await until_over(jobs, world.effect("verify_job", target))
        assert isinstance(back, Done), back
        assert pods[0]["spec"]["nodeName"] not in {pod["spec"]["nodeName"] for pod in await world.pods()}
