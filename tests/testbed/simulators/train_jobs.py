"""The controller of TrainJobs, in small. Source: Kubeflow Trainer, "API reference" and "Runtimes".

- a TrainJob makes one JobSet of its own name from its runtime, which it controls; `numNodes` is how many pods the trainer has
- the pods of the trainer are those of the replicated job `node`
- `spec.suspend` is passed on to the JobSet; the condition Suspended tells it, with the reasons Suspended and Resumed
- a JobSet that is over ends the TrainJob: Complete, or Failed for good. A failed one is never made anew, nor is its JobSet
- `status.jobsStatus` has the counts of the JobSet's replicated jobs
- one that `managedBy` gives to somebody else is left alone

What trains reports `status.trainerStatus` itself. JobSets are those of `job_sets.py`.
"""

from __future__ import annotations

from typing import Any, ClassVar

from connectors.kubernetes.client import Object, path_of
from connectors.kubernetes.errors import NotFound
from connectors.kubernetes.objects import controller
from streams.job_kinds.job_set import JOB_SET
from streams.job_kinds.kind import managed_elsewhere
from streams.job_kinds.train_job import TRAIN_JOB, TRAINER
from streams.model.kube_objects import holds, part
from tests.testbed.simulators.job_sets import job_set
from tests.testbed.simulators.reconciler import Reconciler, reference_to, with_condition

RUNTIME = "testbed.faultline.dev/runtime"
"""Annotation: the pool, and the GPUs of a pod, of which the runtime is made."""


class TrainJobs(Reconciler):
    """Reconciles all TrainJobs of one namespace; all that it knows of them is in the objects."""

    api_version: ClassVar[str] = TRAIN_JOB.api_versions[0]
    plural: ClassVar[str] = TRAIN_JOB.plural

    async def reconcile(self, owner: Object) -> None:
        """One step towards what the TrainJob says."""
        if managed_elsewhere(owner) is not None or TRAIN_JOB.end(owner) is not None:
            return
        suspended = TRAIN_JOB.is_suspended(owner)
        path = path_of(JOB_SET.api_versions[0], JOB_SET.plural, namespace=self.namespace)
        try:
            made = await self.cluster.get(f"{path}/{owner['metadata']['name']}")
        except NotFound:
            await self.cluster.create(path, _from_runtime(owner))
            return
        if (controller(made) or {}).get("uid") != owner["metadata"]["uid"]:
            return  # of a TrainJob that had the name before: the garbage collector takes it
        if JOB_SET.is_suspended(made) != suspended:
            about = made["metadata"]
            read = {"uid": about["uid"], "resourceVersion": about["resourceVersion"]}
            await self.cluster.patch(
                f"{path}/{about['name']}", {"metadata": read, "spec": {"suspend": suspended}}
            )
        await self._tell(owner, made, suspended)

    async def _tell(self, owner: Object, made: Object, suspended: bool) -> None:
        fields: dict[str, Any] = {}
        if (jobs := (made.get("status") or {}).get("replicatedJobsStatus")) is not None:
            fields["jobsStatus"] = jobs
        if (end := JOB_SET.end(made)) is not None:
            kind = "Failed" if end.failed else "Complete"
            fields["conditions"] = with_condition(owner, kind, True, end.by)
        elif suspended or holds(owner, "Suspended"):
            reason = "Suspended" if suspended else "Resumed"
            fields["conditions"] = with_condition(owner, "Suspended", suspended, reason)
        if fields:
            await self.set_status(owner, **fields)


def _from_runtime(owner: Object) -> Object:
    about, trainer = owner["metadata"], part(owner, "spec", "trainer")
    pool, gpus, grace_s = about["annotations"][RUNTIME].split(",")
    made = job_set(
        about["name"],
        about["namespace"],
        pool=pool,
        jobs=1,
        pods=trainer.get("numNodes", 1),
        gpus=int(gpus),
        grace_s=int(grace_s),
    )
    made["metadata"] |= {"labels": about.get("labels") or {}, "ownerReferences": [reference_to(owner)]}
    made["spec"]["suspend"] = TRAIN_JOB.is_suspended(owner)
    (replicated,) = made["spec"]["replicatedJobs"]
    replicated["name"] = TRAINER
    # What somebody above the TrainJob wants on the pods is passed down to them.
    replicated["template"]["spec"]["template"]["metadata"]["labels"] = dict(about.get("labels") or {})
    return made


def train_job(
    name: str, namespace: str, *, pool: str, pods: int = 2, gpus: int = 8, grace_s: int = 30
) -> Object:
    """A TrainJob of `pods` pods of `gpus` GPUs each, on the nodes of a pool."""
    return {
        "apiVersion": TRAIN_JOB.api_versions[0],
        "kind": TRAIN_JOB.name,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {RUNTIME: f"{pool},{gpus},{grace_s}"},
        },
        "spec": {
            "suspend": False,
            "runtimeRef": {"name": "torch-distributed"},
            "trainer": {"numNodes": pods},
        },
    }
