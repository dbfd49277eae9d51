"""A LeaderWorkerSet leaves its closed node by the eviction of one pod per group, on a real API server with real StatefulSets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator

import pytest

from connectors.base import AlreadyDone, Blocked, Done, NoLease, Refused
from connectors.jobs.evict_lever import EVICTED
from connectors.jobs.suspension import SUSPENDED
from connectors.jobs.training import TrainingJobs
from connectors.kubernetes.client import Object, path_of
from connectors.kubernetes.nodes import NodeConnector
from streams.job_kinds.leader_worker_set import GROUP, NAME
from streams.model.run import Target
from tests.connectors.jobs.job_case import JobCase
from tests.connectors.jobs.paths import jobs_at
from tests.connectors.kube_world import KubeWorld
from tests.connectors.responding import until_over
from tests.contract.case import Case
from tests.contract.suite import EffectContract
from tests.testbed import workloads
from tests.testbed.definitions import LEADER_WORKER_SETS
from tests.testbed.simulators.lws import LeaderWorkerSets, is_known, leader_worker_set
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.cluster

LEASE = NoLease()
KIND = "LeaderWorkerSet"


@pytest.fixture
async def lws_world(world: KubeWorld) -> AsyncIterator[KubeWorld]:
    world.real.define(LEADER_WORKER_SETS)
    async with LeaderWorkerSets.running(world.cluster, world.namespace):
        yield world
        await world.cluster.delete(jobs_at(KIND, world.namespace, "moe"), propagation="Background")


async def running_set(
    world: KubeWorld, *, nodes: int, gpus: int = 8, **how: object
) -> tuple[Target, list[Object]]:
    for _ in range(nodes):
        await world.add_node(kubelet=True)
    made = leader_worker_set("moe", world.namespace, pool=world.namespace, gpus=gpus, **how)  # type: ignore[arg-type]
    created = await world.cluster.create(jobs_at(KIND, world.namespace), made)
    groups, size = made["spec"]["replicas"], made["spec"]["leaderWorkerTemplate"]["size"]
    pods = await whole(world, groups * size)
    return Target(KIND, "moe", world.namespace, created["metadata"]["uid"]), pods


async def whole(world: KubeWorld, count: int) -> list[Object]:
    """All pods, once all run and their controller knows them."""

    async def labelled() -> list[Object] | None:
        pods = await world.pods()
        fine = [
            pod
            for pod in pods
            if pod["status"].get("phase") == "Running"
            and not pod["metadata"].get("deletionTimestamp")
            and is_known(pod)
        ]
        return pods if len(fine) == len(pods) == count else None

    return await eventually(labelled, f"{count} pods of groups run")


def by_group(pods: list[Object]) -> dict[str, set[str]]:
    found = defaultdict[str, set[str]](set)
    for pod in pods:
        found[pod["metadata"]["labels"][GROUP]].add(pod["metadata"]["uid"])
    return found


def evictions(world: KubeWorld) -> int:
    """Evictions that the server granted, by its audit log."""
    found = world.writes(namespace=world.namespace, verb="create", code=201)
    return len([one for one in found if one.subresource == "eviction"])


async def close(world: KubeWorld, node: str) -> None:
    cordoned = await NodeConnector(world.cluster).apply(
        world.effect("cordon_node", Target("Node", node)), LEASE
    )
    assert isinstance(cordoned, Done)


# What the simulator does, as the project documents it


async def test_simulated_a_lost_worker_makes_its_whole_group_anew_and_no_other(lws_world: KubeWorld) -> None:
    """Failure Handling: RecreateGroupOnPodRestart, the default."""
    _, pods = await running_set(lws_world, nodes=4)
    before = by_group(pods)
    worker = next(pod for pod in pods if pod["metadata"]["name"] == "moe-0-1")
    await lws_world.cluster.delete(
        path_of("v1", "pods", namespace=lws_world.namespace, name="moe-0-1"), uid=worker["metadata"]["uid"]
    )

    async def anew() -> bool:
        now = by_group(await whole(lws_world, 4))
        return now["0"].isdisjoint(before["0"]) and now["1"] == before["1"]

    await eventually(anew, "group 0 is made anew, group 1 is as it was")


async def test_simulated_with_the_policy_none_only_the_lost_worker_is_replaced(lws_world: KubeWorld) -> None:
    """Failure Handling: None."""
    _, pods = await running_set(lws_world, nodes=4, policy="None")
    before = by_group(pods)
    await lws_world.cluster.delete(path_of("v1", "pods", namespace=lws_world.namespace, name="moe-0-1"))

    async def replaced() -> bool:
        now = by_group(await whole(lws_world, 4))
        return len(now["0"] & before["0"]) == 1 and now["1"] == before["1"]

    await eventually(replaced, "one pod of group 0 is another, the rest is as it was")


# What the lever does


async def test_one_pod_of_the_group_is_evicted_and_the_group_is_whole_elsewhere(lws_world: KubeWorld) -> None:
    target, pods = await running_set(lws_world, nodes=3, gpus=4, size=2)
    before = by_group(pods)
    bad = next(pod for pod in pods if pod["metadata"]["name"] == "moe-0-1")["spec"]["nodeName"]
    there = [pod for pod in pods if pod["spec"]["nodeName"] == bad]
    hit = {pod["metadata"]["labels"][GROUP] for pod in there}
    await close(lws_world, bad)
    jobs = TrainingJobs(lws_world.cluster)
    stop = lws_world.effect("suspend_job", target)
    stopped = await until_over(jobs, stop)
    assert isinstance(stopped, Done), stopped
    assert stopped.result["evicted"] == len(hit)
    assert not [pod for pod in await lws_world.pods() if pod["spec"].get("nodeName") == bad]
    started = await jobs.apply(lws_world.effect("resume_job", target, key="resume-1"), LEASE)
    assert isinstance(started, AlreadyDone)
    assert "makes evicted pods anew" in started.detail
    verified = await until_over(jobs, lws_world.effect("verify_job", target))
    assert isinstance(verified, Done), verified
    assert verified.result["pods"] == 4

    async def anew() -> bool:
        after = by_group(await whole(lws_world, 4))
        return all(
            after[group].isdisjoint(uids) if group in hit else after[group] == uids
            for group, uids in before.items()
        )

    # The StatefulSet may have replaced the evicted pod before its group is made anew: for that moment all run, too.
    await eventually(anew, "each group that was hit is made anew, and no other")
    assert evictions(lws_world) == len(hit), "one pod of each group that was hit"


async def test_two_pods_of_one_group_on_the_closed_node_are_one_eviction(lws_world: KubeWorld) -> None:
    first = await lws_world.add_node(kubelet=True)
    target, pods = await running_set(lws_world, nodes=0, gpus=4, groups=1)
    assert {pod["spec"]["nodeName"] for pod in pods} == {first}
    await lws_world.add_node(kubelet=True)
    await close(lws_world, first)
    jobs, stop = TrainingJobs(lws_world.cluster), lws_world.effect("suspend_job", target)
    stopped = await until_over(jobs, stop)
    assert isinstance(stopped, Done), stopped
    assert isinstance(await until_over(jobs, lws_world.effect("verify_job", target)), Done)
    assert evictions(lws_world) == 1
    assert isinstance(await jobs.lookup(stop), AlreadyDone)


async def test_with_the_policy_none_every_pod_on_the_closed_node_is_evicted(lws_world: KubeWorld) -> None:
    first = await lws_world.add_node(kubelet=True)
    target, _ = await running_set(lws_world, nodes=0, gpus=2, groups=1, size=3, policy="None")
    await lws_world.add_node(kubelet=True)
    await close(lws_world, first)
    jobs = TrainingJobs(lws_world.cluster)
    assert isinstance(await until_over(jobs, lws_world.effect("suspend_job", target)), Done)
    assert isinstance(await until_over(jobs, lws_world.effect("verify_job", target)), Done)
    assert evictions(lws_world) == 3


async def test_a_node_that_is_closed_for_another_incident_is_none_of_its_business(
    lws_world: KubeWorld,
) -> None:
    target, pods = await running_set(lws_world, nodes=4)
    await close(lws_world, pods[0]["spec"]["nodeName"])
    jobs = TrainingJobs(lws_world.cluster)
    outcome = await jobs.apply(lws_world.effect("suspend_job", target, key="key-2"), LEASE)
    assert isinstance(outcome, AlreadyDone)
    assert "no pod of" in outcome.detail
    assert evictions(lws_world) == 0


async def test_a_budget_is_respected_and_named(lws_world: KubeWorld) -> None:
    target, pods = await running_set(lws_world, nodes=4)
    budget = workloads.disruption_budget(
        "keep", lws_world.namespace, match_labels={NAME: "moe"}, min_available="100%"
    )
    lws_world.real.create(budget)
    await close(lws_world, pods[0]["spec"]["nodeName"])
    jobs, stop = TrainingJobs(lws_world.cluster), lws_world.effect("suspend_job", target)

    async def named() -> bool:
        outcome = await jobs.apply(stop, LEASE)
        return isinstance(outcome, Blocked) and "keep" in outcome.reason

    await eventually(named, "the budget that forbids it is named")
    assert evictions(lws_world) == 0
    lws_world.real.kubectl("delete", "pdb", "keep", "--namespace", lws_world.namespace)
    assert isinstance(await until_over(jobs, stop), Done)


async def test_one_that_opted_out_or_was_replaced_is_left_alone(lws_world: KubeWorld) -> None:
    target, pods = await running_set(lws_world, nodes=4)
    await close(lws_world, pods[0]["spec"]["nodeName"])
    jobs = TrainingJobs(lws_world.cluster)
    other = Target(KIND, "moe", lws_world.namespace, "uid-of-an-earlier-one")
    assert isinstance(await jobs.apply(lws_world.effect("suspend_job", other), LEASE), Refused)
    path = jobs_at(KIND, lws_world.namespace, "moe")
    await lws_world.cluster.patch(path, {"metadata": {"labels": {"faultline.dev/managed": "false"}}})
    refused = await jobs.apply(lws_world.effect("suspend_job", target), LEASE)
    assert isinstance(refused, Refused)
    assert "opted out" in refused.reason
    assert evictions(lws_world) == 0


async def test_undo_takes_the_marks_off_and_evicts_nothing(lws_world: KubeWorld) -> None:
    target, pods = await running_set(lws_world, nodes=5)
    await close(lws_world, pods[0]["spec"]["nodeName"])
    jobs, stop = TrainingJobs(lws_world.cluster), lws_world.effect("suspend_job", target)
    assert isinstance(await until_over(jobs, stop), Done)
    assert isinstance(await jobs.undo(stop, LEASE), Done)
    about = (await lws_world.cluster.get(jobs_at(KIND, lws_world.namespace, "moe")))["metadata"]
    assert {SUSPENDED, EVICTED}.isdisjoint(about.get("annotations") or {})
    assert isinstance(await jobs.undo(stop, LEASE), AlreadyDone)


async def test_a_pod_stuck_on_a_dead_node_is_handed_to_the_drain(lws_world: KubeWorld) -> None:
    target, pods = await running_set(lws_world, nodes=3, groups=1, grace_s=3)
    worker = next(pod for pod in pods if pod["metadata"]["name"] == "moe-0-1")
    dead = worker["spec"]["nodeName"]
    await lws_world.silenced(dead)
    await close(lws_world, dead)
    jobs, nodes = TrainingJobs(lws_world.cluster), NodeConnector(lws_world.cluster)
    stopped = await until_over(jobs, lws_world.effect("suspend_job", target))
    assert isinstance(stopped, Done), stopped
    assert stopped.result["hanging"] == ("moe-0-1",)
    assert stopped.result["nodes"] == (dead,)
    drained = await until_over(nodes, lws_world.effect("drain_node", Target("Node", dead)))
    assert isinstance(drained, Done)
    assert isinstance(await until_over(jobs, lws_world.effect("verify_job", target)), Done)
    assert dead not in {pod["spec"]["nodeName"] for pod in await whole(lws_world, 2)}


class EvictCase(JobCase):
    """One group of two pods, both on a node that is closed for the incident."""

    action = "suspend_job"

    async def changes(self) -> int:
        return evictions(self.world)

    async def snapshot(self) -> object:
        job = await self.world.cluster.get(jobs_at(KIND, self.world.namespace, "moe"))
        pods = sorted(pod["metadata"]["uid"] for pod in await self.world.pods())
        return job["spec"], job["metadata"].get("annotations"), pods


class TestEvict(EffectContract):
    @pytest.fixture
    async def case(self, lws_world: KubeWorld) -> Case:
        first = await lws_world.add_node(kubelet=True)
        target, _ = await running_set(lws_world, nodes=0, gpus=4, groups=1)
        await lws_world.add_node(kubelet=True)
        await close(lws_world, first)
        return EvictCase(lws_world, target)
