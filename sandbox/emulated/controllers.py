"""The parts of a cluster that act on objects: job controllers, a gang scheduler, kubelets. Small, and like the real ones
where Faultline depends on them.

Each is a function of the store and the time, called whenever something has changed or some time has passed; its only memory is
when it saw something first. So a test moves the clock instead of waiting.

- A suspended job's pods are deleted and its condition `Suspended` is set; a resumed one gets new pods, with new uids.
- A pod is placed where its GPUs fit on a Ready, uncordoned node whose taints it tolerates; the pods of a job all at once or none.
- A kubelet starts and ends pods after short delays. One that is silent does neither: its pods stay in Terminating, and
  after a while its node is NotReady and tainted, as the node controller does it. Once such a node is declared out of
  service, the garbage collector takes its Terminating pods away.

Simpler than the real ones: pods of a Job bear its name and index without a random suffix, so a new one has to wait until the
old one is gone (as those of a PyTorchJob really do); nothing is evicted from a node for being NotReady.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sandbox.emulated.store import (
    JOBS,
    NODES,
    PODS,
    PYTORCH_JOBS,
    ApiError,
    Kind,
    Object,
    Store,
    condition,
    holds,
    with_condition,
)
from streams.model.clock import rfc3339

GPU = "nvidia.com/gpu"
UNREACHABLE = "node.kubernetes.io/unreachable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
JOB_NAME, INDEX = "batch.kubernetes.io/job-name", "batch.kubernetes.io/job-completion-index"
KUBEFLOW = "training.kubeflow.org"


@dataclass(frozen=True, slots=True)
class ControllerPace:
    """How long things take, in seconds."""

    start_s: float = 0.6
    """From placed to Running and Ready: image, volumes, containers."""
    stop_s: float = 0.4
    """From Terminating to gone."""
    silent_s: float = 1.5
    """From the kubelet's last report to NotReady; really about 50 s."""
    collect_s: float = 0.5
    """From a node's being out of service to the end of its Terminating pods; really up to 20 s."""


@dataclass(slots=True)
class Controllers:
    """All controllers of one cluster. `silent` are nodes whose kubelet does not report; `gpus` overrides what a node offers."""

    store: Store
    pace: ControllerPace = field(default_factory=ControllerPace)
    silent: set[str] = field(default_factory=set)
    gpus: dict[str, int] = field(default_factory=dict)
    _seen: dict[str, datetime] = field(default_factory=dict)

    def step(self) -> None:
        """Run every controller once."""
        for job in list(self.store.list(JOBS)):
            self._batch_job(job)
        for job in list(self.store.list(PYTORCH_JOBS)):
            self._pytorch_job(job)
        self._schedule()
        for node in list(self.store.list(NODES)):
            self._kubelet(node)
            self._collect(node)

    def _batch_job(self, job: Object) -> None:
        spec, name = job["spec"], job["metadata"]["name"]
        count = min(spec.get("parallelism", 1), spec.get("completions", spec.get("parallelism", 1)))
        wanted = {}
        for index in range(count):
            labels = {JOB_NAME: name, "job-name": name, INDEX: str(index)}
            wanted[f"{name}-{index}"] = (spec["template"], labels, str(index))
        self._reconcile(JOBS, job, bool(spec.get("suspend")), wanted)

    def _pytorch_job(self, job: Object) -> None:
        spec, name = job["spec"], job["metadata"]["name"]
        wanted, rank = {}, 0
        for role, about in sorted(spec["pytorchReplicaSpecs"].items(), key=lambda item: item[0] != "Master"):
            for index in range(about.get("replicas", 1)):
                labels = {
                    f"{KUBEFLOW}/job-name": name,
                    f"{KUBEFLOW}/operator-name": "pytorchjob-controller",
                    f"{KUBEFLOW}/replica-type": role.lower(),
                    f"{KUBEFLOW}/replica-index": str(index),
                }
                wanted[f"{name}-{role.lower()}-{index}"] = (about["template"], labels, str(rank))
                rank += 1
        self._reconcile(PYTORCH_JOBS, job, bool((spec.get("runPolicy") or {}).get("suspend")), wanted)

    def _reconcile(
        self,
        kind: Kind,
        job: Object,
        suspended: bool,
        wanted: Mapping[str, tuple[Object, dict[str, str], str]],
    ) -> None:
        """Bring the job's pods to `wanted` (by name), or to none when it is suspended, and update its status."""
        about = job["metadata"]
        have = {p["metadata"]["name"]: p for p in self.store.list(PODS) if _owner(p) == about["uid"]}
        for pod in have.values():
            over = pod["status"].get("phase") in ("Failed", "Succeeded")
            if (suspended or over) and "deletionTimestamp" not in pod["metadata"]:
                self.store.delete(PODS, about["namespace"], pod["metadata"]["name"])
        if not suspended:
            for name in wanted.keys() - have.keys():
                template, labels, index = wanted[name]
                self._create_pod(kind, job, name, template, labels, index)
        self._job_status(kind, job, suspended, have.values(), len(wanted))

    def _create_pod(
        self, kind: Kind, job: Object, name: str, template: Object, labels: dict[str, str], index: str
    ) -> None:
        pod = copy.deepcopy(template)
        about = job["metadata"]
        given = pod.setdefault("metadata", {})
        given |= {"name": name, "labels": {**given.get("labels", {}), **labels}}
        if kind == JOBS:
            given["annotations"] = {**given.get("annotations", {}), INDEX: index}
        owner = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "name": about["name"],
            "uid": about["uid"],
        }
        given["ownerReferences"] = [owner | {"controller": True, "blockOwnerDeletion": True}]
        pod["status"] = {"phase": "Pending", "conditions": []}
        try:
            self.store.create(PODS, about["namespace"], pod)
        except ApiError as error:
            if error.status != 409:
                raise  # a foreign pod holds the name: like the real controllers, try again in the next step

    def _job_status(
        self, kind: Kind, job: Object, suspended: bool, pods: Iterable[Object], wanted: int
    ) -> None:
        now = self.store.clock()
        ready = sum(1 for pod in pods if holds(pod, "Ready"))
        reason = "JobSuspended" if suspended else "JobResumed"
        changed = job
        if suspended or holds(job, "Suspended"):
            changed = with_condition(changed, condition("Suspended", suspended, reason, now))
        else:
            changed = copy.deepcopy(changed)
        status = changed.setdefault("status", {})
        if kind == JOBS:
            status |= {"active": 0 if suspended else wanted, "ready": ready}
        else:
            changed = with_condition(
                changed, condition("Running", ready == wanted and not suspended, "JobRunning", now)
            )
        self.store.put(kind, changed)

    def _schedule(self) -> None:
        gangs: dict[str, list[Object]] = {}
        for pod in self.store.list(PODS):
            if not pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]:
                gangs.setdefault(_owner(pod) or pod["metadata"]["uid"], []).append(pod)
        for pods in gangs.values():
            self._place(pods)

    def _place(self, pods: list[Object]) -> None:
        """Schedule all of these pods, or none with the reason in their status."""
        nodes = self.store.list(NODES)
        free = {node["metadata"]["name"]: _allocatable(node) for node in nodes}
        for pod in self.store.list(PODS):
            where = pod["spec"].get("nodeName")
            if where in free and pod["status"].get("phase") not in ("Failed", "Succeeded"):
                free[where] -= gpus_of(pod)
        placed: list[tuple[Object, str]] = []
        for pod in sorted(pods, key=lambda p: str(p["metadata"]["name"])):
            fits = [n for n in nodes if _is_open(n, pod) and free[n["metadata"]["name"]] >= gpus_of(pod)]
            if not fits:
                self._unschedulable(pods, nodes)
                return
            name = str(fits[0]["metadata"]["name"])
            free[name] -= gpus_of(pod)
            placed.append((pod, name))
        for pod, name in placed:
            now = self.store.clock()
            changed = with_condition(pod, condition("PodScheduled", True, "Scheduled", now))
            changed["spec"]["nodeName"] = name
            self.store.put(PODS, changed)

    def _unschedulable(self, pods: list[Object], nodes: list[Object]) -> None:
        closed = sum(1 for node in nodes if not _is_open(node, pods[0]))
        message = (
            f"0/{len(nodes)} nodes are available: {closed} node(s) were unschedulable or not ready, "
            f"{len(nodes) - closed} Insufficient {GPU}."
        )
        for pod in pods:
            why = condition("PodScheduled", False, "Unschedulable", self.store.clock(), message)
            self.store.put(PODS, with_condition(pod, why))

    def _kubelet(self, node: Object) -> None:
        name = str(node["metadata"]["name"])
        self._node_status(node, name)
        if name in self.silent:
            return
        for pod in self.store.list(PODS):
            if pod["spec"].get("nodeName") != name:
                continue
            if "deletionTimestamp" in pod["metadata"]:
                if self._since(f"stop/{pod['metadata']['uid']}") >= self.pace.stop_s:
                    self.store.remove(PODS, pod)
            elif (
                pod["status"].get("phase") == "Pending"
                and self._since(f"start/{pod['metadata']['uid']}") >= self.pace.start_s
            ):
                self.store.put(PODS, self._started(pod, name))

    def _collect(self, node: Object) -> None:
        """Remove what is Terminating on a node that is out of service and not ready, as the pod garbage collector does."""
        name, taints = node["metadata"]["name"], node["spec"].get("taints") or []
        if holds(node, "Ready") or all(taint["key"] != OUT_OF_SERVICE for taint in taints):
            self._seen.pop(f"out-of-service/{name}", None)
        elif self._since(f"out-of-service/{name}") >= self.pace.collect_s:
            for pod in self.store.list(PODS):
                if pod["spec"].get("nodeName") == name and "deletionTimestamp" in pod["metadata"]:
                    self.store.remove(PODS, pod)

    def _started(self, pod: Object, node: str) -> Object:
        now = self.store.clock()
        changed = with_condition(pod, condition("Ready", True, "PodReady", now))
        changed = with_condition(changed, condition("ContainersReady", True, "PodReady", now))
        host = int(node.rpartition("-")[2]) if node.rpartition("-")[2].isdigit() else 0
        running = {"running": {"startedAt": rfc3339(now.replace(microsecond=0))}}
        changed["status"] |= {
            "phase": "Running",
            "startTime": rfc3339(now.replace(microsecond=0)),
            "hostIP": f"10.64.0.{host}",
            "podIP": f"10.80.{host}.{int(changed['metadata']['resourceVersion']) % 250 + 1}",
            "containerStatuses": [
                {"name": c["name"], "ready": True, "restartCount": 0, "state": running}
                for c in changed["spec"]["containers"]
            ],
        }
        return changed

    def _node_status(self, node: Object, name: str) -> None:
        now = self.store.clock()
        gone = name in self.silent and self._since(f"silent/{name}") >= self.pace.silent_s
        if name not in self.silent:
            self._seen.pop(f"silent/{name}", None)
        if gone:
            why = "Kubelet stopped posting node status."
            changed = with_condition(node, condition("Ready", None, "NodeStatusUnknown", now, why))
        else:
            changed = with_condition(node, condition("Ready", True, "KubeletReady", now))
        taints = [t for t in changed["spec"].get("taints") or [] if t["key"] != UNREACHABLE]
        if gone:
            taints.append({"key": UNREACHABLE, "effect": "NoSchedule"})
        if taints or "taints" in changed["spec"]:
            changed["spec"]["taints"] = taints
        capacity = int((changed["status"].get("capacity") or {}).get(GPU, 0))
        changed["status"].setdefault("allocatable", {})[GPU] = str(self.gpus.get(name, capacity))
        self.store.put(NODES, changed)

    def _since(self, what: str) -> float:
        """Seconds since this was first asked for."""
        now = self.store.clock()
        return (now - self._seen.setdefault(what, now)).total_seconds()


def gpus_of(pod: Mapping[str, Any]) -> int:
    """GPUs that a pod asks for."""
    limits = [(c.get("resources") or {}).get("limits") or {} for c in pod["spec"]["containers"]]
    return sum(int(limit.get(GPU, 0)) for limit in limits)


def _allocatable(node: Mapping[str, Any]) -> int:
    return int((node.get("status", {}).get("allocatable") or {}).get(GPU, 0))


def _owner(pod: Mapping[str, Any]) -> str | None:
    owners = pod["metadata"].get("ownerReferences") or []
    return next((str(o["uid"]) for o in owners if o.get("controller")), None)


def _is_open(node: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    if node["spec"].get("unschedulable") or not holds(node, "Ready"):
        return False
    closing = [t for t in node["spec"].get("taints") or [] if t["effect"] in ("NoSchedule", "NoExecute")]
    tolerations = pod["spec"].get("tolerations") or []
    return all(any(_tolerates(toleration, taint) for toleration in tolerations) for taint in closing)


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, taint["key"])
    return bool(
        toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", "")
    )
