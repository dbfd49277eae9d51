"""Which ranks a pod holds, and when that cannot be known."""

from __future__ import annotations

from typing import Any

import pytest

from streams.inventory.job_shape import shape_of
from streams.inventory.ranks import PodRanks, ranks_of
from tests.streams.inventory.objects import (
    batch_job,
    job,
    job_set,
    kubeflow_pod,
    pod,
    pod_spec,
    pytorch_job,
    seen,
    volcano_job,
)

INDEX = "batch.kubernetes.io/job-completion-index"
ELASTIC = {"elasticPolicy": {"minReplicas": 2, "maxReplicas": 4}}


def with_env(env: dict[str, str], gpus: int = 8, **metadata: Any) -> dict[str, Any]:
    return pod(spec=pod_spec(gpus, env), **metadata)


def jobset_pod(role: str, job_index: int, index: int) -> dict[str, Any]:
    said = {
        "jobset.sigs.k8s.io/replicatedjob-name": role,
        "jobset.sigs.k8s.io/job-index": str(job_index),
        INDEX: str(index),
    }
    return pod(labels=said)


CASES = {
    "Slurm's list of nodes is in the order of ranks": (
        with_env({"SLURM_JOB_NODELIST": "gpu-[001-004]"}, on="gpu-003"),
        None,
        PodRanks(16, 8, "env"),
    ),
    "Slurm's own number of the node counts first": (
        with_env(
            {"SLURM_NODEID": "1", "SLURM_NODELIST": "gpu-[001-004]", "SLURM_NTASKS_PER_NODE": "4"},
            on="gpu-003",
        ),
        None,
        PodRanks(4, 4, "env"),
    ),
    "a node that is not in Slurm's list": (
        with_env({"SLURM_JOB_NODELIST": "gpu-[001-004]"}, on="gpu-009"),
        None,
        PodRanks(None, 8, None),
    ),
    "a variable that only bears the name": (
        with_env({"SLURM_JOB_NODELIST": "gpu-[001"}, on="gpu-001"),
        None,
        PodRanks(None, 8, None),
    ),
    "the master holds the first ranks": (
        kubeflow_pod("m", "master", 0),
        pytorch_job(),
        PodRanks(0, 8, "label"),
    ),
    "a worker comes after the master": (
        kubeflow_pod("w", "worker", 1),
        pytorch_job(),
        PodRanks(16, 8, "label"),
    ),
    "without a master workers start at 0": (
        kubeflow_pod("w", "worker", 1),
        pytorch_job(master=False),
        PodRanks(8, 8, "label"),
    ),
    "a worker of an unknown job": (kubeflow_pod("w", "worker", 1), None, PodRanks(None, 8, None)),
    "an elastic job hands out ranks itself": (
        kubeflow_pod("w", "worker", 1),
        pytorch_job(spec=ELASTIC),
        PodRanks(None, 8, None),
    ),
    "RANK set by the operator is the pod's position": (
        kubeflow_pod("w", "worker", 1, spec=pod_spec(8, {"RANK": "2"})),
        pytorch_job(),
        PodRanks(16, 8, "env"),
    ),
    "RANK set by a person is the first rank": (
        kubeflow_pod("w", "worker", 1, spec=pod_spec(8, {"RANK": "16"})),
        pytorch_job(),
        PodRanks(16, 8, "env"),
    ),
    "RANK against the label is shown": (
        kubeflow_pod("w", "worker", 1, spec=pod_spec(8, {"RANK": "24"})),
        pytorch_job(),
        PodRanks(24, 8, "env, label says 16"),
    ),
    "RANK of one process": (with_env({"RANK": "5"}, 1), batch_job(gpus=1), PodRanks(5, 1, "env")),
    "RANK that no position can have": (with_env({"RANK": "8"}), batch_job(pods=4), PodRanks(8, 8, "env")),
    "RANK that may mean either": (with_env({"RANK": "8"}), None, PodRanks(None, 8, None)),
    "RANK by reference is no literal": (with_env({"RANK": ""}), batch_job(), PodRanks(None, 8, None)),
    "RANK that is no number": (with_env({"RANK": "$(INDEX)"}), batch_job(), PodRanks(None, 8, None)),
    "NODE_RANK counts pods": (with_env({"NODE_RANK": "3"}), None, PodRanks(24, 8, "env")),
    "an indexed Job by label": (pod(labels={INDEX: "2"}), batch_job(), PodRanks(16, 8, "label")),
    "an indexed Job by annotation": (
        pod(annotations={INDEX: "2"}),
        batch_job(),
        PodRanks(16, 8, "annotation"),
    ),
    "processes per pod from the environment": (
        with_env({"PET_NPROC_PER_NODE": "4"}, labels={INDEX: "2"}),
        batch_job(),
        PodRanks(8, 4, "label"),
    ),
    "processes per pod from the command line": (
        pod(labels={INDEX: "2"}, spec=pod_spec(8, args=["torchrun", "--nproc_per_node=2", "train.py"])),
        batch_job(),
        PodRanks(4, 2, "label"),
    ),
    "processes per pod as a word of its own": (
        pod(labels={INDEX: "2"}, spec=pod_spec(8, args=["torchrun", "--nproc-per-node", "2", "train.py"])),
        batch_job(),
        PodRanks(4, 2, "label"),
    ),
    "as many processes as GPUs": (
        pod(labels={INDEX: "2"}, spec=pod_spec(8, args=["torchrun", "--nproc-per-node=gpu", "train.py"])),
        batch_job(),
        PodRanks(16, 8, "label"),
    ),
    "processes per pod from the job": (
        kubeflow_pod("w", "worker", 1),
        pytorch_job(spec={"nprocPerNode": "4"}),
        PodRanks(8, 4, "label"),
    ),
    "a JobSet counts the jobs before": (jobset_pod("workers", 1, 2), job_set(), PodRanks(48, 8, "label")),
    "a JobSet's driver holds no rank": (jobset_pod("driver", 0, 0), job_set(), PodRanks()),
    "an unknown JobSet": (jobset_pod("workers", 1, 2), None, PodRanks(None, 8, None)),
    "Volcano's master comes first": (
        pod(annotations={"volcano.sh/task-spec": "worker", "volcano.sh/task-index": "1"}),
        volcano_job(),
        PodRanks(16, 8, "annotation"),
    ),
    "a LeaderWorkerSet's group": (
        pod(labels={"leaderworkerset.sigs.k8s.io/worker-index": "3"}),
        job(kind="LeaderWorkerSet", api="leaderworkerset.x-k8s.io/v1"),
        PodRanks(24, 8, "label"),
    ),
    "an MPI launcher holds no rank": (
        kubeflow_pod("l", "launcher", 0, spec=pod_spec(0)),
        job(
            kind="MPIJob",
            api="kubeflow.org/v2beta1",
            spec={"mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}},
        ),
        PodRanks(),
    ),
    "nothing says": (pod(), batch_job(), PodRanks(None, 8, None)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_ranks_come_from_what_is_certain(case: tuple[Any, Any, PodRanks]) -> None:
    shown, owner, expected = case
    assert ranks_of(seen(shown), shape_of(owner).innermost if owner else None) == expected
