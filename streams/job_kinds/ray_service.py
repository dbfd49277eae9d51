"""RayService, of ray.io: Ray clusters that serve. Observed only. Source: KubeRay 1.7, API reference, "RayService"."""

from __future__ import annotations

from collections.abc import Mapping

from streams.job_kinds.kind import JobKind, Proof, no_end
from streams.job_kinds.ray import CLUSTER, PROVEN_BY, pods_of_cluster
from streams.model.kube_objects import KubeObject, part, text


def _active(job: KubeObject) -> Mapping[str, str]:
    """The pods of the cluster that serves; during an upgrade a second one is on its way."""
    return {CLUSTER: text(part(job, "status", "activeServiceStatus"), "rayClusterName") or ""}


RAY_SERVICE = JobKind(
    name="RayService",
    api_versions=("ray.io/v1",),
    plural="rayservices",
    pod_labels=_active,
    children=frozenset({"RayCluster"}),
    end=no_end,
    all_pods=lambda job: pods_of_cluster(part(job, "spec", "rayClusterConfig")),
    no_lever="it serves and is not suspended, which would take the whole service away: the drain evicts its pods on the closed "
    "node, and KubeRay makes them anew",
    proof=Proof.SIMULATED,
    proven_by=PROVEN_BY,
    notes=(
        "`spec.suspend` (KubeRay 1.7) deletes its clusters and its endpoints, so it is never set.",
        "A worker that is evicted is made anew. The head takes its Serve applications along, unless GCS fault tolerance is on: "
        "until they are deployed again, nothing is served. A budget of disruption for the head holds the drain until a person "
        "decides.",
        "While it is upgraded it has two clusters, and needs the GPUs of both.",
    ),
)
