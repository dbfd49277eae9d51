"""Kubernetes objects as the API server shows them, short to write."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from streams.inventory.known_pod import KnownPod, known_pod
from streams.inventory.objects import identity
from streams.inventory.owners import owners_of
from streams.inventory.pod_templates import PodTemplates

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
Object = dict[str, Any]


def node(name: str = "gpu-01", *, ready: str = "True", gpus: int = 8, **metadata: Any) -> Object:
    beat = {"lastHeartbeatTime": "2026-03-01T11:59:00Z", "lastTransitionTime": "2026-03-01T08:00:00Z"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "7", **metadata},
        "spec": {},
        "status": {
            "capacity": {"cpu": "192", "nvidia.com/gpu": str(gpus)},
            "allocatable": {"cpu": "190", "nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "status": ready, **beat}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.7"}],
        },
    }


def owner(kind: str, name: str, *, api: str = "batch/v1", controller: bool = True) -> Object:
    return {"apiVersion": api, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": controller}


def pod_spec(gpus: int = 8, env: dict[str, str] | None = None, args: list[str] | None = None) -> Object:
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    variables = [{"name": name, "value": value} for name, value in (env or {}).items()]
    return {"containers": [{"name": "train", "resources": resources, "env": variables, "args": args or []}]}


def pod(
    name: str = "train-0",
    *,
    owners: list[Object] | None = None,
    spec: Object | None = None,
    on: str | None = "gpu-01",
    phase: str = "Running",
    namespace: str = "team-a",
    **metadata: Any,
) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "ownerReferences": owners or [],
            **metadata,
        },
        "spec": (spec or pod_spec()) | ({"nodeName": on} if on else {}),
        "status": {
            "phase": phase,
            "podIP": "10.1.0.9",
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-03-01T11:00:00Z"},
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-01T11:00:09Z"},
            ],
        },
    }


def job(
    name: str = "train",
    *,
    kind: str = "Job",
    api: str = "batch/v1",
    spec: Object | None = None,
    status: Object | None = None,
    **metadata: Any,
) -> Object:
    about = {"name": name, "namespace": "team-a", "uid": f"uid-{name}", **metadata}
    return {"apiVersion": api, "kind": kind, "metadata": about, "spec": spec or {}, "status": status or {}}


def batch_job(name: str = "train", *, pods: int = 4, gpus: int = 8, **more: Any) -> Object:
    spec = {"parallelism": pods, "completions": pods, "template": {"spec": pod_spec(gpus)}}
    return job(name, spec=spec | more.pop("spec", {}), **more)


def pytorch_job(
    name: str = "train", *, master: bool = True, workers: int = 3, gpus: int = 8, **more: Any
) -> Object:
    template = {"spec": pod_spec(gpus)}
    replicas: Object = {"Worker": {"replicas": workers, "template": template}}
    if master:
        replicas["Master"] = {"replicas": 1, "template": template}
    spec = {"pytorchReplicaSpecs": replicas} | more.pop("spec", {})
    return job(name, kind="PyTorchJob", api="kubeflow.org/v1", spec=spec, **more)


def job_set(name: str = "train") -> Object:
    def replicated(name: str, jobs: int, pods: int, gpus: int) -> Object:
        job_spec = {"parallelism": pods, "completions": pods, "template": {"spec": pod_spec(gpus)}}
        return {"name": name, "replicas": jobs, "template": {"spec": job_spec}}

    spec = {"replicatedJobs": [replicated("driver", 1, 1, 0), replicated("workers", 2, 4, 8)]}
    return job(name, kind="JobSet", api="jobset.x-k8s.io/v1alpha2", spec=spec)


def volcano_job(name: str = "train") -> Object:
    tasks = [
        {"name": "worker", "replicas": 3, "template": {"spec": pod_spec(8)}},
        {"name": "master", "replicas": 1, "template": {"spec": pod_spec(8)}},
    ]
    return job(name, kind="Job", api="batch.volcano.sh/v1alpha1", spec={"tasks": tasks})


def kubeflow_pod(name: str, role: str, index: int, **more: Any) -> Object:
    said = {"training.kubeflow.org/replica-type": role, "training.kubeflow.org/replica-index": str(index)}
    owners = [owner("PyTorchJob", "train", api="kubeflow.org/v1")]
    return pod(name, owners=owners, labels=said | more.pop("labels", {}), **more)


def seen(thing: Object) -> KnownPod:
    """What is kept of a pod."""
    who = identity(thing)
    return known_pod(who, thing, owners_of(thing, who.namespace), PodTemplates())
