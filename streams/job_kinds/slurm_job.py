"""A job of Slurm, which no API server knows: it is put back into the queue, held there, and released again.

Its object is the job's JSON record, as `squeue --json` and slurmrestd write it. Source: slurm, `scontrol` (requeuehold, release),
`sbatch` (--requeue), `slurm.conf` (JobRequeue).
"""

from __future__ import annotations

from streams.job_kinds.kind import End, JobKind, Lever, Proof
from streams.model import slurm
from streams.model.entity import SLURM_JOB
from streams.model.kube_objects import KubeObject

NO_REQUEUE = "slurmrestd has no request that puts a job back into the queue: set slurm.commands as well"
"""Why no running job is moved where Slurm is reached by slurmrestd alone."""


def _immovable(job: KubeObject) -> str:
    one = slurm.job_of(job)
    if not one.batch:
        return "it is interactive (salloc, srun): Slurm puts only batch jobs back into the queue"
    if one.het:
        return "it is part of a heterogeneous job, whose parts cannot be put back into the queue one by one"
    if not one.requeue:
        return (
            "it was submitted without --requeue, so Slurm does not put it back into the queue: "
            "cancel it and submit it again from its last checkpoint"
        )
    return ""


def _end(job: KubeObject) -> End | None:
    one = slurm.job_of(job)
    return End(", ".join(sorted(one.states)), one.failed) if one.ended else None


SLURM_KIND = JobKind(
    name=SLURM_JOB,
    api_versions=(),
    plural="",
    pod_labels=lambda job: {},
    immovable=lambda job: _immovable(job) if job.get("job_id") else "",
    lever=Lever.REQUEUE,
    cost=lambda job: "its script starts from its beginning, and finds its own checkpoint",
    phase_suspended=lambda job: slurm.job_of(job).held,
    end=_end,
    incarnation=lambda job: str(slurm.job_of(job).restarts),
    proof=Proof.REAL,
    notes=(
        "Only jobs of `sbatch --requeue` (or with JobRequeue=1, Slurm's default) are moved. The mark of a move is in "
        "AdminComment, and nodes under suspicion are in ExcNodeList. A job that somebody else holds is left alone. "
        "Switched on by `slurm.commands` or `slurm.url` ([Slurm](slurm.md)).",
    ),
)
