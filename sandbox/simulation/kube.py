"""Kubernetes objects as the API server shows them: nodes, jobs of several controllers, their pods."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sandbox.simulation.topology import GPUS, Node, SimulatedCluster
from streams.model.clock import rfc3339

GPU = "nvidia.com/gpu"
UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
"""The taint of a cordoned node."""
Object = dict[str, Any]

KUBEFLOW = ("PyTorchJob", "MPIJob")
LAUNCHED = ("MPIJob", "RayCluster")
"""Kinds of jobs of which one pod more prints what all of their workers print."""
ENDINGS = "bcdfghjklmnpqrstvwxz2456789"
"""k8s.io/apimachinery, pkg/util/rand."""


def node(
    cluster: SimulatedCluster, it: Node, since: datetime, *, ready: str = "True", more: Object | None = None,
    gpus: int = GPUS, labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None,
) -> Object:  # fmt: skip
    """A node; `ready` is the status of its Ready condition, `more` its spec, `gpus` how many it has to give."""
    amount = {GPU: str(GPUS), "cpu": "192", "memory": "2Ti"}
    reason = {"True": "KubeletReady", "Unknown": "NodeStatusUnknown"}.get(ready, "KubeletNotReady")
    condition = {"type": "Ready", "status": ready, "reason": reason, "lastTransitionTime": rfc3339(since)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": it.name,
            "uid": _uid(f"node/{it.name}"),
            "creationTimestamp": it.made,
            "labels": cluster.labels(it) | dict(labels or {}),
            "annotations": dict(annotations or {}),
        },
        "spec": more or {},
        "status": {
            "capacity": amount,
            "allocatable": amount | {GPU: str(gpus)},
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
    if kind in ("VolcanoJob", "MPIJob"):
        return f"{job_name}-worker-{index}"
    if kind == "LeaderWorkerSet":
        return f"{job_name}-0" if index == 0 else f"{job_name}-0-{index}"
    suffix = _random_ending(f"{job_name}/{index}/{attempt}")
    if kind == "RayCluster":
        return f"{job_name}-gpu-worker-{suffix}"
    return f"{job_name}-workers-0-{index}-{suffix}" if kind == "JobSet" else f"{job_name}-{index}-{suffix}"


def _random_ending(of: str) -> str:
    """Five characters as the API server draws them for generated names: no vowels, nothing that looks like another."""
    number = uuid.uuid5(uuid.NAMESPACE_URL, of).int
    return "".join(ENDINGS[number // len(ENDINGS) ** place % len(ENDINGS)] for place in range(5))


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


def launcher(
    kind: str, namespace: str, job_name: str, attempt: int, node: str, address: str, since: datetime
) -> Object:
    """The pod, without a GPU, from which an MPIJob's workers are started, or a Ray cluster's head."""
    role = "launcher" if kind == "MPIJob" else "head"
    name = f"{job_name}-{role}-{_random_ending(f'{job_name}/{role}/{attempt}')}"
    labels = {"training.kubeflow.org/job-name": job_name, "training.kubeflow.org/job-role": role}
    if kind == "RayCluster":
        labels = {"ray.io/cluster": job_name, "ray.io/node-type": role}
    owner_kind, owner_api = _owner(kind)
    uid = _uid(f"job/{namespace}/{job_name}")
    owner = {"apiVersion": owner_api, "kind": owner_kind, "name": job_name, "uid": uid, "controller": True}
    uid = _uid(f"pod/{namespace}/{name}/{attempt}")
    return tenant_pod(namespace, name, uid, node, address, since, container=role, labels=labels, owner=owner)


def pending(thing: Object) -> Object:
    """The same pod while it is placed but does not run."""
    return thing | {"status": {"phase": "Pending", "conditions": _without_ready(thing)}}


def tenant_pod(
    namespace: str, name: str, uid: str, node: str | None, address: str, since: datetime, *,
    gpus: int = 0, container: str = "main", labels: Mapping[str, str] | None = None, owner: Object | None = None,
) -> Object:  # fmt: skip
    """A running pod that belongs to no training job, with some GPUs of its node or none."""
    limits = {GPU: str(gpus)} if gpus else {}
    about: Object = {
        "name": name,
        "namespace": namespace,
        "uid": uid,
        "labels": dict(labels or {}),
        "annotations": {},
    }
    if owner is not None:
        about["ownerReferences"] = [owner]
    condition = {"status": "True", "lastTransitionTime": rfc3339(since)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": about | {"creationTimestamp": rfc3339(since)},
        "spec": {
            "nodeName": node,
            "containers": [{"name": container, "image": f"{container}:7", "resources": {"limits": limits}}],
        },
        "status": {
            "phase": "Running",
            "podIP": address,
            "conditions": [{"type": "PodScheduled", **condition}, {"type": "Ready", **condition}],
        },
    }


def tenant_job(namespace: str, name: str, since: datetime, spec: Object) -> Object:
    """A Job that trains nothing."""
    about = {"name": name, "namespace": namespace, "uid": _uid(f"job/{namespace}/{name}")}
    about["creationTimestamp"] = rfc3339(since)
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": spec, "status": {"active": 1}}


def concluded(thing: Object, last: str) -> Object:
    """The same Job once it is `Complete` or `Failed`."""
    return thing | {"status": {"conditions": [{"type": last, "status": "True"}]}}


def unscheduled(thing: Object, at: datetime) -> Object:
    """The same pod while no node has room for it."""
    condition = {
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": rfc3339(at)
    }  # fmt: skip
    spec = {name: part for name, part in thing["spec"].items() if name != "nodeName"}
    return thing | {"spec": spec, "status": {"phase": "Pending", "conditions": [condition]}}


def restarted(thing: Object, at: datetime, exit_code: int, count: int) -> Object:
    """The same pod after its container has ended and was started again, for the `count`th time."""
    last = {"terminated": {"exitCode": exit_code, "reason": "OOMKilled" if exit_code == 137 else "Error",
                           "finishedAt": rfc3339(at)}}  # fmt: skip
    name = thing["spec"]["containers"][0]["name"]
    container = {
        "name": name,
        "restartCount": count,
        "state": {"running": {"startedAt": rfc3339(at)}},
        "lastState": last,
    }
    return thing | {"status": thing["status"] | {"containerStatuses": [container]}}


def ended(thing: Object, phase: str, at: datetime, exit_code: int, *, reason: str | None = None) -> Object:
    """The same pod after its container has ended."""
    terminated = {"exitCode": exit_code, "finishedAt": rfc3339(at)} | ({"reason": reason} if reason else {})
    state = {"terminated": terminated}
    status = thing["status"] | {
        "phase": phase,
        "conditions": _without_ready(thing, lastTransitionTime=rfc3339(at)),
        "containerStatuses": [{"name": thing["spec"]["containers"][0]["name"], "state": state}],
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
        "MPIJob": ("MPIJob", "kubeflow.org/v2beta1"),
        "RayCluster": ("RayCluster", "ray.io/v1"),
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
    if kind == "MPIJob":
        prefix = "training.kubeflow.org/"
        return {
            f"{prefix}job-name": job_name,
            f"{prefix}job-role": "worker",
            f"{prefix}replica-index": str(index),
        }, {}
    if kind == "RayCluster":
        return {"ray.io/cluster": job_name, "ray.io/node-type": "worker"}, {}
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


def _mpi(pods: int) -> tuple[str, Object]:
    roles = {"Launcher": {"replicas": 1}, "Worker": {"replicas": pods, "template": _template()}}
    return "kubeflow.org/v2beta1", {"slotsPerWorker": GPUS, "mpiReplicaSpecs": roles}


def _ray(pods: int) -> tuple[str, Object]:
    group = {"groupName": "gpu", "replicas": pods, "template": _template()}
    return "ray.io/v1", {"headGroupSpec": {}, "workerGroupSpecs": [group]}


_SPECS = {
    "MPIJob": _mpi,
    "RayCluster": _ray,
    "PyTorchJob": _pytorch,
    "Job": _batch,
    "JobSet": _jobset,
    "VolcanoJob": _volcano,
    "LeaderWorkerSet": _leader_worker,
}
