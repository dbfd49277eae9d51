"""What a pod is to a drain, and what keeps it on its node. Pure, over Pod objects as the API server shows them.

system    DaemonSet, mirror and static pods, critical pods of kube-system, Faultline's own work on the node: left alone
training  of a known kind of job, or with GPUs and a mark of its gang: evicted with the time it asks for its checkpoint
service   whatever else a controller makes anew: evicted within its PodDisruptionBudgets
bare      no controller makes it anew: left unless the runbook says otherwise

Sources: Kubernetes, "Safely Drain a Node", "Guaranteed Scheduling For Critical Add-On Pods"; Karpenter, "Disruption" (pod-level
controls); Cluster Autoscaler FAQ ("What types of pods can prevent CA from removing a node?").
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, Self, cast

from connectors.kubernetes.annotations import DOMAIN, MANAGED, NODE_WORK, annotations_of, labels_of, opted_out
from connectors.kubernetes.client import Object
from connectors.kubernetes.gpu_devices import gpus_asked
from connectors.kubernetes.objects import controller
from connectors.kubernetes.out_of_service import hangs
from streams.job_kinds.known import KNOWN
from streams.model.clock import parse_rfc3339
from streams.model.kinds import WorkloadClass
from streams.model.signal import Attribute
from streams.model.slurmd_pod import is_slurmd

MIRROR = "kubernetes.io/config.mirror"
CHECKPOINT_GRACE = f"{DOMAIN}/checkpoint-grace"
"""Annotation of a pod: how long it may take to write its checkpoint once it is asked to end: `600`, `600s`, `10m`, `1h`."""
LONGEST_GRACE_S = 86400
WORKLOAD = f"{DOMAIN}/workload"
"""Label or annotation by which owners declare what a pod is for (`WorkloadClass`)."""
OWN_GRACE_S = 30
"""What Kubernetes gives a pod that names no grace period."""

NOBODY = "the lack of a controller that would recreate it"
OPT_OUT = f"its opt-out {MANAGED}=false"
SLURM = "Slurm, which has to drain its own node first"
RETURNS = "its toleration of the cordon, with which it came back"
LOCAL = "data in its local volumes"

_PROTECTIONS = (
    ("karpenter.sh/do-not-disrupt", "true"),
    ("karpenter.sh/do-not-evict", "true"),
    ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"),
)
_SAFE_VOLUMES = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
_CRITICAL = ("system-node-critical", "system-cluster-critical")
_GANG = frozenset(
    {
        "training.kubeflow.org/job-name",
        "jobset.sigs.k8s.io/jobset-name",
        "trainer.kubeflow.org/trainjob-ancestor-step",
        "batch.kubernetes.io/job-completion-index",
        "scheduling.k8s.io/group-name",
        "scheduling.x-k8s.io/pod-group",
        "volcano.sh/job-name",
        "kueue.x-k8s.io/pod-group-name",
        "ray.io/cluster",
    }
)
"""Labels and annotations that gang schedulers and controllers of jobs set on the pods of one world."""
_TRAINING_OWNERS = frozenset(kind.kind or kind.name for kind in KNOWN.values()) - {
    "LeaderWorkerSet",
    "DisaggregatedSet",
}
_SLURM_STATE = "SlurmNodeState"
"""What the conditions begin with by which slurm-operator tells, on a slurmd's pod, the state of its node of Slurm."""
_SLURM_BUSY = frozenset(f"{_SLURM_STATE}{state}" for state in ("Allocated", "Mixed", "Completing", "Undrain"))
_OTHERS = frozenset(WorkloadClass) - {WorkloadClass.TRAINING, WorkloadClass.UNKNOWN}
_SPAN = re.compile(r"(\d{1,6})([smh]?)")
_SYSTEM_PATHS = (
    "/dev",
    "/sys",
    "/proc",
    "/run",
    "/var/run",
    "/etc",
    "/lib",
    "/usr",
    "/boot",
    "/var/lib/kubelet",
)


class Role(StrEnum):
    """What a pod is to a drain."""

    SYSTEM = "system"
    TRAINING = "training"
    SERVICE = "service"
    BARE = "bare"


@dataclass(frozen=True, slots=True)
class DrainPolicy:
    """What a runbook allows a drain: its parameters. The less destructive reading counts for what is not set."""

    only: Literal["gpu", "all"] = "gpu"
    bare: bool = False
    protected: bool = False
    """Whether pods go that others protect from disruption."""
    local_data: Literal["keep", "scratch", "all"] = "scratch"
    """`scratch`: what pods keep in emptyDir and hostPath volumes may be left behind, volumes that are bound to the node not."""
    dead_node: bool = True
    fenced: bool = False
    """Whether a dead node has to be proven off before its pods are given up."""
    scope: Literal["node", "gpu"] = "node"
    """`gpu`: only pods that hold the incident's GPU, where that can be known."""
    device_taint: Literal["none", "NoSchedule", "NoExecute"] = "none"
    """With `scope: gpu`, where DRA gives out the GPU: the effect of a taint of the device."""

    @classmethod
    def of(cls, params: Mapping[str, Attribute]) -> Self | str:
        """The policy of a step's parameters, or what is wrong with them."""
        known: dict[str, tuple[Attribute, ...]] = {
            "only": ("gpu", "all"),
            "bare": (False, True),
            "protected": (False, True),
            "local_data": ("keep", "scratch", "all"),
            "dead_node": (False, True),
            "fenced": (False, True),
            "scope": ("node", "gpu"),
            "device_taint": ("none", "NoSchedule", "NoExecute"),
        }
        for name, values in known.items():
            if name in params and params[name] not in values:
                listed = " and ".join(str(value).lower() for value in values)
                return f"drain_node: `{name}` is {params[name]!r}, known are {listed}"
        return cls(**cast(Any, {name: params[name] for name in known if name in params}))


def role_of(pod: Object) -> Role:
    """What the pod is to a drain."""
    owner = controller(pod)
    if MIRROR in annotations_of(pod) or NODE_WORK in labels_of(pod) or _is_critical(pod):
        return Role.SYSTEM
    if owner is None:
        return Role.BARE
    if owner.get("kind") in ("DaemonSet", "Node"):
        return Role.SYSTEM
    return Role.TRAINING if _trains(pod, str(owner.get("kind"))) else Role.SERVICE


def grace_s(pod: Object) -> int | None:
    """Seconds that the pod gets to end instead of its own grace period; None where that one is as long or longer."""
    asked = asked_grace_s(pod)
    own = pod.get("spec", {}).get("terminationGracePeriodSeconds")
    return asked if asked is not None and asked > (OWN_GRACE_S if own is None else own) else None


def asked_grace_s(pod: Object) -> int | None:
    """Seconds by the annotation `CHECKPOINT_GRACE`, a day at most; None where it is missing or unreadable."""
    found = _SPAN.fullmatch(annotations_of(pod).get(CHECKPOINT_GRACE, "").strip())
    if found is None:
        return None
    return min(LONGEST_GRACE_S, int(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]])


def kept_by(pod: Object, policy: DrainPolicy, pinned: str = "") -> str:
    """What keeps a pod on its node, whatever a budget says; empty where it may go.

    `pinned` names its volumes that only this node has.
    """
    if opted_out(pod):
        return OPT_OUT
    owner = controller(pod)
    if owner is None and not policy.bare:
        return NOBODY
    if is_slurmd(pod) and not _is_drained_by_slurm(pod):
        return SLURM
    if not policy.protected and (name := _protection(pod)):
        return f"the annotation {name}"
    if pinned and policy.local_data != "all":
        return f"{LOCAL} ({pinned})"
    if policy.local_data == "keep" and (left := scratch(pod)):
        return f"{LOCAL} ({', '.join(left)})"
    return ""


def scratch(pod: Object) -> list[str]:
    """Names of its volumes whose content it does not find again elsewhere: emptyDir on disk, and folders of the node."""
    if annotations_of(pod).get("cluster-autoscaler.kubernetes.io/safe-to-evict") == "true":
        return []
    safe = {name.strip() for name in annotations_of(pod).get(_SAFE_VOLUMES, "").split(",")}
    read_only = _read_only(pod)
    found = []
    for volume in pod.get("spec", {}).get("volumes") or []:
        name, empty, host = str(volume.get("name")), volume.get("emptyDir"), volume.get("hostPath")
        on_disk = empty is not None and empty.get("medium", "") != "Memory"
        if (
            on_disk or (host is not None and _holds_data(host) and name not in read_only)
        ) and name not in safe:
            found.append(name)
    return found


def tolerates_cordon(pod: Object) -> bool:
    """Whether the scheduler may put such a pod on a cordoned node."""
    return any(
        (one.get("key") or "") in ("", "node.kubernetes.io/unschedulable")
        and (one.get("effect") or "") in ("", "NoSchedule")
        and one.get("operator") == "Exists"
        for one in pod.get("spec", {}).get("tolerations") or []
    )


def holds_up(pod: Object, now: datetime, *, node_ready: bool) -> str:
    """What a Terminating pod waits for."""
    ends = parse_rfc3339(str(pod["metadata"]["deletionTimestamp"]))
    if not hangs(pod, now):
        return f"has until {ends:%H:%M:%S} to end"
    finalizers = pod["metadata"].get("finalizers") or []
    if finalizers:
        why = f"finalizer {', '.join(map(str, finalizers[:3]))}"
    elif not node_ready:
        why = "the kubelet of its node does not answer"
    else:
        why = "its containers have not ended"
    owner = controller(pod) or {}
    name = (
        ", and its StatefulSet cannot make it anew before it is gone"
        if owner.get("kind") == "StatefulSet"
        else ""
    )
    return f"stuck Terminating since {ends:%H:%M:%S}: {why}{name}"


def asks_for_gpu(pod: Object) -> bool:
    """By the name of an extended resource, or by a claim of a device (DRA), whatever that device is."""
    return bool(gpus_asked(pod) or pod.get("spec", {}).get("resourceClaims"))


def _trains(pod: Object, owner: str) -> bool:
    written = {**annotations_of(pod), **labels_of(pod)}
    declared = written.get(WORKLOAD)
    if declared in (WorkloadClass.TRAINING, *_OTHERS):
        return declared == WorkloadClass.TRAINING
    if written.get("ray.io/originated-from-crd") == "RayService":
        return False
    if owner in _TRAINING_OWNERS:
        return True
    gang = not _GANG.isdisjoint(written) or bool(pod.get("spec", {}).get("schedulingGroup"))
    return gang and asks_for_gpu(pod)


def _is_drained_by_slurm(pod: Object) -> bool:
    """Whether Slurm starts no job on it and none is left, as slurm-operator tells in conditions; False where it does not tell."""
    states = {
        str(one.get("type"))
        for one in pod.get("status", {}).get("conditions") or []
        if one.get("status") == "True" and str(one.get("type")).startswith(_SLURM_STATE)
    }
    return f"{_SLURM_STATE}Drain" in states and states.isdisjoint(_SLURM_BUSY)


def _is_critical(pod: Object) -> bool:
    system = pod["metadata"].get("namespace") == "kube-system"
    return system and pod.get("spec", {}).get("priorityClassName") in _CRITICAL


def _protection(pod: Object) -> str:
    written = annotations_of(pod)
    return next((name for name, value in _PROTECTIONS if written.get(name) == value), "")


def _holds_data(host: Mapping[str, Any]) -> bool:
    """Whether a hostPath volume may hold what the pod wrote: devices, sockets and the system's own folders do not."""
    path = str(host.get("path") or "/")
    system = any(path == one or path.startswith(f"{one}/") for one in _SYSTEM_PATHS)
    return not system and host.get("type", "") in ("", "Directory", "DirectoryOrCreate")


def _read_only(pod: Object) -> set[str]:
    """Names of the volumes that no container of the pod may write."""
    spec = pod.get("spec", {})
    writes: dict[str, bool] = {}
    for container in (*(spec.get("containers") or []), *(spec.get("initContainers") or [])):
        for mount in container.get("volumeMounts") or []:
            name = str(mount.get("name"))
            writes[name] = writes.get(name, False) or not mount.get("readOnly", False)
    return {name for name, writing in writes.items() if not writing}
