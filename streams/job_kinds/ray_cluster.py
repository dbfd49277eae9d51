"""RayCluster, of ray.io, where no RayJob or RayService owns it. Source: KubeRay 1.7, API reference, "Suspend RayCluster"."""

from __future__ import annotations

from streams.job_kinds.kind import JobKind, Proof, by_name, no_end
from streams.job_kinds.ray import (
    CLUSTER,
    PROVEN_BY,
    RESTARTED_WITH_HEAD,
    goes_on_without,
    head_of,
    pods_of_cluster,
)
from streams.model.kube_objects import KubeObject, holds, part, text


def _is_suspension_seen(job: KubeObject) -> bool:
    """By its condition; by its state where the operator has conditions switched off."""
    return holds(job, "RayClusterSuspended") or text(part(job, "status"), "state") == "suspended"


RAY_CLUSTER = JobKind(
    name="RayCluster",
    api_versions=("ray.io/v1",),
    plural="rayclusters",
    pod_labels=by_name(CLUSTER),
    suspend_at=("spec", "suspend"),
    cost=lambda job: (
        f"{RESTARTED_WITH_HEAD}; what was submitted to the head is lost with it and has to be submitted again"
    ),
    is_suspension_seen=_is_suspension_seen,
    end=no_end,
    all_pods=lambda job: pods_of_cluster(part(job, "spec")),
    incarnation=head_of,
    goes_on_without=goes_on_without,
    proof=Proof.SIMULATED,
    proven_by=PROVEN_BY,
    notes=(
        "Where only workers are on the closed node, the drain evicts them and KubeRay makes them anew. Where its head is, the "
        "whole cluster is suspended and resumed: what was submitted to it is lost, and whoever did that has to do it again.",
        "One that a RayJob or a RayService owns is never acted on itself.",
    ),
)
