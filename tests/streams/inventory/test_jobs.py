"""A job object of each kind and what is told of it."""

from __future__ import annotations

from typing import Any

import pytest

from streams.inventory.job_shape import JobShape, shape_of
from streams.inventory.jobs import job_fact
from streams.inventory.owners import chain, owners_of, top_owner
from streams.model.entity import JobRef
from tests.streams.inventory.objects import (
    AT,
    Object,
    batch_job,
    job,
    job_set,
    owner,
    pod,
    pytorch_job,
    volcano_job,
)


def ended(condition: str) -> Object:
    return {"conditions": [{"type": condition, "status": "True"}]}


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (batch_job(), {"pods": 4, "world": 32, "suspended": False, "finished": False}),
        (batch_job(spec={"completions": 2}), {"pods": 2, "world": 16}),
        (batch_job(spec={"suspend": True}), {"suspended": True}),
        (batch_job(status=ended("Complete")), {"finished": True, "failed": False}),
        (batch_job(status=ended("Failed")), {"finished": True, "failed": True}),
        (pytorch_job(), {"pods": 4, "world": 32}),
        (pytorch_job(gpus=0), {"pods": 4, "world": 4}),
        (pytorch_job(spec={"nprocPerNode": "2"}), {"pods": 4, "world": 8}),
        (pytorch_job(spec={"runPolicy": {"suspend": True}}), {"suspended": True}),
        (pytorch_job(spec={"elasticPolicy": {"minReplicas": 1}}), {"pods": 4, "world": None}),
        (pytorch_job(status=ended("Succeeded")), {"finished": True, "failed": False}),
        (job_set(), {"pods": 9, "world": 64}),
        (volcano_job(), {"pods": 4, "world": 32}),
        (
            job(kind="RayJob", api="ray.io/v1", spec={"suspend": True}),
            {"pods": 1, "world": None, "suspended": True},
        ),
        (
            job(kind="FlinkDeployment", api="flink.apache.org/v1beta1", spec={"suspend": True}),
            {"pods": None, "world": None, "suspended": True},
        ),
        (batch_job(labels={"faultline.dev/managed": "false"}), {"managed": False}),
        (batch_job(annotations={"faultline.dev/owner": "@vision"}), {"owner": "@vision"}),
        (batch_job(labels={"faultline.dev/owner": "U0123ABCD"}), {"owner": "U0123ABCD"}),
    ],
)
def test_each_kind_tells_its_size_and_state(shown: Object, expected: dict[str, Any]) -> None:
    fact = job_fact("c1", shown, AT)
    assert {name: getattr(fact, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("said", "at"),
    [
        ("2026-11-21T07:13:13Z", "2026-11-21T07:13:13+00:00"),
        ("2026-11-21T08:13:13+01:00", "2026-11-21T07:13:13+00:00"),
        ("1795245193", "2026-11-21T07:13:13+00:00"),
        ("1795245193.5", "2026-11-21T07:13:13.500000+00:00"),
        ("2026-11-21T07:13:13", None),
        ("five minutes ago", None),
        ("1795245193000", None),
        ("", None),
    ],
)
def test_an_annotation_tells_of_the_last_checkpoint(said: str, at: str | None) -> None:
    fact = job_fact("c1", batch_job(annotations={"faultline.dev/last-checkpoint-at": said}), AT)
    assert (fact.checkpoint_at and fact.checkpoint_at.isoformat()) == at


def test_a_volcano_job_is_not_taken_for_a_batch_job() -> None:
    assert job_fact("c1", volcano_job(), AT).key == "c1/job/VolcanoJob/team-a/train"


KNOWN = {
    "child": job("child", ownerReferences=[owner("JobSet", "top", api="jobset.x-k8s.io/v1alpha2")]),
    "nightly-1": job("nightly-1", ownerReferences=[owner("CronJob", "nightly")]),
    "circle": job("circle", ownerReferences=[owner("Job", "circle")]),
    "other": job("other", ownerReferences=[owner("JobSet", "top")], uid="new"),
}
RAY_NAME, RAY_KIND = "ray.io/originated-from-cr-name", "ray.io/originated-from-crd"


def made_by(kind: str) -> dict[str, str]:
    """What the operator of Ray writes on pods about the object that somebody made."""
    return {RAY_NAME: "ppo", RAY_KIND: kind}


JOBSET_LABEL = {"jobset.sigs.k8s.io/jobset-name": "top"}


@pytest.mark.parametrize(
    ("shown", "top"),
    [
        (pod(), None),
        (pod(owners=[owner("Job", "child")]), "JobSet/team-a/top"),
        (pod(owners=[owner("Job", "gone")]), "Job/team-a/gone"),
        (pod(owners=[owner("Job", "gone")], labels=JOBSET_LABEL), "JobSet/team-a/top"),
        (pod(owners=[owner("ElasticJob", "dlrover", controller=False)]), "ElasticJob/team-a/dlrover"),
        (pod(owners=[owner("Job", "child")], labels=JOBSET_LABEL), "JobSet/team-a/top"),
        # Its cluster of Ray is not watched, or bears another uid.
        (pod(owners=[owner("RayCluster", "ppo-x1")], labels=made_by("RayJob")), "RayJob/team-a/ppo"),
        (pod(owners=[owner("RayCluster", "ppo")], labels=made_by("RayCluster")), "RayCluster/team-a/ppo"),
        (pod(owners=[owner("RayCluster", "ppo-x1")], labels={RAY_NAME: "ppo"}), "RayCluster/team-a/ppo-x1"),
        (pod(owners=[owner("Job", "nightly-1")]), "Job/team-a/nightly-1"),
        (pod(owners=[owner("Job", "circle")]), "Job/team-a/circle"),
        (pod(owners=[owner("Job", "other")]), "Job/team-a/other"),
        (pod(owners=[owner("Job", "child", controller=False)]), None),
        (pod(owners=[owner("DaemonSet", "dcgm", api="apps/v1")]), None),
        (pod(owners=[owner("Node", "gpu-01", api="v1")]), None),
        (pod(owners=[owner("Job", "v", api="batch.volcano.sh/v1alpha1")]), "VolcanoJob/team-a/v"),
    ],
)
def test_the_top_most_owner_is_found(shown: Object, top: str | None) -> None:
    def lookup(who: JobRef) -> JobShape | None:
        found = KNOWN.get(who.name) if who.kind == "Job" else None
        return shape_of(found) if found is not None and found["metadata"]["uid"] == who.uid else None

    found = top_owner(shown["metadata"].get("labels") or {}, chain(owners_of(shown, "team-a"), lookup))
    assert (found.key if found else None) == top
