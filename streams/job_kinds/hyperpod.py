"""HyperPodPyTorchJob, of sagemaker.amazonaws.com. Source: SageMaker HyperPod training operator, "Using the training operator".

Its operator replaces pods and processes itself, and the platform replaces the node beneath them: whoever stops pods on top of
that restarts the job twice.
"""

from __future__ import annotations

from collections.abc import Iterable

from streams.job_kinds.kind import JobKind, Retries, Role, count_of
from streams.model.kube_objects import KubeObject, items, part, text, whole

HEALS_S = 1800.0
"""A node is replaced in a quarter to half of an hour."""


def _roles(job: KubeObject) -> Iterable[Role]:
    for replicas in items(job, "spec", "replicaSpecs"):
        name, pod_spec = str(replicas.get("name") or ""), part(replicas, "template", "spec")
        yield Role(name.lower(), pod_spec, count_of(replicas, "replicas"))


def _retries(job: KubeObject) -> Retries | None:
    policy = part(job, "spec", "runPolicy", "restartPolicy")
    limit = whole(policy.get("maxFullJobRestarts"))
    used = whole(part(job, "status").get("restartCount"))
    return Retries(used or 0, limit) if limit is not None else None


HYPERPOD_PYTORCH_JOB = JobKind(
    name="HyperPodPyTorchJob",
    api_versions=("sagemaker.amazonaws.com/v1",),
    plural="hyperpodpytorchjobs",
    pod_labels=lambda job: {"sagemaker.amazonaws.com/job-name": text(part(job, "metadata"), "name") or ""},
    roles=_roles,
    no_lever="its own operator restarts it: where that does not happen, delete the pods that are left on the closed node",
    retries=_retries,
    heals_within_s=lambda job: HEALS_S,
    notes=("It is watched only: its operator and the platform replace pods, processes and nodes.",),
)
