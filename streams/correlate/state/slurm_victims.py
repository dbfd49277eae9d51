"""Jobs of Slurm that lines tie to the trouble of a node, whether anything else is known of them or not.

The controller logs which jobs it lost with a node, and a node's daemon which could not start there. A job that comes to a node
with a broken GPU starts and ends at its first call of CUDA, as its own output shows.
"""

from __future__ import annotations

from dataclasses import replace

from streams.correlate.policy.families import families
from streams.correlate.sightings import Sighting
from streams.correlate.state.allocations import is_slurm, job_lost, job_of, nodes_of
from streams.correlate.state.rows import JobRow
from streams.model.entity import SLURM_JOB, Entity, JobRef
from streams.model.hostnames import short
from streams.model.kinds import SignalKind

ENDS_JOBS = "ends_jobs"
"""Subtype of the end of a small job that, with others, is blamed on its node (`job_rules/early_ends.py`)."""
_NOT_STARTED, _NOT_LAUNCHED, _NO_GPU = "slurm_prolog", "slurm_launch", "job_without_gpu"
_OF_DAEMONS = "platform"
"""The domain of what keeps Slurm's daemon from starting anything: a job's step may fail to be launched for reasons of its own."""
_OF_GPUS = frozenset({"gpu", "platform"})


def job_hit(seen: Sighting, domain: str) -> JobRef | None:
    """The job that a sighting of a node says to have ended with it or to have failed on it; None where it names none.

    Args:
        seen: What is kept of a node's condition.
        domain: That of the node's fault: that CUDA finds no GPU follows from faults of GPUs and of their software only.
    """
    subtype, number = seen.text("subtype"), seen.text("job_id")
    if not number:
        return None
    if (
        subtype in (_NOT_STARTED, ENDS_JOBS)
        or (subtype == _NOT_LAUNCHED and domain == _OF_DAEMONS)
        or (subtype == _NO_GPU and domain in _OF_GPUS)
    ):
        return JobRef(SLURM_JOB, "", seen.text("array_task") or number)
    return job_lost(seen)


def of_node(seen: Sighting) -> Sighting | None:
    """What a job's output says of the GPUs of its node: that CUDA finds none to use, or meets faulty hardware; else None."""
    node, pod = seen.entity.node, seen.entity.pod
    if seen.kind != SignalKind.JOB_FAILED or seen.text("subtype") != "cuda_error" or not node:
        return None
    if pod is None or not is_slurm(pod) or families().role(seen) != "context":
        return None
    return replace(
        seen,
        kind=SignalKind.NODE_CONDITION,
        entity=Entity(seen.entity.cluster, node=node),
        attributes={"subtype": _NO_GPU, "job_id": job_of(pod.key).name},
    )


def stood_there(seen: Sighting, row: JobRow | None) -> bool:
    """Whether the job ran where a line of its output was read: any host may ship that."""
    if seen.text("subtype") != _NO_GPU:
        return True
    called = {short(name) for name in (seen.entity.node, seen.said) if name}
    return row is not None and not called.isdisjoint(map(short, nodes_of(row)))
