"""The controller of MPIJobs v2beta1, in small. Source: MPI operator, "API reference" (RunPolicy) and "Design" of v2beta1.

- workers are pods `JOB-worker-INDEX` that the MPIJob controls; the launcher is a batch Job `JOB-launcher`, which makes its pod
- all of them bear the job's name, the role and, but for the launcher, the index as labels
- `runPolicy.suspend` deletes the workers, suspends the launcher's Job and resets `startTime`; the condition Suspended tells it,
  and Running is False. Reset, the workers are made anew and the Job is resumed
- one that is created suspended makes no worker, and its launcher suspended
- the launcher ends the job: Succeeded or Failed, for good; running workers are deleted then
- `runPolicy.backoffLimit` is that of the launcher's Job; its failed pods are counted in `replicaStatuses`
- one that `managedBy` gives to somebody else is left alone

The Job controller and the garbage collector are the real ones.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, ClassVar

from connectors.kubernetes.client import Object, path_of
from streams.job_kinds.kind import managed_elsewhere
from streams.job_kinds.kubeflow import JOB_NAME
from streams.job_kinds.mpi_job import MPI_JOB
from streams.model.clock import utc_now
from streams.model.kube_objects import holds, part
from tests.testbed import workloads
from tests.testbed.simulators.reconciler import Reconciler, reference_to, with_condition

ROLE = "training.kubeflow.org/job-role"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"


class MPIJobs(Reconciler):
    """Reconciles all MPIJobs of one namespace; all that it knows of them is in the objects."""

    api_version: ClassVar[str] = "kubeflow.org/v2beta1"
    plural: ClassVar[str] = MPI_JOB.plural

    async def reconcile(self, owner: Object) -> None:
        """One step towards what the MPIJob says."""
        if managed_elsewhere(owner) is not None:
            return
        workers = await self.made_by(owner, "v1", "pods")
        if MPI_JOB.end(owner) is not None:
            await self._delete(workers)
            return
        suspended = MPI_JOB.is_suspended(owner)
        if suspended:
            await self._delete(workers)
        else:
            await self._workers(owner, workers)
        launcher = await self._launcher(owner, suspended)
        if launcher is not None:
            await self._tell(owner, launcher, suspended)

    async def _workers(self, owner: Object, there: list[Object]) -> None:
        worker = part(owner, "spec", "mpiReplicaSpecs", "Worker")
        names = {pod["metadata"]["name"] for pod in there}
        for index in range(worker.get("replicas", 1)):
            name = f"{owner['metadata']['name']}-worker-{index}"
            if name not in names:
                marks = {ROLE: "worker", REPLICA_TYPE: "worker", REPLICA_INDEX: str(index)}
                pod = _labelled(worker["template"], owner, marks)
                pod["metadata"] |= {"name": name, "ownerReferences": [reference_to(owner)]}
                await self.cluster.create(path_of("v1", "pods", namespace=self.namespace), pod)

    async def _launcher(self, owner: Object, suspended: bool) -> Object | None:
        """The launcher's Job, suspended as the MPIJob is; None when it was made or changed just now."""
        path = path_of("batch/v1", "jobs", namespace=self.namespace)
        jobs = await self.made_by(owner, "batch/v1", "jobs")
        if not jobs:
            await self.cluster.create(path, _launcher_job(owner, suspended))
            return None
        (job,) = jobs
        about = job["metadata"]
        if bool(job["spec"].get("suspend")) != suspended:
            read = {"uid": about["uid"], "resourceVersion": about["resourceVersion"]}
            await self.cluster.patch(
                f"{path}/{about['name']}", {"metadata": read, "spec": {"suspend": suspended}}
            )
            return None
        return job

    async def _tell(self, owner: Object, launcher: Object, suspended: bool) -> None:
        fields: dict[str, Any] = {}
        if failed := part(launcher, "status").get("failed"):
            fields["replicaStatuses"] = {"Launcher": {"failed": failed}}
        if holds(launcher, "Complete") or holds(launcher, "Failed"):
            kind = "Succeeded" if holds(launcher, "Complete") else "Failed"
            fields["conditions"] = with_condition(owner, kind, True, f"MPIJob{kind}")
        elif suspended or holds(owner, "Suspended"):
            reason = "MPIJobSuspended" if suspended else "MPIJobResumed"
            conditions = with_condition(owner, "Suspended", suspended, reason)
            fields["conditions"] = with_condition(
                {"status": {"conditions": conditions}}, "Running", not suspended, reason
            )
        if suspended:
            fields["startTime"] = None
        elif not part(owner, "status").get("startTime"):
            fields["startTime"] = utc_now().isoformat(timespec="seconds").replace("+00:00", "Z")
        await self.set_status(owner, **fields)

    async def _delete(self, pods: list[Object]) -> None:
        for pod in pods:
            about = pod["metadata"]
            path = path_of("v1", "pods", namespace=self.namespace, name=about["name"])
            await self.cluster.delete(path, uid=about["uid"])


def _labelled(template: Object, owner: Object, marks: dict[str, str]) -> Object:
    made = deepcopy(template)
    about = made.setdefault("metadata", {})
    about["labels"] = (about.get("labels") or {}) | marks | {JOB_NAME: owner["metadata"]["name"]}
    return made


def _launcher_job(owner: Object, suspended: bool) -> Object:
    launcher = part(owner, "spec", "mpiReplicaSpecs", "Launcher")
    template = _labelled(launcher["template"], owner, {ROLE: "launcher", REPLICA_TYPE: "launcher"})
    template["spec"]["restartPolicy"] = launcher.get("restartPolicy", "Never")
    limit = part(owner, "spec", "runPolicy").get("backoffLimit", 6)
    return {
        "metadata": {
            "name": f"{owner['metadata']['name']}-launcher",
            "labels": template["metadata"]["labels"],
            "ownerReferences": [reference_to(owner)],
        },
        "spec": {"suspend": suspended, "backoffLimit": limit, "template": template},
    }


def mpi_job(
    name: str, namespace: str, *, pool: str, pods: int = 2, gpus: int = 8, grace_s: int = 30
) -> Object:
    """An MPIJob of a launcher and `pods - 1` workers of `gpus` GPUs each, on the nodes of a pool."""
    job = workloads.indexed_job(name, namespace, pool=pool, gpus=gpus, grace_s=grace_s)
    template = job["spec"]["template"]
    template["spec"].pop("restartPolicy")
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "runPolicy": {"suspend": False},
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": template},
                "Worker": {"replicas": pods - 1, "template": template},
            },
        },
    }
