"""What the kinds of ray.io say of themselves: when they can be stopped, how many pods they want, and which they go on without."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from streams.inventory.cluster_inventory import Inventory
from streams.inventory.jobs import job_fact
from streams.job_kinds.kind import Lever
from streams.job_kinds.kueue import QUEUE_NAME
from streams.job_kinds.ray import pods_of_cluster
from streams.job_kinds.ray_cluster import RAY_CLUSTER
from streams.job_kinds.ray_job import LAST_CLUSTER, RAY_JOB
from streams.model.facts import JobFact, PodFact
from streams.model.kinds import WorkloadClass
from streams.model.kube_objects import KubeObject
from streams.model.watch import ObjectChange

AT = datetime(2026, 3, 1, tzinfo=UTC)
POD = {"spec": {"containers": [{"name": "ray", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}}
GROUP = {"groupName": "gpu", "replicas": 3, "minReplicas": 1, "maxReplicas": 4, "template": POD}
CLUSTER = {"headGroupSpec": {"template": {"spec": {}}}, "workerGroupSpecs": [GROUP]}
MOVABLE = {"shutdownAfterJobFinishes": True, "rayClusterSpec": CLUSTER}


def ray(kind: str, spec: dict[str, Any], status: dict[str, Any] | None = None, **about: Any) -> KubeObject:
    metadata = {"name": "tune", "namespace": "research", "uid": f"u-{kind}"} | about
    return {
        "apiVersion": "ray.io/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
        "status": status or {},
    }


def owned_by(kind: str, name: str, uid: str) -> dict[str, Any]:
    api = "batch/v1" if kind == "Job" else "ray.io/v1"
    return {"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": True}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"rayClusterSpec": CLUSTER}, "shutdownAfterJobFinishes is false, which is the default"),
        (MOVABLE | {"shutdownAfterJobFinishes": False}, "set it to true"),
        (MOVABLE | {"clusterSelector": {"ray.io/cluster": "shared"}}, "it runs on RayCluster shared"),
        (MOVABLE | {"submissionMode": "InteractiveMode"}, "submitted by hand"),
        (MOVABLE | {"managedBy": "kueue.x-k8s.io/multikueue"}, "spec.managedBy is kueue.x-k8s.io/multikueue"),
    ],
)
def test_a_ray_job_that_cannot_be_suspended_is_known_for_it_beforehand_with_what_to_do(
    spec: dict[str, Any], why: str
) -> None:
    fact = job_fact("c1", ray("RayJob", spec), AT)
    assert fact.lever is None
    assert why in (fact.immovable or "")


def test_a_ray_job_that_can_be_suspended_tells_what_that_costs_it() -> None:
    spec = MOVABLE | {"backoffLimit": 2, "managedBy": "ray.io/kuberay-operator"}
    fact = job_fact("c1", ray("RayJob", spec, {"failed": 1, "rayClusterName": "tune-x7k2p"}), AT)
    assert (fact.lever, fact.immovable, fact.pods, fact.world) == (Lever.SUSPEND, None, 4, None)
    assert (fact.retries_left, fact.costs_retries, fact.incarnation) == (1, None, "tune-x7k2p")
    assert "only where its head is on the closed node" in (fact.cost or "")
    assert fact.heals_within_s is None


@pytest.mark.parametrize(
    ("phase", "ended"),
    [
        ("Running", None),
        ("Retrying", None),
        ("Suspended", None),
        ("Complete", False),
        ("Failed", True),
        ("ValidationFailed", True),
    ],
)
def test_a_ray_job_ends_by_its_deployment_status(phase: str, ended: bool | None) -> None:
    fact = job_fact("c1", ray("RayJob", MOVABLE, {"jobDeploymentStatus": phase}), AT)
    assert (fact.finished, fact.failed) == (ended is not None, ended is True)


def test_a_ray_jobs_pods_are_those_of_its_cluster_also_when_its_status_has_forgotten_it() -> None:
    runs = ray("RayJob", MOVABLE, {"rayClusterName": "tune-2"}, annotations={LAST_CLUSTER: "tune-1"})
    stopped = ray("RayJob", MOVABLE, {"rayClusterName": ""}, annotations={LAST_CLUSTER: "tune-1"})
    assert RAY_JOB.pod_labels(runs) == {"ray.io/cluster": "tune-2"}
    assert RAY_JOB.pod_labels(stopped) == {"ray.io/cluster": "tune-1"}


@pytest.mark.parametrize(
    ("group", "scaled", "pods"),
    [
        ({}, False, 1),
        ({"replicas": 3}, False, 4),
        ({"replicas": 3, "numOfHosts": 2}, False, 7),
        ({"replicas": 1, "minReplicas": 2}, False, 3),
        ({"replicas": 9, "maxReplicas": 4}, False, 5),
        ({"replicas": 3, "suspend": True}, False, 1),
        ({"replicas": 3, "minReplicas": 1}, True, 2),
    ],
)
def test_a_ray_cluster_wants_its_head_and_the_workers_of_its_groups(
    group: dict[str, Any], scaled: bool, pods: int
) -> None:
    assert pods_of_cluster({"enableInTreeAutoscaling": scaled, "workerGroupSpecs": [group]}) == pods


@pytest.mark.parametrize(
    "status",
    [{"conditions": [{"type": "RayClusterSuspended", "status": "True"}]}, {"state": "suspended"}],
)
def test_a_ray_clusters_suspension_is_seen_with_conditions_and_without(status: dict[str, Any]) -> None:
    assert RAY_CLUSTER.is_suspension_seen(ray("RayCluster", CLUSTER, status))
    assert not RAY_CLUSTER.is_suspension_seen(ray("RayCluster", CLUSTER, {"state": "ready"}))


def test_a_ray_service_serves_and_its_owner_is_told_what_the_drain_does() -> None:
    fact = job_fact("c1", ray("RayService", {"rayClusterConfig": CLUSTER}), AT)
    assert (fact.lever, fact.pods) == (None, 4)
    assert "the drain evicts its pods" in (fact.immovable or "")


def test_a_ray_job_that_kueue_admits_is_moved_by_its_queue_unless_kuberay_would_end_it() -> None:
    fact = job_fact("c1", ray("RayJob", MOVABLE, labels={QUEUE_NAME: "gold"}), AT)
    assert (fact.lever, fact.immovable) == (Lever.QUEUE, None)
    stays = job_fact("c1", ray("RayJob", {"rayClusterSpec": CLUSTER}, labels={QUEUE_NAME: "gold"}), AT)
    assert stays.lever is None


def told(*objects: KubeObject) -> dict[str, Any]:
    """The facts of an inventory that saw these objects, by key."""
    inventory = Inventory("c1")
    for one in objects:
        inventory.apply(ObjectChange(AT, "ADDED", one))
    return {key: record.fact for key, record in inventory.settle() if record is not None}


def pod(name: str, owner: dict[str, Any], *, kind: str = "", gpus: int = 8) -> KubeObject:
    limits = {"resources": {"limits": {"nvidia.com/gpu": str(gpus)}}} if gpus else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "research",
            "uid": f"u-{name}",
            "labels": {"ray.io/node-type": kind} if kind else {},
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": "gpu-1", "containers": [{"name": "ray", **limits}]},
        "status": {"phase": "Running"},
    }


def test_pods_of_a_ray_job_are_its_own_and_those_it_goes_on_without_are_marked() -> None:
    above = owned_by("RayJob", "tune", "u-RayJob")
    cluster = ray("RayCluster", CLUSTER, name="tune-x7k2p", ownerReferences=[above])
    submitter = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "tune", "namespace": "research", "uid": "u-Job", "ownerReferences": [above]},
        "spec": {},
    }
    within = owned_by("RayCluster", "tune-x7k2p", "u-RayCluster")
    facts = told(
        ray("RayJob", MOVABLE, {"rayClusterName": "tune-x7k2p"}),
        cluster,
        submitter,
        pod("tune-head", within, kind="head", gpus=0),
        pod("tune-worker", within, kind="worker"),
        pod("tune-submitter", owned_by("Job", "tune", "u-Job"), gpus=0),
    )
    assert [key for key in facts if "/job/" in key] == ["c1/job/RayJob/research/tune"], (
        "the top-most owner alone"
    )
    pods = {fact.name: fact for fact in facts.values() if isinstance(fact, PodFact)}
    assert {name: fact.replaceable for name, fact in pods.items()} == {
        "tune-head": None,
        "tune-worker": True,
        "tune-submitter": True,
    }
    assert {fact.job.key for fact in pods.values() if fact.job} == {"RayJob/research/tune"}


def test_a_ray_cluster_of_a_service_is_no_training_job_nor_are_its_pods() -> None:
    above = owned_by("RayService", "tune", "u-RayService")
    facts = told(
        ray("RayService", {"rayClusterConfig": CLUSTER}),
        ray("RayCluster", CLUSTER, name="tune-a", ownerReferences=[above]),
        pod("tune-a-worker", owned_by("RayCluster", "tune-a", "u-RayCluster"), kind="worker"),
    )
    jobs = [fact for fact in facts.values() if isinstance(fact, JobFact)]
    assert [(fact.job.kind, fact.workload) for fact in jobs] == [("RayService", WorkloadClass.INFERENCE)]
    (only,) = [fact for fact in facts.values() if isinstance(fact, PodFact)]
    assert (only.job.key if only.job else "", only.workload) == (
        "RayService/research/tune",
        WorkloadClass.INFERENCE,
    )
