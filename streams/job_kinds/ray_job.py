"""RayJob, of ray.io: a Ray cluster of its own, and what is submitted to its head. Source: KubeRay 1.7, API reference, "RayJob".

KubeRay checks a spec when it has been changed: a suspension that it refuses ends the job as ValidationFailed, for good. So what
it refuses is told before anything is planned.
"""

from __future__ import annotations

from collections.abc import Mapping

from streams.job_kinds.kind import End, JobKind, Proof, Retries
from streams.job_kinds.ray import CLUSTER, PROVEN_BY, RESTARTED_WITH_HEAD, goes_on_without, pods_of_cluster
from streams.model.kube_objects import KubeObject, annotations_of, part, text, whole

LAST_CLUSTER = "faultline.dev/ray-cluster"
"""Annotation: the cluster that ran when Faultline suspended the job. Its status forgets it before the pods are gone."""

_ENDS = {"Complete": False, "Failed": True, "ValidationFailed": True}


def cluster_of(job: KubeObject) -> str:
    """The name of the RayCluster that runs for the job now; empty where none does."""
    return text(part(job, "status"), "rayClusterName") or ""


def _pod_labels(job: KubeObject) -> Mapping[str, str]:
    return {CLUSTER: cluster_of(job) or text(annotations_of(job), LAST_CLUSTER) or ""}


def _phase(job: KubeObject) -> str:
    return text(part(job, "status"), "jobDeploymentStatus") or ""


def _end(job: KubeObject) -> End | None:
    phase = _phase(job)
    return End(phase, _ENDS[phase]) if phase in _ENDS else None


def _immovable(job: KubeObject) -> str:
    spec = part(job, "spec")
    if selector := part(spec, "clusterSelector"):
        return (
            f"it runs on RayCluster {selector.get(CLUSTER, '')} (clusterSelector), and KubeRay does not suspend such a RayJob: "
            "where that cluster's head is lost, submit it again"
        )
    if spec.get("shutdownAfterJobFinishes") is not True:
        return (
            "KubeRay ends a RayJob as invalid that is suspended while shutdownAfterJobFinishes is false, which is the default: "
            "set it to true, unless it has deletionRules, and it can be moved"
        )
    if spec.get("submissionMode") == "InteractiveMode":
        return "it is submitted by hand (InteractiveMode), and nobody would submit it again"
    return ""


def _retries(job: KubeObject) -> Retries | None:
    """Failed attempts against `backoffLimit`; each retry makes a cluster anew."""
    limit = whole(part(job, "spec").get("backoffLimit"))
    return Retries(whole(part(job, "status").get("failed")) or 0, limit) if limit is not None else None


RAY_JOB = JobKind(
    name="RayJob",
    api_versions=("ray.io/v1",),
    plural="rayjobs",
    pod_labels=_pod_labels,
    children=frozenset({"RayCluster"}),
    suspend_at=("spec", "suspend"),
    immovable=_immovable,
    cost=lambda job: RESTARTED_WITH_HEAD,
    is_suspension_seen=lambda job: _phase(job) == "Suspended",
    end=_end,
    retries=_retries,
    all_pods=lambda job: pods_of_cluster(part(job, "spec", "rayClusterSpec")),
    incarnation=cluster_of,
    goes_on_without=goes_on_without,
    remembers={LAST_CLUSTER: cluster_of},
    proof=Proof.SIMULATED,
    proven_by=PROVEN_BY,
    notes=(
        "It is stopped where its head is on the closed node. Where only workers are, the drain evicts them, KubeRay makes them "
        "anew, and the job goes on as far as its program allows (Ray Train: `FailureConfig`).",
        "Suspending deletes its RayCluster and what submits to it, and counts as no retry; resuming makes both anew and starts "
        "its entrypoint again, which has to find its checkpoint.",
        "KubeRay refuses it with `clusterSelector` and while `shutdownAfterJobFinishes` is false; that is told in the plan.",
        "A retry within `backoffLimit` makes the whole cluster anew as well, wherever the scheduler puts it.",
        "It cannot be told which nodes to avoid: it keeps off closed nodes only, not off other suspects.",
    ),
)
