"""A drain of one GPU by the ResourceClaims of a real API server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from connectors.base import Done
from connectors.kubernetes.client import path_of
from connectors.kubernetes.gpu_holders import served_version
from connectors.kubernetes.nodes import NodeConnector
from streams.model.run import Target
from tests.connectors.kube_world import KubeWorld
from tests.connectors.responding import until_over
from tests.testbed.control_plane import unique
from tests.testbed.waiting import eventually

pytestmark = pytest.mark.cluster

DRIVER = "gpu.nvidia.com"


async def claimed(world: KubeWorld, node: str, device: str) -> str:
    """A pod on the node whose claim is allocated this device."""
    version = await served_version(world.cluster, "resourceclaims")
    assert version is not None
    name = unique("claim")
    claims = path_of(version, "resourceclaims", namespace=world.namespace)
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
    await world.cluster.create(
        claims, {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
    )
    result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": device}
    allocation = {"status": {"allocation": {"devices": {"results": [result]}}}}
    await world.cluster.patch(f"{claims}/{name}/status", allocation)
    pods = path_of("v1", "pods", namespace=world.namespace)
    pod = {
        "metadata": {"name": name, "ownerReferences": [await world.owner("ConfigMap")]},
        "spec": {
            "nodeName": node,
            "tolerations": [{"operator": "Exists"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
            "containers": [
                {"name": "train", "image": "training:1", "resources": {"claims": [{"name": "gpu"}]}}
            ],
        },
    }
    await world.cluster.create(pods, pod)
    await eventually(lambda: world.runs(name), f"{name} runs")
    return name


async def test_the_pod_that_holds_the_sick_gpu_goes_and_the_other_runs_on(world: KubeWorld) -> None:
    node = await world.add_node(kubelet=True)
    version = await served_version(world.cluster, "resourceslices")
    assert version is not None
    devices = [
        {"name": f"gpu-{n}", "attributes": {"uuid": {"string": uuid}}}
        for n, uuid in enumerate(("GPU-a", "GPU-b"))
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    slice_ = {"nodeName": node, "driver": DRIVER, "pool": pool, "devices": devices}
    slices = path_of(version, "resourceslices")
    await world.cluster.create(slices, {"metadata": {"name": node}, "spec": slice_})
    sick, well = await claimed(world, node, "gpu-0"), await claimed(world, node, "gpu-1")
    await world.patch_node(node, {"spec": {"unschedulable": True}})
    drain = replace(
        world.effect("drain_node", Target("Node", node), scope="gpu"),
        context={"family": "gpu_memory", "gpu_uuid": "GPU-a"},
    )
    done = await until_over(NodeConnector(world.cluster), drain)
    assert isinstance(done, Done)
    assert done.result["gone"] == (f"{world.namespace}/{sick}",)
    assert "by ResourceClaims" in done.detail
    assert {pod["metadata"]["name"] for pod in await world.pods()} == {well}
    assert [write.name for write in world.writes(subresource="eviction")] == [sick]
    await world.cluster.delete(f"{slices}/{node}")
