"""One row per kind of training job: the path of its suspend field, its pods, and how many there should be.

A new kind is a new row. Sources: Kubernetes "Suspending a Job"; training-operator v1 `RunPolicy.suspend`, `ReplicaSpec`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from connectors.kubernetes.client import Object, path_of
from connectors.kubernetes.objects import condition


@dataclass(frozen=True, slots=True)
class SuspendField:
    """How one kind of job is suspended and resumed.

    `suspend_at` is the path of the field in the object; `pod_label` narrows a list of pods to a job *name* (their owner's uid
    decides whose they are); `ended` are the conditions after which nothing can be resumed; `pods` is how many pods should be
    running now.
    """

    kind: str
    api_version: str
    plural: str
    suspend_at: tuple[str, ...]
    pod_label: str
    ended: frozenset[str]
    pods: Callable[[Object], int]

    def path(self, namespace: str, name: str) -> str:
        """The job's path at the API server."""
        return path_of(self.api_version, self.plural, namespace=namespace, name=name)

    def is_suspended(self, job: Object) -> bool:
        """The value of the suspend field; False when it is not set."""
        at: Any = job
        for part in self.suspend_at:
            at = at.get(part) or {}
        return at is True

    def is_suspension_seen(self, job: Object) -> bool:
        """True once the job's controller reports the suspension: from then on it creates no pods."""
        return condition(job, "Suspended") is not None

    def suspend(self, value: bool) -> Object:
        """The part of a merge patch that sets the suspend field."""
        patch: Any = value
        for part in reversed(self.suspend_at):
            patch = {part: patch}
        found: Object = patch
        return found

    def end(self, job: Object) -> str | None:
        """The condition that ended the job, e.g. `Complete` or `Failed`; None while it has not ended."""
        return next((end for end in sorted(self.ended) if condition(job, end)), None)


def _of_batch_job(job: Object) -> int:
    """As many as run in parallel, but no more than are still to complete."""
    spec, status = job.get("spec", {}), job.get("status", {})
    parallel: int = spec.get("parallelism", 1)
    completions: int | None = spec.get("completions")
    return parallel if completions is None else min(parallel, completions - (status.get("succeeded") or 0))


def _of_replica_specs(job: Object) -> int:
    """Every replica of every role (default 1), except those that succeeded."""
    roles: Mapping[str, Object] = job.get("spec", {}).get("pytorchReplicaSpecs") or {}
    ended: Mapping[str, Object] = job.get("status", {}).get("replicaStatuses") or {}
    wanted = sum(role.get("replicas", 1) for role in roles.values())
    return int(wanted - sum(status.get("succeeded") or 0 for status in ended.values()))


SUSPEND_FIELDS: Mapping[str, SuspendField] = {
    field.kind: field
    for field in (
        SuspendField(
            kind="Job",
            api_version="batch/v1",
            plural="jobs",
            suspend_at=("spec", "suspend"),
            pod_label="batch.kubernetes.io/job-name",
            ended=frozenset({"Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"}),
            pods=_of_batch_job,
        ),
        SuspendField(
            kind="PyTorchJob",
            api_version="kubeflow.org/v1",
            plural="pytorchjobs",
            suspend_at=("spec", "runPolicy", "suspend"),
            pod_label="training.kubeflow.org/job-name",
            ended=frozenset({"Succeeded", "Failed"}),
            pods=_of_replica_specs,
        ),
    )
}
