"""All kinds of training jobs that are known, by the name used here."""

from __future__ import annotations

from collections.abc import Mapping

from streams.job_kinds.app_wrapper import app_wrapper
from streams.job_kinds.batch_job import JOB
from streams.job_kinds.disaggregated_set import DISAGGREGATED_SET
from streams.job_kinds.elastic_job import ELASTIC_JOB
from streams.job_kinds.hyperpod import HYPERPOD_PYTORCH_JOB
from streams.job_kinds.jax_job import JAX_JOB
from streams.job_kinds.job_set import JOB_SET
from streams.job_kinds.kind import JobKind
from streams.job_kinds.leader_worker_set import LEADER_WORKER_SET
from streams.job_kinds.mpi_job import MPI_JOB
from streams.job_kinds.paddle_job import PADDLE_JOB
from streams.job_kinds.pytorch_job import PYTORCH_JOB
from streams.job_kinds.ray_cluster import RAY_CLUSTER
from streams.job_kinds.ray_job import RAY_JOB
from streams.job_kinds.ray_service import RAY_SERVICE
from streams.job_kinds.slurm_job import SLURM_KIND
from streams.job_kinds.tf_job import TF_JOB
from streams.job_kinds.train_job import TRAIN_JOB
from streams.job_kinds.volcano_job import VOLCANO_JOB
from streams.job_kinds.xgboost_job import XGBOOST_JOB

_JOBS: Mapping[str, JobKind] = {
    kind.name: kind
    for kind in (
        JOB,
        PYTORCH_JOB,
        TF_JOB,
        MPI_JOB,
        XGBOOST_JOB,
        PADDLE_JOB,
        JAX_JOB,
        JOB_SET,
        TRAIN_JOB,
        RAY_JOB,
        RAY_CLUSTER,
        RAY_SERVICE,
        VOLCANO_JOB,
        LEADER_WORKER_SET,
        DISAGGREGATED_SET,
        HYPERPOD_PYTORCH_JOB,
        SLURM_KIND,
        ELASTIC_JOB,
    )
}

APP_WRAPPER = app_wrapper(_JOBS)

KNOWN: Mapping[str, JobKind] = {**_JOBS, APP_WRAPPER.name: APP_WRAPPER}

WATCHED_BY_DEFAULT = tuple(name for kind in KNOWN.values() for name in kind.watched_as)
"""`group/version/Kind` of every kind, in each version: what an inventory watches that was told nothing else."""
