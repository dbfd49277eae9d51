"""What runs on the testbed, as plain objects: GPU nodes, jobs of the training operator, an indexed Job, a disruption budget."""

from __future__ import annotations

from typing import Any

GPU = "nvidia.com/gpu"
POOL = "testbed.faultline.dev/pool"


def is_ready(node: dict[str, Any]) -> bool:
    """Whether a node says that it is Ready; one that has said nothing yet is not."""
    conditions = node.get("status", {}).get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


KUBEFLOW = {
    "PyTorchJob": ("pytorchReplicaSpecs", "pytorch", "Master"),
    "TFJob": ("tfReplicaSpecs", "tensorflow", "Chief"),
    "XGBoostJob": ("xgbReplicaSpecs", "xgboost", "Master"),
    "PaddleJob": ("paddleReplicaSpecs", "paddle", "Master"),
    "MPIJob": ("mpiReplicaSpecs", "mpi", "Launcher"),
}
"""The kinds of the training operator: where their roles stand, their container's name, and their first role."""


def kubeflow_job(
    kind: str,
    name: str,
    namespace: str,
    *,
    pool: str,
    workers: int = 3,
    gpus: int = 8,
    annotations: dict[str, str] | None = None,
    grace_s: int = 30,
) -> dict[str, Any]:
    """Return a job of one of ``KUBEFLOW``: a first pod and ``workers`` workers, each with ``gpus`` GPUs, on nodes of ``pool``."""
    roles, container, first = KUBEFLOW[kind]
    pod = _pod(container, pool, gpus, annotations, grace_s)
    replicas = {"restartPolicy": "OnFailure", "template": pod}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "runPolicy": {"suspend": False, "cleanPodPolicy": "None"},
            roles: {first: {"replicas": 1} | replicas, "Worker": {"replicas": workers} | replicas},
        },
    }


def pytorch_job(
    name: str,
    namespace: str,
    *,
    pool: str,
    workers: int = 3,
    gpus: int = 8,
    annotations: dict[str, str] | None = None,
    grace_s: int = 30,
) -> dict[str, Any]:
    """Return a PyTorchJob of a master and ``workers`` workers, each with ``gpus`` GPUs, on nodes of ``pool``."""
    return kubeflow_job(
        "PyTorchJob",
        name,
        namespace,
        pool=pool,
        workers=workers,
        gpus=gpus,
        annotations=annotations,
        grace_s=grace_s,
    )


def indexed_job(
    name: str,
    namespace: str,
    *,
    pool: str,
    pods: int = 4,
    gpus: int = 8,
    annotations: dict[str, str] | None = None,
    grace_s: int = 30,
) -> dict[str, Any]:
    """Return an indexed batch/v1 Job of ``pods`` pods, each with ``gpus`` GPUs, on the nodes of ``pool``."""
    pod = _pod("train", pool, gpus, annotations, grace_s)
    pod["spec"]["restartPolicy"] = "Never"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "completionMode": "Indexed",
            "completions": pods,
            "parallelism": pods,
            "backoffLimit": 6,
            "template": pod,
        },
    }


def disruption_budget(
    name: str, namespace: str, *, match_labels: dict[str, str], min_available: int | str
) -> dict[str, Any]:
    """Return a PodDisruptionBudget that keeps ``min_available`` of the matching pods from eviction."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": match_labels}},
    }


def gpu_node(name: str, *, pool: str, gpus: int = 8, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a node that a simulated kubelet takes care of, with room for pods and ``gpus`` GPUs."""
    room = {"cpu": "192", "memory": "2Ti", "ephemeral-storage": "1Ti", "pods": "110", GPU: str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                POOL: pool,
                **(labels or {}),
            },
        },
        "status": {
            "allocatable": room,
            "capacity": room,
            "addresses": [
                {"type": "Hostname", "address": name},
                {"type": "InternalIP", "address": "127.0.0.1"},
            ],
        },
    }


def _pod(
    container: str, pool: str, gpus: int, annotations: dict[str, str] | None, grace_s: int
) -> dict[str, Any]:
    return {
        "metadata": {"annotations": annotations or {}},
        "spec": {
            "nodeSelector": {POOL: pool},
            "terminationGracePeriodSeconds": grace_s,
            "containers": [
                {"name": container, "image": "training:1", "resources": {"limits": {GPU: str(gpus)}}},
            ],
        },
    }
