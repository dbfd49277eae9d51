"""Small Kubernetes objects for tests of the emulated cluster."""

from __future__ import annotations

from typing import Any

from connectors.kubernetes.client import Cluster, path_of
from sandbox.emulated.controllers import GPU

JOBS = path_of("batch/v1", "jobs", namespace="team")
PYTORCH_JOBS = path_of("kubeflow.org/v1", "pytorchjobs", namespace="team")
PODS = path_of("v1", "pods", namespace="team")
NODES = path_of("v1", "nodes")


def node(name: str, gpus: int = 8) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {}, "status": {"capacity": {GPU: str(gpus)}}}


def template(gpus: int = 8) -> dict[str, Any]:
    limits = {"resources": {"limits": {GPU: str(gpus)}}}
    return {"metadata": {}, "spec": {"containers": [{"name": "train", "image": "train:1", **limits}]}}


def job(name: str, pods: int) -> dict[str, Any]:
    spec = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "template": template()}
    return {"metadata": {"name": name, "namespace": "team"}, "spec": spec}


def pytorch_job(name: str, pods: int) -> dict[str, Any]:
    roles = {
        "Master": {"replicas": 1, "template": template()},
        "Worker": {"replicas": pods - 1, "template": template()},
    }
    return {"metadata": {"name": name, "namespace": "team"}, "spec": {"pytorchReplicaSpecs": roles}}


async def placements(cluster: Cluster) -> dict[str, str]:
    """Where the Running pods of the namespace are."""
    pods = await cluster.list_all(PODS)
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in pods
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
    }
