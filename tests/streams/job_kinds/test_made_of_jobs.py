"""Kinds that are made of other jobs: how many pods they should have, their restarts, and what changes when they restart."""

from __future__ import annotations

from typing import Any

import pytest

from streams.inventory.jobs import job_fact
from streams.job_kinds.kind import Lever
from streams.job_kinds.known import KNOWN
from tests.streams.inventory.objects import AT
from tests.streams.job_kinds.test_healing import job

JOB_SET = KNOWN["JobSet"]


def replicated(name: str, jobs: int, pods: int) -> dict[str, Any]:
    return {
        "name": name,
        "replicas": jobs,
        "template": {"spec": {"parallelism": pods, "completions": pods}},
    }


SET = {"replicatedJobs": [replicated("driver", 1, 1), replicated("workers", 2, 4)]}


@pytest.mark.parametrize(
    ("succeeded", "pods"),
    [({}, 9), ({"driver": 1}, 8), ({"workers": 1}, 5), ({"driver": 1, "workers": 2}, 0)],
)
def test_jobs_of_a_set_that_succeeded_are_not_waited_for(succeeded: dict[str, int], pods: int) -> None:
    done = [{"name": name, "succeeded": count} for name, count in succeeded.items()]
    assert JOB_SET.pods(job("JobSet", SET, {"replicatedJobsStatus": done})) == pods


@pytest.mark.parametrize(
    ("policy", "status", "left"),
    [
        ({}, {}, 0),
        ({"failurePolicy": {"maxRestarts": 3}}, {"restarts": 1}, 2),
        ({"failurePolicy": {"maxRestarts": 3}}, {"restarts": 5, "restartsCountTowardsMax": 1}, 2),
        ({"failurePolicy": {"maxRestarts": 3}}, {"restarts": 4}, 0),
    ],
)
def test_a_set_counts_the_restarts_that_it_has_left(
    policy: dict[str, Any], status: dict[str, Any], left: int
) -> None:
    fact = job_fact("c1", job("JobSet", SET | policy, status), AT)
    assert (fact.retries_left, fact.costs_retries, fact.lever) == (left, None, Lever.SUSPEND)


@pytest.mark.parametrize(
    ("status", "incarnation"),
    [
        ({}, ""),
        ({"restarts": 0}, "0"),
        ({"restarts": 2}, "2"),
        ({"restarts": 2, "executionAttempts": 7}, "7"),
    ],
)
def test_a_set_is_another_one_with_every_execution_attempt(status: dict[str, Any], incarnation: str) -> None:
    assert JOB_SET.incarnation(job("JobSet", SET, status)) == incarnation


@pytest.mark.parametrize(("condition", "failed"), [("Completed", False), ("Failed", True)])
def test_a_set_that_is_over_is_never_patched(condition: str, failed: bool) -> None:
    over = {"conditions": [{"type": condition, "status": "True"}]}
    fact = job_fact("c1", job("JobSet", SET, over), AT)
    assert (fact.finished, fact.failed) == (True, failed)


# TrainJob


@pytest.mark.parametrize(
    ("trainer", "pods", "world"),
    [
        ({}, None, None),
        ({"numNodes": 4}, 4, None),
        ({"numNodes": 4, "numProcPerNode": 2}, 4, 8),
        ({"numNodes": 4, "resourcesPerNode": {"limits": {"nvidia.com/gpu": "8"}}}, 4, 32),
    ],
)
def test_a_train_job_tells_its_size_where_it_says_it(
    trainer: dict[str, Any], pods: int | None, world: int | None
) -> None:
    fact = job_fact("c1", job("TrainJob", {"trainer": trainer}), AT)
    assert (fact.pods, fact.world, fact.lever) == (pods, world, Lever.SUSPEND)


def test_the_reports_of_a_trainer_change_what_is_told_every_quarter_of_a_minute_at_most() -> None:
    def told(at: str) -> tuple[Any, Any]:
        status = {"trainerStatus": {"lastUpdatedTime": at, "progressPercentage": 42}}
        fact = job_fact("c1", job("TrainJob", status=status), AT)
        return fact.progress_at, fact.progress_percent

    assert told("2026-03-02T06:15:31Z") == told("2026-03-02T06:15:44Z")
    assert told("2026-03-02T06:15:44Z") != told("2026-03-02T06:15:45Z")
    assert told("2026-03-02T06:15:44Z")[1] == 42
    silent = job_fact("c1", job("TrainJob", status={"trainerStatus": {}}), AT)
    assert (silent.progress_at, silent.progress_percent) == (None, None)


# AppWrapper


def wrapper(*templates: dict[str, Any], status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    components = [{"template": one} for one in templates]
    return job("AppWrapper", {"components": components, **spec}, status)


def pytorch(workers: int = 4, **spec: Any) -> dict[str, Any]:
    container = {"name": "pytorch", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    worker = {"replicas": workers, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "llm"},
        "spec": {"pytorchReplicaSpecs": {"Worker": worker}, **spec},
    }


SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "rendezvous"}}
CLAIM = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "checkpoints"}}


def test_a_wrapper_is_what_it_wraps() -> None:
    fact = job_fact("c1", wrapper(pytorch(), SERVICE), AT)
    assert (fact.pods, fact.world, fact.lever, fact.retries_left) == (4, 32, Lever.SUSPEND, 3)
    assert fact.cost is not None
    assert "created anew" in fact.cost
    elastic = pytorch(elasticPolicy={"minReplicas": 2, "maxReplicas": 4})
    assert job_fact("c1", wrapper(elastic), AT).world is None, "its ranks are handed out at run time"


def test_of_two_jobs_in_one_wrapper_nobody_knows_whose_ranks_are_whose() -> None:
    fact = job_fact("c1", wrapper(pytorch(4), pytorch(2)), AT)
    assert (fact.pods, fact.world) == (6, None)


def test_how_many_pods_a_wrapper_should_have_is_told_by_its_status_first() -> None:
    status = {"componentStatus": [{"podSets": [{"replicas": 3}, {}]}]}
    assert KNOWN["AppWrapper"].pods(wrapper(pytorch(), status=status)) == 4
    declared = wrapper(SERVICE)
    declared["spec"]["components"][0]["podSets"] = [{"replicas": 5, "path": "template"}]
    assert KNOWN["AppWrapper"].pods(declared) == 5


def test_a_wrapper_whose_suspension_would_delete_data_is_not_moved() -> None:
    fact = job_fact("c1", wrapper(pytorch(), CLAIM), AT)
    assert fact.lever is None
    assert fact.immovable is not None
    assert "would delete PersistentVolumeClaim checkpoints" in fact.immovable


@pytest.mark.parametrize(
    ("phase", "seen", "finished", "failed"),
    [
        ("Running", False, False, False),
        ("Suspending", True, False, False),
        ("Suspended", True, False, False),
        ("Resetting", False, False, False),
        ("Succeeded", False, True, False),
        ("Failed", False, True, True),
    ],
)
def test_the_phase_of_a_wrapper_tells_whether_it_is_stopped_or_over(
    phase: str, seen: bool, finished: bool, failed: bool
) -> None:
    shown = wrapper(pytorch(), status={"phase": phase})
    fact = job_fact("c1", shown, AT)
    assert KNOWN["AppWrapper"].is_suspension_seen(shown) is seen
    assert (fact.finished, fact.failed) == (finished, failed)


# ElasticJob


def test_an_elastic_job_is_watched_and_its_owner_told_why() -> None:
    spec = {"suspend": True, "replicaSpecs": {"worker": {"replicas": 3}}}
    fact = job_fact("c1", job("ElasticJob", spec, {"phase": "Running"}), AT)
    assert (fact.lever, fact.suspended, fact.pods, fact.heals_within_s) == (None, False, 3, 600.0)
    assert fact.immovable is not None
    assert "stops no pod of a running job" in fact.immovable
    assert job_fact("c1", job("ElasticJob", spec, {"phase": "Failed"}), AT).failed


@pytest.mark.parametrize("kind", ["JobSet", "TrainJob", "AppWrapper", "MPIJob"])
def test_what_another_controller_manages_is_left_to_it(kind: str) -> None:
    elsewhere = {"managedBy": "kueue.x-k8s.io/multikueue"}
    spec = {"runPolicy": elsewhere} if kind == "MPIJob" else elsewhere
    fact = job_fact("c1", job(kind, spec), AT)
    assert fact.lever is None
    assert fact.immovable is not None
    assert "multikueue" in fact.immovable
    own = {
        "JobSet": "jobset.sigs.k8s.io/jobset-controller",
        "TrainJob": "trainer.kubeflow.org/trainjob-controller",
        "AppWrapper": "workload.codeflare.dev/appwrapper-controller",
        "MPIJob": "kubeflow.org/mpi-operator",
    }[kind]
    here = {"managedBy": own}
    assert (
        job_fact("c1", job(kind, {"runPolicy": here} if kind == "MPIJob" else here), AT).lever
        == Lever.SUSPEND
    )


@pytest.mark.parametrize(
    ("version", "policy", "failed", "left"),
    [
        ("v2beta1", {}, 0, 6),
        ("v2beta1", {"backoffLimit": 2}, 1, 1),
        ("v2beta1", {"backoffLimit": 0}, 0, 0),
        ("v1", {"backoffLimit": 2}, 1, None),
    ],
)
def test_the_launcher_of_an_mpi_job_has_retries_where_it_is_a_job(
    version: str, policy: dict[str, Any], failed: int, left: int | None
) -> None:
    status = {"replicaStatuses": {"Launcher": {"failed": failed}}}
    made = job("MPIJob", {"runPolicy": policy}, status) | {"apiVersion": f"kubeflow.org/{version}"}
    assert job_fact("c1", made, AT).retries_left == left
