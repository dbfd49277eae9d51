"""Which ranks a pod holds. A wrong rank blames a healthy node, so where sources leave doubt the answer is None.

The position of a pod among the pods of its job comes from literal environment variables, else from the labels or
annotations that its job's controller sets; the first rank is position times ranks per pod.
"""

from __future__ import annotations

from dataclasses import dataclass

from streams.inventory.jobs import (
    FIRST_ROLES,
    PlacedRole,
    env_of,
    is_elastic,
    pod_count,
    ranks_per_pod,
    roles,
)
from streams.inventory.names import names
from streams.model.errors import BadInput
from streams.model.hostlists import hosts
from streams.model.kube_objects import KubeObject, annotations_of, labels_of, part, text, whole

_KUBEFLOW = "training.kubeflow.org/"
_COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
_JOBSET = "jobset.sigs.k8s.io/"
_VOLCANO = "volcano.sh/"


@dataclass(frozen=True, slots=True)
class PodRanks:
    """Ranks `first` to `first + count - 1`. `source` says where they come from, and which other source disagrees."""

    first: int | None = None
    count: int | None = None
    source: str | None = None


def ranks_of(pod: KubeObject, job: KubeObject | None) -> PodRanks:
    """The ranks of a pod; `job` is its top-most owner when that is known."""
    if not _trains(pod, job):
        return PodRanks()
    spec = part(pod, "spec")
    count = ranks_per_pod(spec, job)
    position, source = _position(pod, job)
    from_env = _from_env(pod, job, count, position)
    if from_env is not None:
        if position is None or from_env == position * count:
            return PodRanks(from_env, count, "env")
        return PodRanks(from_env, count, f"env, {source} says {position * count}")
    if position is None:
        return PodRanks(None, count, None)
    return PodRanks(position * count, count, source)


def _trains(pod: KubeObject, job: KubeObject | None) -> bool:
    """Whether the pod holds ranks at all: a launcher does not."""
    name = _role_name(pod)
    found = roles(job) if job is not None else ()
    return all(role.trains for role in found if role.name == name)


def _from_env(pod: KubeObject, job: KubeObject | None, count: int, position: int | None) -> int | None:
    """The first rank according to literal environment variables.

    `RANK` is a process's rank where a pod holds one process. Where it holds several, training operators set it to the
    pod's position, users to the first rank; the position from labels, or a value too large for a position, tells which.
    """
    spec = part(pod, "spec")
    for name in names().node_rank_env:
        if (node_rank := whole(env_of(spec, name))) is not None:
            return node_rank * count
    if (listed := _in_host_list(spec)) is not None:
        return listed * count
    rank = whole(env_of(spec, "RANK"))
    if rank is None or rank == 0 or count == 1:
        return rank
    if position is not None:
        return rank * count if rank == position else rank
    pods = pod_count(job) if job is not None else None
    if pods is None:
        return None
    return rank if rank >= pods else rank * count


def _in_host_list(spec: KubeObject) -> int | None:
    """The index of the pod's node in Slurm's list, in whose order `srun` hands out ranks (srun, --distribution=block)."""
    node = text(spec, "nodeName")
    for name in names().node_list_env:
        listed = env_of(spec, name)
        if not listed or not node:
            continue
        try:
            known = [host.partition(".")[0] for host in hosts(listed)]
        except BadInput:
            return None  # an unrelated variable of that name
        short = node.partition(".")[0]
        return known.index(short) if known.count(short) == 1 else None
    return None


def _position(pod: KubeObject, job: KubeObject | None) -> tuple[int | None, str | None]:
    """The pod's position among the pods that hold ranks, and whether it comes from a label or an annotation."""
    for place, written in (("label", labels_of(pod)), ("annotation", annotations_of(pod))):
        for read in (_kubeflow, _jobset, _volcano):
            answered, position = read(written, pod, job)
            if answered:
                return position, place if position is not None else None
        for name in (_COMPLETION_INDEX, *names().index_labels):
            if (index := whole(written.get(name))) is not None:
                return index, place
    return None, None


def _kubeflow(written: KubeObject, pod: KubeObject, job: KubeObject | None) -> tuple[bool, int | None]:
    index = whole(written.get(f"{_KUBEFLOW}replica-index"))
    if index is None:
        return False, None
    if job is not None and is_elastic(job):
        return True, None  # its rendezvous hands out ranks in order of arrival
    if _role_name(pod) in FIRST_ROLES:
        return True, index
    return True, _within_role(pod, job, index)


def _jobset(written: KubeObject, pod: KubeObject, job: KubeObject | None) -> tuple[bool, int | None]:
    job_index = whole(written.get(f"{_JOBSET}job-index"))
    if job_index is None:
        return False, None
    index = whole(written.get(_COMPLETION_INDEX))
    if index is None:
        index = whole(annotations_of(pod).get(_COMPLETION_INDEX))
    role = _role(pod, job)
    if index is None or role is None:
        return True, None
    return True, role.start + job_index * role.per_job + index


def _volcano(written: KubeObject, pod: KubeObject, job: KubeObject | None) -> tuple[bool, int | None]:
    index = whole(written.get(f"{_VOLCANO}task-index"))
    if index is None:
        return False, None
    return True, _within_role(pod, job, index)


def _within_role(pod: KubeObject, job: KubeObject | None, index: int) -> int | None:
    """Position from an index inside a role; unknown while the job, and so the roles before this one, is unknown."""
    role = _role(pod, job)
    return role.start + index if role is not None else None


def _role(pod: KubeObject, job: KubeObject | None) -> PlacedRole | None:
    """The one role of the job that the pod plays; None where none or several have its name."""
    mine = [role for role in roles(job) if role.name == _role_name(pod)] if job is not None else []
    return mine[0] if len(mine) == 1 else None


def _role_name(pod: KubeObject) -> str:
    for written in (labels_of(pod), annotations_of(pod)):
        for name in (f"{_KUBEFLOW}replica-type", f"{_JOBSET}replicatedjob-name", f"{_VOLCANO}task-spec"):
            if isinstance(written.get(name), str):
                return str(written[name]).lower()
    return ""
