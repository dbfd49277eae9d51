"""What of a job says that Kueue admits it, and what follows from that. Pure, over the job object.

Kueue starts and stops such a job itself, by its Workload: whoever sets the suspend field of the job is reverted. Sources: Kueue,
"Workload" (active), "Run workloads" (integrated kinds), "MultiKueue".
"""

from __future__ import annotations

from streams.model.kube_objects import KubeObject, annotations_of, labels_of, text

QUEUE_NAME = "kueue.x-k8s.io/queue-name"
"""Label of objects that Kueue admits; an annotation in its first versions."""
ORIGIN = "kueue.x-k8s.io/multikueue-origin"
"""Label of the copy of a job on a worker cluster of MultiKueue: its original is on the manager."""
COMPONENT = "jobs-kueue"
"""The component of `k8s/components` that gives the rights for Workloads."""

INTEGRATED = frozenset(
    {
        "AppWrapper",
        "JAXJob",
        "Job",
        "JobSet",
        "LeaderWorkerSet",
        "MPIJob",
        "PaddleJob",
        "PyTorchJob",
        "RayCluster",
        "RayJob",
        "RayService",
        "SparkApplication",
        "TFJob",
        "TrainJob",
        "XGBoostJob",
    }
)
"""Kinds of jobs that Kueue itself starts and stops. On others the label means nothing to it."""


def queue_of(job: KubeObject) -> str | None:
    """The LocalQueue that admits this object, None for one that Kueue does not manage."""
    return text(labels_of(job), QUEUE_NAME) or text(annotations_of(job), QUEUE_NAME)


def out_of_reach(kind: str, job: KubeObject) -> str:
    """Why a job with a queue cannot be moved through it, for its owner; empty where it can."""
    if kind not in INTEGRATED:
        return (
            f"it has a Kueue queue ({queue_of(job)}), and Kueue has no integration for the kind {kind}: whoever runs the queue "
            "has to say how it is stopped"
        )
    if (origin := text(labels_of(job), ORIGIN)) is not None:
        return f"it is the copy of a job that MultiKueue sent here from {origin}: it is moved there, not here"
    return ""


def cost(queue: str) -> str:
    """What it costs to stop a job through its queue."""
    return f"it goes back to the queue {queue}, and starts again when its turn comes and its quota is free"
