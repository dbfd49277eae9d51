from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from connectors.kubernetes.client import Cluster, path_of
from connectors.kubernetes.errors import AlreadyExists, Conflict, EvictionBlocked, Gone, NotFound
from sandbox.emulated import cluster as embedded
from sandbox.emulated import store
from sandbox.emulated.api_server import serving
from sandbox.emulated.child_processes import ChildFailed
from streams.config.connector_settings import KubernetesSettings
from streams.model.errors import Permanent
from tests.sandbox.emulated.kube import JOBS, NODES, PODS, job, node, placements, pytorch_job
from tests.testbed.waiting import eventually

pytestmark = [pytest.mark.machinery, pytest.mark.embedded]


@pytest.fixture
async def emulated(tmp_path: Path) -> AsyncIterator[embedded.EmulatedCluster]:
    async with embedded.running(tmp_path) as running:
        yield running


@pytest.fixture
async def cluster(emulated: embedded.EmulatedCluster) -> AsyncIterator[Cluster]:
    settings = KubernetesSettings(kubeconfig=emulated.kubeconfig)
    async with await Cluster.connect(settings) as client:
        yield client


async def populate(cluster: Cluster, nodes: int) -> None:
    for number in range(1, nodes + 1):
        await cluster.create(NODES, node(f"gpu-{number:02d}"))

    async def ready() -> bool:
        return all(store.holds(n, "Ready") for n in await cluster.list_all(NODES))

    await eventually(ready, "nodes to be Ready")


async def running(cluster: Cluster, count: int) -> dict[str, str]:
    async def placed() -> dict[str, str] | None:
        found = await placements(cluster)
        return found if len(found) == count else None

    return await eventually(placed, f"{count} pods to run")


async def test_discovery_names_the_kinds_of_training_jobs(cluster: Cluster) -> None:
    found = await cluster.resource("kubeflow.org/v1/PyTorchJob")
    assert (found.plural, found.namespaced) == ("pytorchjobs", True)
    assert (await cluster.resource("v1/Node")).namespaced is False
    assert (await cluster.resource("batch/v1/Job")).plural == "jobs"


async def test_a_write_to_what_has_changed_meanwhile_is_refused(cluster: Cluster) -> None:
    await populate(cluster, 1)
    path = path_of("v1", "nodes", name="gpu-01")
    read = await cluster.get(path)
    await cluster.patch(path, {"metadata": {"annotations": {"who": "somebody else"}}})
    locked = {"metadata": {"resourceVersion": read["metadata"]["resourceVersion"]}}
    with pytest.raises(Conflict):
        await cluster.patch(path, {**locked, "spec": {"unschedulable": True}})
    assert "unschedulable" not in (await cluster.get(path))["spec"]
    with pytest.raises(AlreadyExists):
        await cluster.create(NODES, node("gpu-01"))
    with pytest.raises(NotFound):
        await cluster.get(path_of("v1", "nodes", name="gpu-99"))


async def test_every_kind_of_patch_does_what_its_name_says(cluster: Cluster) -> None:
    await populate(cluster, 1)
    path = path_of("v1", "nodes", name="gpu-01")
    await cluster.patch(path, {"metadata": {"labels": {"a": "1", "b": "2"}}})
    await cluster.patch(path, {"metadata": {"labels": {"a": None}}, "status": {"phase": "not yours"}})
    await cluster.patch(path, {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}}, "strategic")
    test: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/labels/b", "value": "2"}]
    await cluster.patch(path, [*test, {"op": "add", "path": "/spec/unschedulable", "value": True}], "json")
    now = await cluster.get(path)
    assert now["metadata"]["labels"] == {"b": "2"}
    assert now["spec"] == {"taints": [{"key": "x", "effect": "NoSchedule"}], "unschedulable": True}
    assert "phase" not in now["status"]
    with pytest.raises(Permanent, match="422"):
        await cluster.patch(path, [{"op": "test", "path": "/metadata/labels/b", "value": "3"}], "json")


async def test_a_watch_goes_on_where_a_list_ended_and_sends_bookmarks(cluster: Cluster) -> None:
    await populate(cluster, 2)
    version = [version async for _, version in cluster.list_pages(NODES)][-1]
    await cluster.delete(path_of("v1", "nodes", name="gpu-02"))
    seen: list[tuple[str, str]] = []
    async for event in cluster.watch(NODES, version, timeout_s=60):
        seen.append((event["type"], event["object"]["metadata"].get("name", "")))
        if event["type"] == "BOOKMARK":
            break
    assert seen == [("DELETED", "gpu-02"), ("BOOKMARK", "")]


async def test_a_watch_from_too_long_ago_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LOG_LENGTH", 5)
    things = store.Store()
    for number in range(10):
        things.create(store.NODES, None, node(f"gpu-{number}"))
    async with serving(things) as url, await Cluster.at(url) as client:
        with pytest.raises(Gone):
            async for _ in client.watch(NODES, "1", timeout_s=5):
                pass


async def test_a_watch_with_a_selector_sees_its_own_pods_only(cluster: Cluster) -> None:
    await populate(cluster, 4)
    await cluster.create(JOBS, job("asr", 2))
    await cluster.create(path_of("kubeflow.org/v1", "pytorchjobs", namespace="team"), pytorch_job("llm", 2))
    await running(cluster, 4)
    mine = await cluster.list_all(PODS, query={"labelSelector": "batch.kubernetes.io/job-name=asr"})
    assert sorted(p["metadata"]["name"] for p in mine) == ["asr-0", "asr-1"]
    where = mine[0]["spec"]["nodeName"]
    on_node = await cluster.list_all(path_of("v1", "pods"), query={"fieldSelector": f"spec.nodeName={where}"})
    assert [p["metadata"]["name"] for p in on_node] == [mine[0]["metadata"]["name"]]


async def test_an_eviction_is_kept_off_by_a_budget_and_otherwise_moves_the_pod(cluster: Cluster) -> None:
    await populate(cluster, 3)
    await cluster.create(JOBS, job("asr", 2))
    await running(cluster, 2)
    budgets = path_of("policy/v1", "poddisruptionbudgets", namespace="team")
    selector = {"matchLabels": {"batch.kubernetes.io/job-name": "asr"}}
    await cluster.create(
        budgets, {"metadata": {"name": "keep"}, "spec": {"minAvailable": 2, "selector": selector}}
    )
    with pytest.raises(EvictionBlocked):
        await cluster.evict("team", "asr-0")
    await cluster.delete(f"{budgets}/keep")
    before = await cluster.get(f"{PODS}/asr-0")
    with pytest.raises(Conflict):
        await cluster.evict("team", "asr-0", uid="another")
    await cluster.patch(path_of("v1", "nodes", name="gpu-01"), {"spec": {"unschedulable": True}})
    await cluster.evict("team", "asr-0", uid=before["metadata"]["uid"])

    async def moved() -> bool:
        return (await placements(cluster)).get("asr-0") == "gpu-03"

    await eventually(moved, "the pod to run elsewhere")


async def test_a_node_falls_silent_and_comes_back_on_order(
    emulated: embedded.EmulatedCluster, cluster: Cluster
) -> None:
    await populate(cluster, 1)

    async def status(wanted: str) -> bool:
        read = await cluster.get(path_of("v1", "nodes", name="gpu-01"))
        return any(c["type"] == "Ready" and c["status"] == wanted for c in read["status"]["conditions"])

    await emulated.silence("gpu-01")
    await eventually(lambda: status("Unknown"), "the node to be NotReady")
    await emulated.revive("gpu-01")
    await eventually(lambda: status("True"), "the node to be Ready")
    with pytest.raises(ChildFailed, match="unknown command"):
        await emulated.child.ask("dance")


async def test_it_ends_with_its_standard_input_also_when_somebody_watches(
    emulated: embedded.EmulatedCluster, cluster: Cluster
) -> None:
    async def follow() -> None:
        async for _ in cluster.watch(NODES, "1"):
            pass

    watching = asyncio.create_task(follow())
    await populate(cluster, 1)
    stdin = emulated.child._process.stdin
    assert stdin is not None
    stdin.close()
    assert await asyncio.wait_for(emulated.child.wait(), 60) == 0
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
