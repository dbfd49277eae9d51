"""Ray on a real API server: a job leaves with its head, goes on without a worker, and a service is never stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tests.testbed
from connectors.base import Done, NoLease, Refused, Waiting
from connectors.jobs.training import TrainingJobs
from connectors.kubernetes.client import Object, path_of
from connectors.kubernetes.nodes import NodeConnector
from streams.job_kinds.known import KNOWN
from streams.job_kinds.ray import NODE_TYPE
from streams.job_kinds.ray_job import LAST_CLUSTER
from streams.model.kube_objects import holds, part
from streams.model.run import Target
from tests.connectors.jobs.paths import jobs_at
from tests.connectors.jobs.test_jobs_contract import ResumeCase, SuspendCase, created, stopped
from tests.connectors.kube_world import KubeWorld
from tests.connectors.responding import until_over
from tests.contract.case import Case
from tests.contract.suite import ConnectorContract, EffectContract
from tests.testbed.simulators.ray import kube_ray, ray_object
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.cluster

CRD = Path(tests.testbed.__file__).parent / "crds" / "ray.yaml"
LEASE = NoLease()
movable = pytest.mark.parametrize("kind", ["RayJob", "RayCluster"])


@pytest.fixture
async def ray_world(world: KubeWorld) -> AsyncIterator[KubeWorld]:
    world.real.define(CRD)
    async with kube_ray(world.cluster, world.namespace):
        yield world
        for kind in ("RayJob", "RayService", "RayCluster"):
            await world.cluster.delete(jobs_at(kind, world.namespace), propagation="Background")


async def running(world: KubeWorld, kind: str, *, nodes: int, **how: object) -> tuple[Target, list[Object]]:
    """A head and two workers of a whole node each, and what submits to them; the pods of the cluster."""
    for _ in range(nodes):
        await world.add_node(kubelet=True)
    made = ray_object(kind, "tune", world.namespace, pool=world.namespace, workers=2, **how)  # type: ignore[arg-type]
    there = await world.cluster.create(jobs_at(kind, world.namespace), made)
    pods = await world.all_run(4 if kind == "RayJob" else 3)
    return Target(kind, "tune", world.namespace, there["metadata"]["uid"]), ray_pods(pods)


def ray_pods(pods: list[Object]) -> list[Object]:
    """The head first."""
    found = [pod for pod in pods if NODE_TYPE in pod["metadata"].get("labels", {})]
    return sorted(found, key=lambda pod: pod["metadata"]["labels"][NODE_TYPE])


def uids(pods: list[Object]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


async def close(world: KubeWorld, node: str) -> None:
    cordon = world.effect("cordon_node", Target("Node", node))
    assert isinstance(await NodeConnector(world.cluster).apply(cordon, LEASE), Done)


async def now(world: KubeWorld, target: Target) -> Object:
    return await world.cluster.get(jobs_at(target.kind, world.namespace, target.name))


async def incarnation(world: KubeWorld, target: Target) -> str:
    """The job's incarnation, once its controller has told it."""

    async def told() -> str:
        return KNOWN[target.kind].incarnation(await now(world, target))

    return await eventually(told, f"the status of {target} names its head or cluster")


@movable
async def test_it_leaves_the_node_of_its_head_as_a_whole(ray_world: KubeWorld, kind: str) -> None:
    target, pods = await running(ray_world, kind, nodes=4)
    bad, before = pods[0]["spec"]["nodeName"], await incarnation(ray_world, target)
    await close(ray_world, bad)
    jobs = TrainingJobs(ray_world.cluster)
    suspended = await until_over(jobs, ray_world.effect("suspend_job", target))
    assert isinstance(suspended, Done), suspended
    assert ray_pods(await ray_world.pods()) == []
    resumed = await until_over(jobs, ray_world.effect("resume_job", target, key="resume-1"))
    assert isinstance(resumed, Done), resumed
    verified = await until_over(jobs, ray_world.effect("verify_job", target))
    assert isinstance(verified, Done), verified
    assert verified.result["pods"] == 3
    after = ray_pods(await ray_world.pods())
    assert uids(after).isdisjoint(uids(pods))
    assert bad not in {pod["spec"]["nodeName"] for pod in after}
    assert await incarnation(ray_world, target) != before


async def test_a_job_is_not_stopped_before_its_pods_are_gone_though_its_status_has_forgotten_them(
    ray_world: KubeWorld,
) -> None:
    target, pods = await running(ray_world, "RayJob", nodes=3)
    name = pods[1]["metadata"]["name"]
    ray_world.real.annotate("pod", name, "on-delete=hang", namespace=ray_world.namespace)
    jobs, suspend = TrainingJobs(ray_world.cluster), ray_world.effect("suspend_job", target)

    async def only_it_is_left() -> bool:
        nonlocal suspend
        outcome = await jobs.apply(suspend, LEASE)
        assert isinstance(outcome, Waiting)
        # As the responder does: it is this that says that the suspension is ours, should the pod be gone at the next look.
        suspend = replace(suspend, prior=outcome.result)
        job = await now(ray_world, target)
        forgotten = KNOWN["RayJob"].is_suspension_seen(job) and not part(job, "status").get("rayClusterName")
        return forgotten and outcome.detail == f"1 pods terminating: {name}"

    await eventually(only_it_is_left, "it is Suspended, and one of its pods is still there")
    ray_world.real.annotate("pod", name, "on-delete-", namespace=ray_world.namespace)
    assert isinstance(await until_over(jobs, suspend), Done)
    assert isinstance(await jobs.undo(suspend, LEASE), Done)
    assert LAST_CLUSTER not in ((await now(ray_world, target))["metadata"].get("annotations") or {})


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"shutdownAfterJobFinishes": False}, "shutdownAfterJobFinishes"),
        ({"clusterSelector": {"ray.io/cluster": "shared"}}, "clusterSelector"),
    ],
)
async def test_a_job_that_kuberay_would_end_for_it_is_never_asked_to_suspend(
    ray_world: KubeWorld, fields: dict[str, Any], why: str
) -> None:
    made = ray_object("RayJob", "tune", ray_world.namespace, pool=ray_world.namespace, **fields)
    await ray_world.cluster.create(jobs_at("RayJob", ray_world.namespace), made)
    target = Target("RayJob", "tune", ray_world.namespace)
    refused = await TrainingJobs(ray_world.cluster).apply(ray_world.effect("suspend_job", target), LEASE)
    assert isinstance(refused, Refused)
    assert why in refused.reason
    assert "suspend" not in (await now(ray_world, target))["spec"]


@pytest.mark.parametrize("kind", ["RayJob", "RayCluster", "RayService"])
async def test_a_worker_on_a_closed_node_is_drained_and_all_else_of_it_stays(
    ray_world: KubeWorld, kind: str
) -> None:
    target, pods = await running(ray_world, kind, nodes=4)
    bad = pods[1]["spec"]["nodeName"]
    await close(ray_world, bad)
    nodes = NodeConnector(ray_world.cluster)
    assert isinstance(await until_over(nodes, ray_world.effect("drain_node", Target("Node", bad))), Done)

    async def whole() -> bool:
        found = ray_pods(await ray_world.pods())
        return (
            len(found) == 3
            and len(uids(found) & uids(pods)) == 2
            and all(holds(pod, "Ready") for pod in found)
        )

    await eventually(whole, "the worker is made anew elsewhere, and the others are as they were")
    if kind != "RayService":
        verify = ray_world.effect("verify_job", target)
        assert isinstance(await until_over(TrainingJobs(ray_world.cluster), verify), Done)


@pytest.mark.parametrize("above", ["RayJob", "RayService"])
async def test_a_cluster_that_belongs_to_another_object_is_never_acted_on_itself(
    ray_world: KubeWorld, above: str
) -> None:
    made = ray_object(above, "tune", ray_world.namespace, pool=ray_world.namespace)
    await ray_world.cluster.create(jobs_at(above, ray_world.namespace), made)

    async def there() -> list[Object]:
        return await ray_world.cluster.list_all(jobs_at("RayCluster", ray_world.namespace))

    (cluster,) = await eventually(there, "its cluster is made")
    target = Target("RayCluster", cluster["metadata"]["name"], ray_world.namespace)
    jobs = TrainingJobs(ray_world.cluster)
    refused = await jobs.apply(ray_world.effect("suspend_job", target), LEASE)
    assert isinstance(refused, Refused)
    assert f"is managed by {above} tune" in refused.reason
    if above == "RayService":
        serving = Target(above, "tune", ray_world.namespace)
        refused = await jobs.apply(ray_world.effect("suspend_job", serving), LEASE)
        assert isinstance(refused, Refused)
        assert "would take the whole service away" in refused.reason


# What the simulator does, as the project documents it


@pytest.mark.nightly
async def test_simulated_a_refused_suspension_ends_a_job_and_leaves_its_cluster(ray_world: KubeWorld) -> None:
    """Validation of the spec: shutdownAfterJobFinishes."""
    target, pods = await running(ray_world, "RayJob", nodes=3, shutdownAfterJobFinishes=False)
    await ray_world.cluster.patch(jobs_at("RayJob", ray_world.namespace, "tune"), {"spec": {"suspend": True}})

    async def ended() -> bool:
        phase = (await now(ray_world, target))["status"].get("jobDeploymentStatus")
        return bool(phase == "ValidationFailed")

    await eventually(ended, "it has ended as invalid")
    assert uids(ray_pods(await ray_world.pods())) == uids(pods)


@pytest.mark.nightly
async def test_simulated_a_retry_makes_the_whole_cluster_anew_and_is_counted(ray_world: KubeWorld) -> None:
    """RayJob: backoffLimit."""
    target, pods = await running(ray_world, "RayJob", nodes=3, backoffLimit=1)
    submitter = next(pod for pod in await ray_world.pods() if NODE_TYPE not in pod["metadata"]["labels"])
    ray_world.real.annotate(
        "pod", submitter["metadata"]["name"], "outcome=crash", namespace=ray_world.namespace
    )

    async def anew() -> bool:
        job, found = await now(ray_world, target), ray_pods(await ray_world.pods())
        retries = KNOWN["RayJob"].retries(job)
        return (
            retries is not None
            and retries.used == 1
            and len(found) == 3
            and uids(found).isdisjoint(uids(pods))
        )

    await eventually(anew, "its cluster is another one")


@pytest.mark.nightly
async def test_simulated_a_suspension_that_has_begun_is_carried_through(ray_world: KubeWorld) -> None:
    """RayCluster: suspending is atomic."""
    target, pods = await running(ray_world, "RayCluster", nodes=3)
    head = pods[0]["metadata"]["name"]
    ray_world.real.annotate("pod", head, "on-delete=hang", namespace=ray_world.namespace)
    path = jobs_at("RayCluster", ray_world.namespace, "tune")
    await ray_world.cluster.patch(path, {"spec": {"suspend": True}})

    async def suspending() -> bool:
        return holds(await now(ray_world, target), "RayClusterSuspending")

    await eventually(suspending, "it has begun")
    await ray_world.cluster.patch(path, {"spec": {"suspend": False}})
    ray_world.real.annotate("pod", head, "on-delete-", namespace=ray_world.namespace)

    async def anew() -> bool:
        found = ray_pods(await ray_world.pods())
        return len(found) == 3 and uids(found).isdisjoint(uids(pods))

    await eventually(anew, "all of its pods are others")


@pytest.mark.nightly
async def test_simulated_a_head_that_is_gone_is_made_anew(ray_world: KubeWorld) -> None:
    """RayCluster: one head at any time."""
    _, pods = await running(ray_world, "RayCluster", nodes=3)
    name = pods[0]["metadata"]["name"]
    await ray_world.cluster.delete(path_of("v1", "pods", namespace=ray_world.namespace, name=name))

    async def anew() -> bool:
        found = ray_pods(await ray_world.pods())
        return len(found) == 3 and pods[0]["metadata"]["uid"] not in uids(found)

    await eventually(anew, "it has another head")


# The contract


async def a_ray(kind: str, world: KubeWorld) -> Object:
    await world.add_node(kubelet=True)
    return ray_object(kind, "train", world.namespace, pool=world.namespace, workers=1, gpus=1)


@movable
@pytest.mark.nightly
class TestSuspendRay(ConnectorContract):
    @pytest.fixture
    async def case(self, ray_world: KubeWorld, kind: str) -> Case:
        pods = 3 if kind == "RayJob" else 2
        await created(ray_world, kind, await a_ray(kind, ray_world), pods=pods)
        return SuspendCase(ray_world, kind)


@movable
@pytest.mark.nightly
class TestResumeRay(EffectContract):
    @pytest.fixture
    async def case(self, ray_world: KubeWorld, kind: str) -> Case:
        await created(ray_world, kind, stopped(kind, await a_ray(kind, ray_world)))
        return ResumeCase(ray_world, kind)
