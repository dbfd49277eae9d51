"""Templates of Jobs that work on nodes, and machines that boot anew, for the tests of `NodeWork`."""

from __future__ import annotations

from typing import Any

from connectors.kubernetes.client import Object, path_of
from tests.connectors.kube_world import NODES, KubeWorld
from tests.testbed.waiting import eventually


def a_template(outcome: str | None = None, **annotations: str) -> Object:
    """A Job as an operator writes it; its pods end as the testbed's stages are told to."""
    told = {f"testbed.faultline.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    if outcome is not None:
        told["testbed.faultline.dev/outcome"] = outcome
    container: dict[str, Any] = {"name": "work", "image": "node-work:1", "command": ["/work"]}
    pod = {"metadata": {"annotations": told}, "spec": {"containers": [container]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": {"template": pod}}


def jobs_path(world: KubeWorld, name: str | None = None) -> str:
    """Where the Jobs of a world are."""
    return path_of("batch/v1", "jobs", namespace=world.namespace, name=name)


async def new_boot(world: KubeWorld, node: str, boot_id: str) -> None:
    """The node's kubelet reports a boot."""
    await world.cluster.patch(f"{NODES}/{node}/status", {"status": {"nodeInfo": {"bootID": boot_id}}})


async def boots(world: KubeWorld, node: str, boot_id: str) -> None:
    """Wait until a pod runs on the node, as its power switch would, and boot anew."""

    async def a_pod_runs() -> bool:
        return any(pod["spec"].get("nodeName") == node for pod in await world.pods())

    await eventually(a_pod_runs, f"a pod is on {node}")
    await new_boot(world, node, boot_id)
