"""The controller of JobSets, in small. Source: JobSet, "API reference", "Failure policy", "Suspend and resume".

- each replicated job makes `replicas` batch Jobs, named `SET-REPLICATED-INDEX`, which the set controls
- Jobs and pods bear the set's name, that of the replicated job, the index and the restart attempt as labels
- `spec.suspend` suspends every Job that is not over, and shows as the condition Suspended; reset, they are resumed
- one that is created suspended makes its Jobs suspended
- a failed Job restarts the whole set: all Jobs of the former attempt are deleted and made anew, and the restart is counted
- without a failure policy, or with no restart left, a failed Job fails the set for good; then its other Jobs are deleted
- when all Jobs are complete the set is
- `status.replicatedJobsStatus` counts Jobs that are ready, succeeded, failed, active and suspended
- one that `managedBy` gives to somebody else is left alone

The Job controller and the garbage collector are the real ones.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from connectors.kubernetes.client import Object, path_of
from streams.job_kinds.healing import restarts_used
from streams.job_kinds.job_set import JOB_INDEX, JOB_SET, NAME, ROLE
from streams.job_kinds.kind import managed_elsewhere, pods_of_job_spec
from streams.model.kube_objects import holds, part
from tests.testbed import workloads
from tests.testbed.simulators.reconciler import Reconciler, reference_to, with_condition

ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"


class JobSets(Reconciler):
    """Reconciles all JobSets of one namespace; all that it knows of them is in the objects."""

    api_version = JOB_SET.api_versions[0]
    plural = JOB_SET.plural

    async def reconcile(self, owner: Object) -> None:
        """One step towards what the set says."""
        if managed_elsewhere(owner) is not None:
            return
        status = owner.get("status") or {}
        attempt = status.get("restarts") or 0
        jobs = await self.made_by(owner, "batch/v1", "jobs")
        mine = [job for job in jobs if job["metadata"]["labels"][ATTEMPT] == str(attempt)]
        if JOB_SET.end(owner) is not None:
            await self._delete([job for job in mine if not _is_over(job)])
            return
        await self._delete([job for job in jobs if job not in mine])
        if any(holds(job, "Failed") for job in mine):
            await self._restart_or_fail(owner, attempt)
            return
        for name, replicated, index in _wanted(owner):
            if name not in [job["metadata"]["name"] for job in mine]:
                await self._create(owner, name, replicated, index, attempt)
        suspended = JOB_SET.is_suspended(owner)
        await self._suspend([job for job in mine if not _is_over(job)], suspended)
        await self._tell(owner, mine, suspended)

    async def _restart_or_fail(self, owner: Object, attempt: int) -> None:
        limit = part(owner, "spec", "failurePolicy").get("maxRestarts") or 0
        used = restarts_used(owner)
        if used < limit:
            await self.set_status(owner, restarts=attempt + 1, restartsCountTowardsMax=used + 1)
        else:
            reason = "ReachedMaxRestarts" if limit else "FailedJobs"
            conditions = with_condition(owner, "Failed", True, reason)
            await self.set_status(owner, conditions=conditions, terminalState="Failed")

    async def _suspend(self, jobs: list[Object], suspended: bool) -> None:
        for job in jobs:
            if bool(job["spec"].get("suspend")) != suspended:
                about = job["metadata"]
                read = {"uid": about["uid"], "resourceVersion": about["resourceVersion"]}
                path = path_of("batch/v1", "jobs", namespace=self.namespace, name=about["name"])
                await self.cluster.patch(path, {"metadata": read, "spec": {"suspend": suspended}})

    async def _tell(self, owner: Object, jobs: list[Object], suspended: bool) -> None:
        fields: dict[str, Any] = {"restarts": (owner.get("status") or {}).get("restarts") or 0}
        fields["replicatedJobsStatus"] = [
            _counted(name, [job for job in jobs if job["metadata"]["labels"][ROLE] == name])
            for name in (replicated["name"] for replicated in owner["spec"]["replicatedJobs"])
        ]
        if jobs and len(jobs) == len(_wanted(owner)) and all(holds(job, "Complete") for job in jobs):
            fields["conditions"] = with_condition(owner, "Completed", True, "AllJobsCompleted")
            fields["terminalState"] = "Completed"
        elif suspended or holds(owner, "Suspended"):
            reason = "SuspendedJobs" if suspended else "ResumeJobs"
            fields["conditions"] = with_condition(owner, "Suspended", suspended, reason)
        await self.set_status(owner, **fields)

    async def _create(self, owner: Object, name: str, replicated: Object, index: int, attempt: int) -> None:
        marks = {
            NAME: owner["metadata"]["name"],
            ROLE: replicated["name"],
            JOB_INDEX: str(index),
            ATTEMPT: str(attempt),
        }
        spec = deepcopy(replicated["template"]["spec"])
        about = spec["template"].setdefault("metadata", {})
        for where in ("labels", "annotations"):
            about[where] = (about.get(where) or {}) | marks
        labels = (part(replicated, "template", "metadata").get("labels") or {}) | marks
        made = {
            "metadata": {"name": name, "labels": labels, "ownerReferences": [reference_to(owner)]},
            "spec": spec | {"suspend": JOB_SET.is_suspended(owner)},
        }
        await self.cluster.create(path_of("batch/v1", "jobs", namespace=self.namespace), made)

    async def _delete(self, jobs: list[Object]) -> None:
        for job in jobs:
            about = job["metadata"]
            path = path_of("batch/v1", "jobs", namespace=self.namespace, name=about["name"])
            await self.cluster.delete(path, uid=about["uid"], propagation="Background")


def _wanted(owner: Object) -> list[tuple[str, Object, int]]:
    """The Jobs of a set: name, replicated job and index."""
    return [
        (f"{owner['metadata']['name']}-{replicated['name']}-{index}", replicated, index)
        for replicated in owner["spec"]["replicatedJobs"]
        for index in range(replicated.get("replicas", 1))
    ]


def _is_over(job: Object) -> bool:
    return holds(job, "Complete") or holds(job, "Failed")


def _counted(name: str, jobs: list[Object]) -> Object:
    def count(what: Any) -> int:
        return sum(bool(what(job)) for job in jobs)

    def is_ready(job: Object) -> bool:
        status = job.get("status") or {}
        done = (status.get("ready") or 0) + (status.get("succeeded") or 0)
        return bool(done >= pods_of_job_spec(job["spec"]))

    return {
        "name": name,
        "ready": count(is_ready),
        "succeeded": count(lambda job: holds(job, "Complete")),
        "failed": count(lambda job: holds(job, "Failed")),
        "active": count(lambda job: (job.get("status") or {}).get("active")),
        "suspended": count(lambda job: holds(job, "Suspended")),
    }


def job_set(
    name: str,
    namespace: str,
    *,
    pool: str,
    jobs: int = 2,
    pods: int = 2,
    gpus: int = 8,
    restarts: int | None = None,
    grace_s: int = 30,
) -> Object:
    """A set of `jobs` indexed Jobs of `pods` pods of `gpus` GPUs each, on the nodes of a pool."""
    job = workloads.indexed_job(name, namespace, pool=pool, pods=pods, gpus=gpus, grace_s=grace_s)
    spec = job["spec"] | {"backoffLimit": 0}
    made: Object = {
        "apiVersion": JOB_SET.api_versions[0],
        "kind": JOB_SET.name,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "suspend": False,
            "replicatedJobs": [{"name": "workers", "replicas": jobs, "template": {"spec": spec}}],
        },
    }
    if restarts is not None:
        made["spec"]["failurePolicy"] = {"maxRestarts": restarts}
    return made
