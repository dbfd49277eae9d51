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


def mpi_job(*, command: str = "", slots: int | None = 8, **spec: Any) -> dict[str, Any]:
    """An MPIJob of the MPI operator: two workers of eight GPUs, and a launcher with that command."""
    launcher = {"containers": [{"name": "l", "command": ["sh", "-c", command]}]} if command else {}
    roles = {
        "Launcher": {"replicas": 1, "template": {"spec": launcher}},
        "Worker": {"replicas": 2, "template": {"spec": pod_spec(8)}},
    }
    spec |= {"slotsPerWorker": slots} if slots is not None else {}
    return job(kind="MPIJob", api="kubeflow.org/v2beta1", spec={"mpiReplicaSpecs": roles, **spec})


def mpi_pod(role: str, index: int | None = None, gpus: int = 8) -> dict[str, Any]:
    """As the MPI operator labels its pods: with no other role than this."""
    said = {"training.kubeflow.org/job-role": role, "training.kubeflow.org/operator-name": "mpi-operator"}
    said |= {"training.kubeflow.org/replica-index": str(index)} if index is not None else {}
    return pod(labels=said, spec=pod_spec(gpus))


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
    "workers of an MPI job are filled in their order": (
        mpi_pod("worker", 1),
        mpi_job(command="mpirun -np 16 ./train"),
        PodRanks(8, 8, "label"),
    ),
    "an MPI launcher by its other label": (mpi_pod("launcher", gpus=0), mpi_job(), PodRanks()),
    "mpirun that deals ranks out one worker after the other": (
        mpi_pod("worker", 1),
        mpi_job(command="mpirun -np 16 --map-by node ./train"),
        PodRanks(None, 8, None),
    ),
    "one slot for a worker of eight GPUs": (
        mpi_pod("worker", 1),
        mpi_job(slots=None),
        PodRanks(None, 8, None),
    ),
    "an MPI launcher that is a worker": (
        mpi_pod("launcher", 0),
        mpi_job(runLauncherAsWorker=True),
        PodRanks(None, 8, None),
    ),
    "a worker beside a launcher that is one": (
        mpi_pod("worker", 0),
        mpi_job(runLauncherAsWorker=True),
        PodRanks(None, 8, None),
    ),
    "nothing says": (pod(), batch_job(), PodRanks(None, 8, None)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_ranks_come_from_what_is_certain(case: tuple[Any, Any, PodRanks]) -> None:
    shown, owner, expected = case
    assert ranks_of(seen(shown), shape_of(owner).innermost if owner else None) == expected
