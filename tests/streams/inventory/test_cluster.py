"""The inventory of a real control plane: real owners, real indices, real restarts of the API server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from aiokafka.admin import NewTopic

from connectors.kubernetes.client import Cluster
from connectors.kubernetes.watch import KindWatches
from streams.config.connector_settings import KubernetesSettings
from streams.config.settings import KafkaSettings
from streams.inventory.cluster_view import ClusterView
from streams.inventory.process import InventoryProcess, read_back
from streams.kafka import clients
from streams.kafka.topics import INVENTORY
from streams.model.entity import JobRef
from streams.model.facts import PodFact
from tests.connectors.watching import viewing as kept
from tests.testbed import workloads
from tests.testbed.control_plane import ControlPlane, unique
from tests.testbed.kafka import Kafka
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.cluster

KINDS = ("v1/Node", "v1/Pod", "batch/v1/Job", "kubeflow.org/v1/PyTorchJob", "jobset.x-k8s.io/v1alpha2/JobSet")
"""The last one is not installed on the testbed: a missing CRD must not be in the way."""


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    name = unique("inventory")
    control_plane.kubectl("create", "namespace", name)
    yield name
    control_plane.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def pool(control_plane: ControlPlane) -> Iterator[str]:
    name = unique("pool")
    control_plane.add_nodes(name, 4, gpus=16, labels={"network.topology.nvidia.com/leaf": f"leaf-{name}"})
    yield name
    control_plane.remove_pool(name)


@asynccontextmanager
async def watches_of(control_plane: ControlPlane) -> AsyncIterator[KindWatches]:
    settings = KubernetesSettings(kubeconfig=control_plane.kubeconfig())
    async with await Cluster.connect(settings) as cluster:
        yield KindWatches(cluster, KINDS)


def viewing(control_plane: ControlPlane) -> AbstractAsyncContextManager[ClusterView]:
    """What a reader of the topic would see, without the topic."""
    return kept(control_plane, KINDS)


async def pods_of(view: ClusterView, job: JobRef, enough: Callable[[list[PodFact]], bool]) -> list[PodFact]:
    async def look() -> bool:
        return enough(list(view.pods_of(job.key)))

    await eventually(look, f"the pods of {job}")
    return list(view.pods_of(job.key))


def four_run(pods: list[PodFact]) -> bool:
    return len(pods) == 4 and all(pod.phase == "Running" and pod.ready for pod in pods)


async def test_pods_are_resolved_to_their_jobs_with_their_ranks(
    control_plane: ControlPlane, namespace: str, pool: str
) -> None:
    control_plane.create(
        workloads.pytorch_job("llm", namespace, pool=pool),
        workloads.indexed_job("vision", namespace, pool=pool),
    )
    llm, vision = JobRef("PyTorchJob", namespace, "llm"), JobRef("Job", namespace, "vision")
    async with viewing(control_plane) as view:
        for job in (llm, vision):
            pods = await pods_of(view, job, four_run)
            assert sorted(pod.rank for pod in pods if pod.rank is not None) == [0, 8, 16, 24]
            assert {pod.ranks for pod in pods} == {8}
            fact = view.jobs[job.key]
            assert (fact.pods, fact.world, fact.suspended, fact.finished) == (4, 32, False, False)
        assert list(view.pods_on(pods[0].node or "")) != []
        first = {pod.name: pod.rank for pod in view.pods_of(llm.key)}
        assert first == {"llm-master-0": 0, "llm-worker-0": 8, "llm-worker-1": 16, "llm-worker-2": 24}
        for number in range(4):
            node = view.nodes[f"{pool}-{number}"]
            assert (node.ready, node.gpus, node.leaf, node.unschedulable) == (True, 16, f"leaf-{pool}", False)

        await asyncio.to_thread(control_plane.kubectl, "cordon", f"{pool}-0")

        async def cordoned() -> bool:
            return view.nodes[f"{pool}-0"].unschedulable

        await eventually(cordoned, "the cordon is seen")


async def test_a_deleted_job_takes_its_pods_along(
    control_plane: ControlPlane, namespace: str, pool: str
) -> None:
    control_plane.create(workloads.indexed_job("vision", namespace, pool=pool))
    vision = JobRef("Job", namespace, "vision")
    async with viewing(control_plane) as view:
        await pods_of(view, vision, four_run)
        await asyncio.to_thread(control_plane.kubectl, "delete", "job", "vision", "--namespace", namespace)

        async def gone() -> bool:
            return vision.key not in view.jobs and not list(view.pods_of(vision.key))

        await eventually(gone, "the job and its pods are gone")


async def test_the_watch_outlives_the_api_server(tmp_path: Path) -> None:
    with ControlPlane.running(tmp_path) as control_plane:
        control_plane.add_nodes("before", 1)
        async with viewing(control_plane) as view:

            async def known(name: str) -> bool:
                node = view.nodes.get(name)
                return node is not None and node.ready

            await eventually(lambda: known("before-0"), "the first node is known")
            await asyncio.to_thread(control_plane.component("kube-apiserver").kill)
            await asyncio.to_thread(control_plane.start_component, "kube-apiserver")
            await asyncio.to_thread(control_plane.add_nodes, "after", 1)
            await eventually(lambda: known("after-0"), "a node added after the restart is known")
            await asyncio.to_thread(control_plane.remove_pool, "before")

            async def gone() -> bool:
                return "before-0" not in view.nodes

            await eventually(gone, "a node removed after the restart is gone")


@pytest.mark.kafka
async def test_what_vanished_while_the_process_was_down_gets_tombstones(
    control_plane: ControlPlane, kafka: Kafka, namespace: str, pool: str
) -> None:
    settings = KafkaSettings(
        bootstrap=kafka.bootstrap, topic_prefix=f"{namespace}.", cluster_partitions=2, replication_factor=1
    )
    admin = await clients.started(clients.admin(settings), settings)
    topic = clients.topic_name(settings, INVENTORY)
    await admin.create_topics([NewTopic(topic, 2, 1, topic_configs=dict(INVENTORY.config()))])
    await admin.close()

    async def until_published(*, jobs: int, pods: int) -> None:
        async def look() -> bool:
            keys = await read_back("c1", settings)
            of_job, of_pods = f"c1/job/Job/{namespace}/vision", f"c1/pod/{namespace}/"
            return (of_job in keys, sum(key.startswith(of_pods) for key in keys)) == (jobs == 1, pods)

        await eventually(look, f"{jobs} jobs and {pods} pods are published")

    control_plane.create(workloads.indexed_job("vision", namespace, pool=pool))
    async with _publishing(control_plane, settings):
        await until_published(jobs=1, pods=4)
    control_plane.kubectl("delete", "job", "vision", "--namespace", namespace)
    async with _publishing(control_plane, settings):
        await until_published(jobs=0, pods=0)


@asynccontextmanager
async def _publishing(control_plane: ControlPlane, settings: KafkaSettings) -> AsyncIterator[None]:
    async with watches_of(control_plane) as watches:
        task = asyncio.create_task(InventoryProcess("c1", settings, watches).run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task], timeout=60)
            assert task.done(), "the process goes on after its cancellation"
            assert task.cancelled(), task.exception()
