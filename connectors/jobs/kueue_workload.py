"""A Workload of Kueue as the API server shows it, and where to find those of a job. Any part may be missing.

Source: Kueue, "Workload" and its API reference v1beta2 (WorkloadStatus, conditions and their reasons).
"""

from __future__ import annotations

from collections.abc import Sequence

from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.errors import NotFound
from streams.model.kube_objects import condition, holds, items, labels_of, part, text

VERSIONS = ("kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1")
KIND = "Workload"
PLURAL = "workloads"

JOB_UID = "kueue.x-k8s.io/job-uid"
"""Label of a Workload: the uid of its job. Its name is hashed."""
PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"
"""Label of a job, or of a pod: the name of a Workload that somebody else made for it."""
POD_GROUP = "kueue.x-k8s.io/pod-group-name"
"""Label of a pod that is admitted with others as a group: the name of the group, and of its Workload."""
OF_WORKLOAD = "kueue.x-k8s.io/workload"
"""Annotation of a pod under topology-aware scheduling: the name of its Workload."""


async def served_version(cluster: Cluster) -> str:
    """The newest version of Workloads that the server serves.

    Raises:
        NotFound: it serves none: Kueue is not installed.
    """
    for version in VERSIONS:
        try:
            await cluster.resource(f"{version}/{KIND}")
        except NotFound:
            continue
        return version
    raise NotFound(f"{cluster.url} does not serve Workloads of {VERSIONS[0].partition('/')[0]}")


def path_of_workload(workload: Object) -> str:
    """Where it is, in the version in which it was read."""
    about = workload["metadata"]
    return path_of(
        str(workload["apiVersion"]), PLURAL, namespace=str(about["namespace"]), name=str(about["name"])
    )


async def workloads_of(cluster: Cluster, job: Object, pods: Sequence[Object]) -> list[Object]:
    """The Workloads of a job that are not finished, by name: one of most jobs, one per group of a LeaderWorkerSet.

    By the label first, then by their owner: the job itself, or its pods, where they are admitted as a group.

    Raises:
        NotFound: Kueue is not installed.
    """
    about, version = job["metadata"], await served_version(cluster)
    path = path_of(version, PLURAL, namespace=str(about["namespace"]))
    found = await cluster.list_all(path, query={"labelSelector": f"{JOB_UID}={about['uid']}"})
    if not found:
        named = {name for one in (job, *pods) if (name := text(labels_of(one), PREBUILT))}
        owners = {str(about["uid"]), *(str(pod["metadata"]["uid"]) for pod in pods)}
        found = [
            one
            for one in await cluster.list_all(path)
            if one["metadata"]["name"] in named
            or any(owner.get("uid") in owners for owner in items(one, "metadata", "ownerReferences"))
        ]
    return sorted(
        (one for one in found if not holds(one, "Finished")), key=lambda one: str(one["metadata"]["name"])
    )


def of_pod(pod: Object) -> str | None:
    """The name of a pod's Workload, where the pod tells it."""
    labels, notes = labels_of(pod), part(pod, "metadata", "annotations")
    return text(labels, POD_GROUP) or text(notes, OF_WORKLOAD) or text(labels, PREBUILT)


def is_active(workload: Object) -> bool:
    """Whether Kueue may admit it; by default it may."""
    return part(workload, "spec").get("active") is not False


def holds_quota(workload: Object) -> bool:
    """Whether quota is reserved for it: also while its pods still end."""
    return bool(part(workload, "status", "admission"))


def is_admitted(workload: Object) -> bool:
    """Whether its job may run: one that is evicted keeps its admission until its pods have ended."""
    return holds(workload, "Admitted") and holds_quota(workload) and not holds(workload, "Evicted")


def was_stopped(workload: Object) -> bool:
    """Whether Kueue has taken notice of its deactivation; one that was never admitted has nothing to be evicted from."""
    return holds(workload, "Evicted") or not condition(workload, "Admitted")


def why_deactivated(workload: Object) -> str:
    """Why Kueue itself deactivated it (requeued too often, ran too long); empty where somebody else did.

    Until 0.15 the reason tells, since then what follows "due to" in the message.
    """
    evicted = condition(workload, "Evicted")
    if is_active(workload) or evicted.get("status") != "True":
        return ""
    reason, message = str(evicted.get("reason") or ""), str(evicted.get("message") or "")
    by_itself = reason.startswith("DeactivatedDueTo") or " due to " in message
    return (message or reason) if by_itself else ""


def why_pending(workload: Object) -> str:
    """What Kueue says of why it is not admitted; empty where it says nothing."""
    for kind in ("QuotaReserved", "Admitted"):
        said = condition(workload, kind)
        message = str(said.get("message") or "")
        # What an earlier deactivation left there is over.
        if (
            said.get("status") == "False"
            and message
            and not message.startswith("The workload is deactivated")
        ):
            return message
    return ""
