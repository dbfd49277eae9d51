"""Kubernetes objects as the API server shows them: nodes, jobs of several controllers, their pods."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from sandbox.simulation.topology import GPUS, Node, SimulatedCluster
from streams.model.clock import rfc3339

GPU = "nvidia.com/gpu"
Object = dict[str, Any]

KUBEFLOW = ("PyTorchJob", "MPIJob")
_ENDINGS = "bcdfghjklmnpqrstvwxz2456789"
"""k8s.io/apimachinery, pkg/util/rand."""


def node(
    cluster: SimulatedCluster, it: Node, since: datetime, *, ready: str = "True", more: Object | None = None
) -> Object:
    """A node; `ready` is the status of its Ready condition, `more` replaces parts of its spec."""
    amount = {GPU: str(GPUS), "cpu": "192", "memory": "2Ti"}
    reason = {"True": "KubeletReady", "Unknown": "NodeStatusUnknown"}.get(ready, "KubeletNotReady")
    condition = {"type": "Ready", "status": ready, "reason": reason, "lastTransitionTime": rfc3339(since)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": it.name, "uid": _uid(f"node/{it.name}"), "labels": cluster.labels(it)},
        "spec": more or {},
        "status": {
            "capacity": amount,
            "allocatable": dict(amount),
            "addresses": [
                {"type": "InternalIP", "address": it.address},
                {"type": "Hostname", "address": it.name},
            ],
            "conditions": [condition],
        },
    }


def job(kind: str, namespace: str, name: str, pods: int, *, ended: str | None = None) -> Object:
    """A training job of a controller, for `pods` pods of a whole node each; `ended` is `Complete`, `Failed` or None."""
    api, spec = _SPECS[kind](pods)
    done = {"Complete": "Succeeded" if kind in KUBEFLOW else "Completed" if kind == "JobSet" else "Complete"}
    status: Object = {}
    if ended is not None and kind == "VolcanoJob":
        status = {"state": {"phase": "Completed" if ended == "Complete" else "Failed"}}
    elif ended is not None:
        status = {"conditions": [{"type": done.get(ended, ended), "status": "True"}]}
    about = {"name": name, "namespace": namespace, "uid": _uid(f"job/{namespace}/{name}")}
    return {
        "apiVersion": api,
        "kind": "Job" if kind == "VolcanoJob" else kind,
        "metadata": about,
        "spec": spec,
        "status": status,
    }


def pod_name(kind: str, job_name: str, index: int, attempt: int) -> str:
    """The name that the controller gives to pod `index` of the `attempt`th start."""
    if kind == "PyTorchJob":
        return f"{job_name}-master-0" if index == 0 else f"{job_name}-worker-{index - 1}"
    if kind == "VolcanoJob":
        return f"{job_name}-worker-{index}"
    if kind == "LeaderWorkerSet":
        return f"{job_name}-0" if index == 0 else f"{job_name}-0-{index}"
    suffix = _random_ending(f"{job_name}/{index}/{attempt}")
    return f"{job_name}-workers-0-{index}-{suffix}" if kind == "JobSet" else f"{job_name}-{index}-{suffix}"


def _random_ending(of: str) -> str:
    """Five characters as the API server draws them for generated names: no vowels, nothing that looks like another."""
    number = uuid.uuid5(uuid.NAMESPACE_URL, of).int
    return "".join(_ENDINGS[number // len(_ENDINGS) ** place % len(_ENDINGS)] for place in range(5))


def pod(
    kind: str,
    namespace: str,
    job_name: str,
    name: str,
    index: int,
    attempt: int,
    node: str,
    address: str,
    since: datetime,
) -> Object:
    """A running pod of a job, placed on a node."""
    labels, annotations = _labels(kind, job_name, index)
    owner_kind, owner_api = ("Job", "batch.volcano.sh/v1alpha1") if kind == "VolcanoJob" else _owner(kind)
    owner_name = f"{job_name}-workers-0" if kind == "JobSet" else job_name
    owner = {
        "apiVersion": owner_api,
        "kind": owner_kind,
        "name": owner_name,
        "uid": _uid(f"job/{namespace}/{job_name}"),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": _uid(f"pod/{namespace}/{name}/{attempt}"),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner | {"controller": True}],
        },
        "spec": {"nodeName": node, **_template()["spec"]},
        "status": {
            "phase": "Running",
            "podIP": address,
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": rfc3339(since)},
                {"type": "Ready", "status": "True", "lastTransitionTime": rfc3339(since)},
            ],
        },
    }


def pending(thing: Object) -> Object:
    """The same pod while it is placed but does not run."""
    return thing | {"status": {"phase": "Pending", "conditions": _without_ready(thing)}}


def ended(thing: Object, phase: str, at: datetime, exit_code: int) -> Object:
    """The same pod after its container has ended."""
    state = {"terminated": {"exitCode": exit_code, "finishedAt": rfc3339(at)}}
    status = thing["status"] | {
        "phase": phase,
        "conditions": _without_ready(thing, lastTransitionTime=rfc3339(at)),
        "containerStatuses": [{"name": "pytorch", "state": state}],
    }
    return thing | {"status": status}


def _without_ready(thing: Object, **changed: str) -> list[Object]:
    """The conditions of a pod whose Ready is false."""
    conditions = thing["status"]["conditions"]
    return [c | {"status": "False"} | changed if c["type"] == "Ready" else c for c in conditions]


def _uid(of: str) -> str:
    """A uid that depends on the name only."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, of))


def _template() -> Object:
    container = {
        "name": "pytorch",
        "image": "training:24.08",
        "command": ["torchrun", f"--nproc-per-node={GPUS}", "train.py"],
        "resources": {"limits": {GPU: str(GPUS)}},
    }
    return {"metadata": {}, "spec": {"containers": [container]}}


def _owner(kind: str) -> tuple[str, str]:
    return {
        "PyTorchJob": ("PyTorchJob", "kubeflow.org/v1"),
        "Job": ("Job", "batch/v1"),
        "JobSet": ("Job", "batch/v1"),
        "LeaderWorkerSet": ("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1"),
    }[kind]


def _labels(kind: str, job_name: str, index: int) -> tuple[dict[str, str], dict[str, str]]:
    if kind == "PyTorchJob":
        role, number = ("master", 0) if index == 0 else ("worker", index - 1)
        prefix = "training.kubeflow.org/"
        return {
            f"{prefix}job-name": job_name,
            f"{prefix}replica-type": role,
            f"{prefix}replica-index": str(number),
        }, {}
    if kind == "JobSet":
        prefix = "jobset.sigs.k8s.io/"
        labels = {
            f"{prefix}jobset-name": job_name,
            f"{prefix}replicatedjob-name": "workers",
            f"{prefix}job-index": "0",
        }
        return labels | {"batch.kubernetes.io/job-completion-index": str(index)}, {}
    if kind == "VolcanoJob":
        return {}, {
            "volcano.sh/job-name": job_name,
            "volcano.sh/task-spec": "worker",
            "volcano.sh/task-index": str(index),
        }
    if kind == "LeaderWorkerSet":
        prefix = "leaderworkerset.sigs.k8s.io/"
        return {
            f"{prefix}name": job_name,
            f"{prefix}group-index": "0",
            f"{prefix}worker-index": str(index),
        }, {}
    return {
        "batch.kubernetes.io/job-name": job_name,
        "batch.kubernetes.io/job-completion-index": str(index),
    }, {}


def _pytorch(pods: int) -> tuple[str, Object]:
    roles = {
        "Master": {"replicas": 1, "restartPolicy": "OnFailure", "template": _template()},
        "Worker": {"replicas": pods - 1, "restartPolicy": "OnFailure", "template": _template()},
    }
    return "kubeflow.org/v1", {
        "nprocPerNode": str(GPUS),
        "runPolicy": {"suspend": False},
        "pytorchReplicaSpecs": roles,
    }


def _batch(pods: int) -> tuple[str, Object]:
    spec = {"parallelism": pods, "completions": pods, "completionMode": "Indexed", "template": _template()}
    return "batch/v1", spec


def _jobset(pods: int) -> tuple[str, Object]:
    replicated = {"name": "workers", "replicas": 1, "template": {"spec": _batch(pods)[1]}}
    return "jobset.x-k8s.io/v1alpha2", {"replicatedJobs": [replicated]}


def _volcano(pods: int) -> tuple[str, Object]:
    tasks = [{"name": "worker", "replicas": pods, "template": _template()}]
    return "batch.volcano.sh/v1alpha1", {"tasks": tasks}


def _leader_worker(pods: int) -> tuple[str, Object]:
    template = {"size": pods, "workerTemplate": _template()}
    return "leaderworkerset.x-k8s.io/v1", {"replicas": 1, "leaderWorkerTemplate": template}


_SPECS = {
    "PyTorchJob": _pytorch,
    "Job": _batch,
    "JobSet": _jobset,
    "VolcanoJob": _volcano,
    "LeaderWorkerSet": _leader_worker,
}
