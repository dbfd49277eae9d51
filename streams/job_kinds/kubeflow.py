"""What the job kinds of kubeflow.org have in common: roles in `spec.*ReplicaSpecs`, and `spec.runPolicy`.

Source: training-operator v1 API reference (`RunPolicy`, `ReplicaSpec`, `JobStatus`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from streams.job_kinds.kind import JobKind, Proof, Role, by_name, count_of
from streams.model.kube_objects import KubeObject, part, text, whole

JOB_NAME = "training.kubeflow.org/job-name"
PROVEN_BY = "training-operator 1.7.0"


def roles(job: KubeObject) -> Iterable[Role]:
    """A role for each entry of each `*ReplicaSpecs`."""
    for key, replicas in part(job, "spec").items():
        if key.endswith("ReplicaSpecs") and isinstance(replicas, Mapping):
            for name in replicas:
                about = part(replicas, name)
                yield Role(str(name).lower(), part(about, "template", "spec"), count_of(about, "replicas"))


def templates(job: KubeObject) -> Sequence[tuple[str, ...]]:
    """The pod template of every role."""
    return [
        ("spec", key, str(name), "template")
        for key, replicas in part(job, "spec").items()
        if key.endswith("ReplicaSpecs") and isinstance(replicas, Mapping)
        for name in replicas
    ]


def finished_pods(job: KubeObject) -> int:
    """Replicas that have succeeded."""
    statuses = part(job, "status", "replicaStatuses")
    return sum(whole(part(statuses, name).get("succeeded")) or 0 for name in statuses)


def kubeflow_kind(
    name: str,
    plural: str,
    *,
    api_versions: tuple[str, ...] = ("kubeflow.org/v1",),
    notes: Sequence[str] = (),
    proof: Proof = Proof.REAL,
    proven_by: str = PROVEN_BY,
) -> JobKind:
    """A kind of the training operator."""
    return JobKind(
        name=name,
        api_versions=api_versions,
        plural=plural,
        pod_labels=by_name(JOB_NAME),
        roles=roles,
        suspend_at=("spec", "runPolicy", "suspend"),
        finished_pods=finished_pods,
        incarnation=lambda job: text(part(job, "status"), "startTime") or "",
        templates=templates,
        proof=proof,
        proven_by=proven_by,
        notes=("Suspending deletes its pods and its PodGroup and counts as no restart.", *notes),
    )
