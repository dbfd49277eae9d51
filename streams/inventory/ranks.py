"""Which ranks a pod holds. A wrong rank blames a healthy node, so where sources leave doubt the answer is None.

The position of a pod among the pods of its job comes from literal environment variables, else from the labels or
annotations that its job's controller sets; the first rank is position times ranks per pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streams.inventory.job_shape import FIRST_ROLES, JobShape, PlacedRole
from streams.inventory.known_pod import KnownPod
from streams.inventory.names import names
from streams.model.errors import BadInput
from streams.model.hostlists import hosts
from streams.model.kube_objects import whole

_KUBEFLOW_ROLE = "training.kubeflow.org/replica-type"
_KUBEFLOW_JOB_ROLE = "training.kubeflow.org/job-role"
"""The only role on a pod of the MPI operator (v2beta1); beside the other one it says `master` of the pod with rank 0."""
_KUBEFLOW_INDEX = "training.kubeflow.org/replica-index"
_JOBSET_ROLE = "jobset.sigs.k8s.io/replicatedjob-name"
_JOBSET_INDEX = "jobset.sigs.k8s.io/job-index"
_VOLCANO_ROLE = "volcano.sh/task-spec"
_VOLCANO_INDEX = "volcano.sh/task-index"
_COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass(frozen=True, slots=True)
class PodRanks:
    """Ranks `first` to `first + count - 1`. `source` says where they come from, and which other source disagrees."""

    first: int | None = None
    count: int | None = None
    source: str | None = None


def ranks_of(pod: KnownPod, job: JobShape | None) -> PodRanks:
    """The ranks of a pod; `job` is what says what its job's pods are, when that is known."""
    if not _trains(pod, job):
        return PodRanks()
    count = (job.ranks_per_pod if job is not None else 0) or pod.template.ranks
    position, source = _position(pod, job)
    from_env = _from_env(pod, job, count, position)
    if from_env is not None:
        if position is None or from_env == position * count:
            return PodRanks(from_env, count, "env")
        return PodRanks(from_env, count, f"env, {source} says {position * count}")
    if position is None:
        return PodRanks(None, count, None)
    return PodRanks(position * count, count, source)


def _trains(pod: KnownPod, job: JobShape | None) -> bool:
    """Whether the pod holds ranks at all: a launcher does not."""
    if job is None or all(role.trains for role in job.roles):
        return True
    name = _role_name(pod)
    return all(role.trains for role in job.roles if role.name == name)


def _from_env(pod: KnownPod, job: JobShape | None, count: int, position: int | None) -> int | None:
    """The first rank according to literal environment variables.

    `RANK` is a process's rank where a pod holds one process. Where it holds several, training operators set it to the
    pod's position, users to the first rank; the position from labels, or a value too large for a position, tells which.
    """
    if not pod.env:
        return None
    for name in names().node_rank_env:
        if (node_rank := whole(pod.env.get(name))) is not None:
            return node_rank * count
    if (listed := _in_host_list(pod)) is not None:
        return listed * count
    rank = whole(pod.env.get("RANK"))
    if rank is None or rank == 0 or count == 1:
        return rank
    if position is not None:
        return rank * count if rank == position else rank
    pods = job.pods if job is not None else None
    if pods is None:
        return None
    return rank if rank >= pods else rank * count


def _in_host_list(pod: KnownPod) -> int | None:
    """The index of the pod's node in Slurm's list, in whose order `srun` hands out ranks (srun, --distribution=block)."""
    for name in names().node_list_env:
        listed = pod.env.get(name)
        if not listed or not pod.node:
            continue
        try:
            known = [host.partition(".")[0] for host in hosts(listed)]
        except BadInput:
            return None  # an unrelated variable of that name
        short = pod.node.partition(".")[0]
        return known.index(short) if known.count(short) == 1 else None
    return None


def _position(pod: KnownPod, job: JobShape | None) -> tuple[int | None, str | None]:
    """The pod's position among the pods that hold ranks, and whether it comes from a label or an annotation."""
    for place, written in (("label", pod.labels), ("annotation", pod.annotations)):
        if not written:
            continue
        for read in (_kubeflow, _jobset, _volcano):
            answered, position = read(written, pod, job)
            if answered:
                return position, place if position is not None else None
        for name in (_COMPLETION_INDEX, *names().index_labels):
            if (index := whole(written.get(name))) is not None:
                return index, place
    return None, None


def _kubeflow(written: Mapping[str, Any], pod: KnownPod, job: JobShape | None) -> tuple[bool, int | None]:
    index = whole(written.get(_KUBEFLOW_INDEX))
    if index is None:
        return False, None
    if job is not None and not job.in_order:
        return True, None
    if _role_name(pod) in FIRST_ROLES:
        return True, index
    return True, _within_role(pod, job, index)


def _jobset(written: Mapping[str, Any], pod: KnownPod, job: JobShape | None) -> tuple[bool, int | None]:
    job_index = whole(written.get(_JOBSET_INDEX))
    if job_index is None:
        return False, None
    index = whole(written.get(_COMPLETION_INDEX))
    if index is None:
        index = whole(pod.annotations.get(_COMPLETION_INDEX))
    role = _role(pod, job)
    if index is None or role is None:
        return True, None
    return True, role.start + job_index * role.per_job + index


def _volcano(written: Mapping[str, Any], pod: KnownPod, job: JobShape | None) -> tuple[bool, int | None]:
    index = whole(written.get(_VOLCANO_INDEX))
    if index is None:
        return False, None
    return True, _within_role(pod, job, index)


def _within_role(pod: KnownPod, job: JobShape | None, index: int) -> int | None:
    """Position from an index inside a role; unknown while the job, and so the roles before this one, is unknown."""
    role = _role(pod, job)
    return role.start + index if role is not None else None


def _role(pod: KnownPod, job: JobShape | None) -> PlacedRole | None:
    """The one role of the job that the pod plays; None where none or several have its name."""
    if job is None:
        return None
    name = _role_name(pod)
    mine = [role for role in job.roles if role.name == name]
    return mine[0] if len(mine) == 1 else None


def _role_name(pod: KnownPod) -> str:
    for written in (pod.labels, pod.annotations):
        for name in (_KUBEFLOW_ROLE, _KUBEFLOW_JOB_ROLE, _JOBSET_ROLE, _VOLCANO_ROLE):
            if isinstance(written.get(name), str):
                return str(written[name]).lower()
    return ""
