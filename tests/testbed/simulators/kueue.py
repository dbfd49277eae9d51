"""Kueue, in small: a queue with a quota of pods. Source: Kueue, "Workload", "Admission", "Run Jobs", API reference v1beta2.

- a job with the label of a queue gets one Workload of a hashed name, which it owns, with its uid as a label; it is suspended
- the oldest Workload that fits the quota is admitted: `status.admission`, QuotaReserved and Admitted are True; the job is started
- whoever starts a job that is not admitted, or suspends one that is, is reverted
- `spec.active: false` evicts: Evicted is True with the reason Deactivated, Requeued is False; the job is suspended, and once its
  pods have ended the admission is removed, QuotaReserved and Admitted are False
- `spec.active: true` queues it again: Requeued is True with the reason Reactivated, `requeueState` is reset
- one that Kueue itself deactivates (too many requeues, ran too long) says why after "due to" in the message
- one whose job has ended is Finished
- with a topology (`replaces`) the nodes of an admitted Workload's pods are in its `topologyAssignment`; where one of them can
  take no pods and those of the Workload there are gone, it is in `status.unhealthyNodes` until another is found; a second one
  evicts the Workload with the reason NodeFailures ("Topology Aware Scheduling"). The real one gates the pods and picks the
  node; here the scheduler does, and its choice is written down

The Jobs and their controller, the scheduler and the pods are the real ones.
"""

from __future__ import annotations

from collections.abc import Sequence

from connectors.jobs.job_objects import pods_of
from connectors.jobs.kueue_topology import HOSTNAME, assigned_nodes, unhealthy_nodes
from connectors.jobs.kueue_workload import JOB_UID, holds_quota, is_active, path_of_workload
from connectors.jobs.resume_check import unfinished
from connectors.kubernetes.client import Cluster, Object, path_of
from streams.job_kinds.kind import JobKind
from streams.job_kinds.known import KNOWN
from streams.job_kinds.kueue import QUEUE_NAME, queue_of
from streams.model.clock import rfc3339, utc_now
from streams.model.kube_objects import condition, holds
from tests.testbed.simulators.reconciler import NamespaceReconciler

VERSION = "kueue.x-k8s.io/v1beta2"
CLUSTER_QUEUE = "gpus"


class Kueue(NamespaceReconciler):
    """Reconciles the jobs of one namespace, again and again. `quota` is how many pods may run at once; it may be changed."""

    def __init__(
        self, cluster: Cluster, namespace: str, *, kinds: Sequence[str] = ("Job",), quota: int = 100
    ) -> None:
        super().__init__(cluster, namespace)
        self._kinds = [KNOWN[name] for name in kinds]
        self.quota = quota
        self.replaces: bool | None = None
        """Whether it finds other nodes for unhealthy ones; None without a topology."""
        self.deactivates: dict[str, str] = {}
        """Names of jobs whose Workloads it deactivates itself, and why."""

    async def reconcile(self) -> None:
        """One step for every job that has a queue."""
        known = {
            (one["metadata"].get("labels") or {}).get(JOB_UID): one
            for one in await self._cluster.list_all(self._at("workloads"))
        }
        for kind in self._kinds:
            path = path_of(kind.api_versions[0], kind.plural, namespace=self._namespace)
            for job in await self._cluster.list_all(path):
                if queue_of(job) is None or job["metadata"].get("deletionTimestamp"):
                    continue
                workload = known.get(job["metadata"]["uid"])
                if workload is None:
                    await self._cluster.create(self._at("workloads"), _workload_for(job, kind))
                else:
                    await self._judge(job, kind, workload, list(known.values()))

    async def _judge(
        self, job: Object, kind: JobKind, workload: Object, all_of_them: Sequence[Object]
    ) -> None:
        if kind.end(job) is not None:
            if not holds(workload, "Finished"):
                await self._tell(workload, {"Finished": ("True", "Succeeded", "")}, admission=None)
            return
        why = self.deactivates.get(str(job["metadata"]["name"]))
        if why is not None and is_active(workload):
            await self._cluster.patch(path_of_workload(workload), {"spec": {"active": False}})
            return
        if not is_active(workload) and condition(workload, "Requeued").get("status") != "False":
            text = "The workload is deactivated" + (f" due to {why}" if why else "")
            conditions = {
                "Evicted": ("True", "Deactivated", text),
                "Requeued": ("False", "Deactivated", text),
            }
            await self._tell(workload, conditions)
            return
        if holds(workload, "Evicted") and holds_quota(workload):
            await self._suspend(job, kind, True)
            if kind.is_suspended(job) and not unfinished(await pods_of(self._cluster, kind, job)):
                text = condition(workload, "Evicted")["message"]
                gone = {
                    "QuotaReserved": ("False", "Pending", text),
                    "Admitted": ("False", "NoReservation", text),
                }
                await self._tell(workload, gone, admission=None)
            return
        if is_active(workload) and condition(workload, "Requeued").get("status") == "False":
            text = "The workload is reactivated"
            await self._tell(workload, {"Requeued": ("True", "Reactivated", text)}, requeueState=None)
            return
        if is_active(workload) and not holds_quota(workload):
            await self._admit(workload, all_of_them)
        await self._suspend(job, kind, not holds_quota(workload))
        if self.replaces is not None and holds_quota(workload) and not holds(workload, "Evicted"):
            await self._place(workload, unfinished(await pods_of(self._cluster, kind, job)))

    async def _place(self, workload: Object, pods: Sequence[Object]) -> None:
        """Keep the assignment in step with where the pods are, and nodes that fail out of it."""
        known, bad = assigned_nodes(workload), set(unhealthy_nodes(workload))
        placed = {str(pod["spec"]["nodeName"]) for pod in pods if pod["spec"].get("nodeName")}
        closed = {
            str(node["metadata"]["name"])
            for node in await self._cluster.list_all(path_of("v1", "nodes"))
            if node["spec"].get("unschedulable")
        }
        failed = (known & closed) - placed
        if len(failed | bad) > 1:
            text = "Workload eviction triggered due to multiple node failures"
            await self._tell(workload, {"Evicted": ("True", "NodeFailures", text)}, unhealthyNodes=None)
        elif failed - bad:
            await self._tell(workload, {}, unhealthyNodes=[{"name": name} for name in sorted(failed)])
        elif (not bad or self.replaces) and (
            len([pod for pod in pods if pod["spec"].get("nodeName")]) >= _pods(workload) and placed != known
        ):
            assigned = {
                "levels": [HOSTNAME],
                "slices": [
                    {
                        "domainCount": len(placed),
                        "valuesPerLevel": [{"individual": {"roots": sorted(placed)}}],
                    }
                ],
            }
            sets = [{"name": "main", "count": _pods(workload), "topologyAssignment": assigned}]
            admission = {"clusterQueue": CLUSTER_QUEUE, "podSetAssignments": sets}
            await self._tell(workload, {}, admission=admission, unhealthyNodes=None)

    async def _admit(self, workload: Object, all_of_them: Sequence[Object]) -> None:
        """Reserve quota, if it fits and nobody is before it."""
        waiting = sorted(
            (
                one
                for one in all_of_them
                if is_active(one) and not holds_quota(one) and not holds(one, "Finished")
            ),
            key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"]),
        )
        used = sum(_pods(one) for one in all_of_them if holds_quota(one))
        if (
            waiting[0]["metadata"]["uid"] != workload["metadata"]["uid"]
            or used + _pods(workload) > self.quota
        ):
            lacks = used + _pods(workload) - self.quota
            text = f"couldn't assign flavors to pod set main: insufficient unused quota for pods, {lacks} more needed"
            if condition(workload, "QuotaReserved").get("message") != text:
                await self._tell(workload, {"QuotaReserved": ("False", "Pending", text)})
            return
        admitted = {
            "QuotaReserved": ("True", "QuotaReserved", f"Quota reserved in ClusterQueue {CLUSTER_QUEUE}"),
            "Admitted": ("True", "Admitted", f"The workload is admitted by ClusterQueue {CLUSTER_QUEUE}"),
            "Evicted": ("False", "QuotaReserved", "Previously: the workload was evicted"),
        }
        if not condition(workload, "Evicted"):
            admitted.pop("Evicted")
        sets = [{"name": "main", "count": _pods(workload)}]
        await self._tell(
            workload, admitted, admission={"clusterQueue": CLUSTER_QUEUE, "podSetAssignments": sets}
        )

    async def _tell(
        self, workload: Object, conditions: dict[str, tuple[str, str, str]], **status: object
    ) -> None:
        """Write conditions (status, reason, message) and other fields of the status, on what was read."""
        about, now = workload["metadata"], rfc3339(utc_now())
        kept = [
            one
            for one in (workload.get("status") or {}).get("conditions") or []
            if one["type"] not in conditions
        ]
        new = [
            {"type": kind, "status": state, "reason": reason, "message": message, "lastTransitionTime": now}
            for kind, (state, reason, message) in conditions.items()
        ]
        read = {"uid": about["uid"], "resourceVersion": about["resourceVersion"]}
        body = {"metadata": read, "status": {"conditions": kept + new, **status}}
        await self._cluster.patch(f"{path_of_workload(workload)}/status", body)

    async def _suspend(self, job: Object, kind: JobKind, value: bool) -> None:
        if kind.is_suspended(job) is not value:
            about = job["metadata"]
            path = path_of(kind.api_versions[0], kind.plural, namespace=self._namespace, name=about["name"])
            read = {"uid": about["uid"], "resourceVersion": about["resourceVersion"]}
            await self._cluster.patch(path, {"metadata": read, **kind.suspend(value)})

    def _at(self, plural: str) -> str:
        return path_of(VERSION, plural, namespace=self._namespace)


def local_queue(name: str, namespace: str) -> Object:
    """A LocalQueue of the one ClusterQueue that there is."""
    return {
        "apiVersion": VERSION,
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": CLUSTER_QUEUE},
    }


def queued(job: Object, queue: str = "team") -> Object:
    """A job that Kueue is to admit, suspended as its webhook leaves it."""
    kind = KNOWN[job["kind"]]
    job["metadata"].setdefault("labels", {})[QUEUE_NAME] = queue
    at, (*path, last) = job, kind.suspend_at
    for step in path:
        at = at.setdefault(step, {})
    at[last] = True
    return job


def _workload_for(job: Object, kind: JobKind) -> Object:
    about = job["metadata"]
    owner = {
        "apiVersion": kind.api_versions[0],
        "kind": kind.kind or kind.name,
        "name": about["name"],
        "uid": about["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": VERSION,
        "kind": "Workload",
        "metadata": {
            "name": f"{kind.name.lower()}-{about['name']}-{about['uid'][:5]}",
            "labels": {JOB_UID: about["uid"]},
            "ownerReferences": [owner],
        },
        "spec": {
            "active": True,
            "queueName": queue_of(job),
            "podSets": [{"name": "main", "count": kind.pods(job)}],
        },
    }


def _pods(workload: Object) -> int:
    return sum(int(one["count"]) for one in workload["spec"]["podSets"])
