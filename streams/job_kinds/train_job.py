"""TrainJob, of trainer.kubeflow.org: a JobSet of its own name, made from a runtime.

Sources: Kubeflow Trainer, "API reference" (TrainJobSpec, TrainJobStatus, TrainerStatus).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from streams.job_kinds.job_set import NAME
from streams.job_kinds.kind import JobKind, Progress, Proof, Role, by_name, ended_by_condition
from streams.model.kube_objects import KubeObject, part, text, time, whole

TRAINER = "node"
"""The replicated job in which the runtimes that ship with the trainer run the training."""

REPORTED_EVERY = timedelta(seconds=15)
"""A trainer may report with every step; what is told of it changes no faster than this."""


def _roles(job: KubeObject) -> Iterable[Role]:
    """The trainer's pods, where the job itself says how many and with what; else only its JobSet knows."""
    trainer = part(job, "spec", "trainer")
    nodes, resources = whole(trainer.get("numNodes")), part(trainer, "resourcesPerNode")
    if nodes is not None and (resources or whole(trainer.get("numProcPerNode"))):
        container = {"name": TRAINER, "resources": resources}
        yield Role(TRAINER, {"containers": [container]}, nodes)


def _progress(job: KubeObject) -> Progress | None:
    status = part(job, "status", "trainerStatus")
    at = time(status, "lastUpdatedTime")
    if at is None:
        return None
    late = timedelta(seconds=at.timestamp() % REPORTED_EVERY.total_seconds())
    return Progress(at - late, whole(status.get("progressPercentage")))


TRAIN_JOB = JobKind(
    name="TrainJob",
    api_versions=("trainer.kubeflow.org/v1alpha1",),
    plural="trainjobs",
    pod_labels=by_name(NAME),
    children=frozenset({"JobSet", "Job"}),
    roles=_roles,
    made_of=lambda job: [("JobSet", text(part(job, "metadata"), "name") or "")],
    suspend_at=("spec", "suspend"),
    end=ended_by_condition({"Complete": False, "Failed": True}),
    progress=_progress,
    proof=Proof.SIMULATED,
    notes=(
        "Suspending suspends its JobSet; `activeDeadlineSeconds` starts anew when it is resumed. How many pods it should have is "
        "read from that JobSet.",
        "A failed one is final: it is never patched, and its owner is told to create a new one.",
        "Where it reports `status.trainerStatus`, two reports after the resume of which the second is not behind the first prove "
        "progress.",
    ),
)
