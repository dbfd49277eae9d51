"""A job object, of any of the kinds that run training → its fact, and the roles its pods play.

What each kind's spec and status mean is declared in `streams.job_kinds`. Of a kind that is not there (a site's own) the usual
fields are read: `spec.suspend`, the conditions Complete, Succeeded and Failed, a phase.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from streams.inventory.names import names
from streams.inventory.objects import gpus_requested, identity, is_managed
from streams.job_kinds import kubeflow
from streams.job_kinds.checkpoint_way import checkpoint_at, declared
from streams.job_kinds.kind import End, healing_declared
from streams.job_kinds.known import KNOWN
from streams.job_kinds.kueue import QUEUE_NAME
from streams.model.entity import JobRef
from streams.model.facts import JobFact
from streams.model.kinds import WorkloadClass
from streams.model.kube_objects import (
    KubeObject,
    annotations_of,
    holds,
    items,
    labels_of,
    part,
    text,
    whole,
)


class Workload(NamedTuple):
    """What work is for, and whether that is only a guess."""

    kind: WorkloadClass
    guessed: bool = False


TRAINS = Workload(WorkloadClass.TRAINING)

FIRST_ROLES = ("master", "chief")
"""Roles that hold rank 0, wherever the spec lists them."""
RANKLESS_ROLES = frozenset({"launcher", "ps", "evaluator", "scheduler", "server"})

OWNER_MARK = "faultline.dev/owner"
TEAM_MARK = "faultline.dev/team"
"""Annotation or label of a job that says whom to notify. A label cannot hold an address, an annotation can."""

_DEEPEST = 8
"""How far down in a spec pods are looked for: no kind nests them deeper."""

_NPROC_FLAG = re.compile(r"--nproc[-_]per[-_]node(?:[= ]|\Z)\s*(\S+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class PlacedRole:
    """Pods of one kind within a job: `pods` of them, the first at position `start` of those that hold ranks.

    `per_job` is how many pods one child Job of the role has (JobSet), else `pods`. `trains` is False for launchers.
    """

    name: str
    pods: int
    pod_spec: Mapping[str, Any]
    per_job: int
    start: int = 0
    trains: bool = True


def job_fact(cluster: str, job: KubeObject, at: datetime, work: Workload = TRAINS) -> JobFact:
    """What the API server says of a job, given what it is for. `finished` is set for failed ones too; `failed` tells them apart.

    Raises:
        BadInput: when the object has no kind or no name.
    """
    who = identity(job)
    kind = KNOWN.get(who.kind)
    end = (kind.end if kind is not None else _usual_end)(job)
    means = kind.means(job) if kind is not None else None
    retries = kind.retries(job) if kind is not None else None
    checkpoint = declared(job)
    progress = kind.progress(job) if kind is not None else None
    return JobFact(
        cluster=cluster,
        job=JobRef(who.kind, who.namespace, who.name, text(part(job, "metadata"), "uid")),
        observed_at=at,
        suspended=kind.is_suspended(job) if kind is not None else _usually_suspended(job),
        finished=end is not None,
        failed=end is not None and end.failed,
        pods=pod_count(job),
        world=world_size(job),
        managed=is_managed(job),
        owner=text(annotations_of(job), OWNER_MARK) or text(labels_of(job), OWNER_MARK),
        queue=_queue_of(job),
        team=text(labels_of(job), TEAM_MARK) or text(annotations_of(job), TEAM_MARK),
        workload=work.kind,
        workload_guessed=True if work.guessed else None,
        lever=means.lever if means is not None else None,
        immovable=means.reason or None if means is not None else None,
        cost=(means.cost or None) if means is not None else None,
        costs_retries=(means.retries or None) if means is not None else None,
        retries_left=retries.left if retries is not None else None,
        progress_at=progress.at if progress is not None else None,
        progress_percent=progress.percent if progress is not None else None,
        heals_within_s=kind.heals(job) if kind is not None else healing_declared(job) or None,
        incarnation=(kind.incarnation(job) or None) if kind is not None else None,
        checkpoint_at=checkpoint_at(job),
        checkpoint_by=checkpoint.by,
        checkpoint_within_s=checkpoint.within_s if checkpoint.by is not None else None,
        checkpoint_within_unreadable=checkpoint.unreadable,
    )


def _queue_of(job: KubeObject) -> str | None:
    """The queue that a job is in, by Kueue's label or by Volcano's field."""
    return text(labels_of(job), QUEUE_NAME) or text(part(job, "spec"), "queue")


def unwrapped(job: KubeObject) -> KubeObject:
    """The job that says what the pods are: the one inside an object that only wraps it, else the object itself."""
    kind = KNOWN.get(identity(job).kind)
    inner = kind.wraps(job) if kind is not None else None
    return unwrapped(inner) if inner is not None else job


def made_of(job: KubeObject) -> list[JobRef]:
    """The jobs that say what the pods are, where the job makes them and its own object does not; usually none."""
    job = unwrapped(job)
    who = identity(job)
    kind = KNOWN.get(who.kind)
    return [JobRef(name, who.namespace, made) for name, made in kind.made_of(job)] if kind is not None else []


def asks_for_gpus(job: KubeObject) -> bool:
    """Whether any of its pods does, as far as its kind says what its pods are."""
    return any(gpus_requested(spec) for spec in pod_specs(job))


def pod_specs(job: KubeObject) -> list[Mapping[str, Any]]:
    """The specs of its pods: by its roles, else wherever in its spec there are containers."""
    return [role.pod_spec for role in roles(job)] or list(_specs_in(part(job, "spec"), _DEEPEST))


def _specs_in(spec: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    if isinstance(spec, Mapping):
        if isinstance(spec.get("containers"), list):
            yield spec
        elif depth:
            for value in spec.values():
                yield from _specs_in(value, depth - 1)
    elif isinstance(spec, list) and depth:
        for value in spec:
            yield from _specs_in(value, depth - 1)


def roles(job: KubeObject) -> tuple[PlacedRole, ...]:
    """The roles of a job in the order of their ranks; empty when its kind does not say."""
    job = unwrapped(job)
    kind = KNOWN.get(identity(job).kind)
    known = kind.roles(job) if kind is not None else kubeflow.roles(job) if _is_kubeflow(job) else ()
    found = sorted(known, key=lambda role: role.name not in FIRST_ROLES)
    with_gpus = [role for role in found if gpus_requested(role.pod_spec)]
    placed, start = [], 0
    for role in found:
        # A kubeflow replica takes part whatever it asks for; elsewhere a role without GPUs beside one with GPUs does not.
        trains = role.name not in RANKLESS_ROLES and (_is_kubeflow(job) or not with_gpus or role in with_gpus)
        placed.append(PlacedRole(role.name, role.pods, role.pod_spec, role.per_job, start, trains))
        start += role.pods if trains else 0
    return tuple(placed)


def pod_count(job: KubeObject) -> int | None:
    """How many pods the job runs at once, all roles together."""
    found = roles(job)
    if found:
        return sum(role.pods for role in found)
    kind = KNOWN.get(identity(job).kind)
    if kind is not None and kind.all_pods is not None:
        return kind.all_pods(job) or None
    return whole(part(job, "spec", "trainer").get("numNodes"))


def world_size(job: KubeObject) -> int | None:
    """How many ranks the job has; None when it is elastic or does not say."""
    job = unwrapped(job)
    if is_elastic(job):
        return None
    found = [role for role in roles(job) if role.trains]
    if found:
        return sum(role.pods * ranks_per_pod(role.pod_spec, job) for role in found)
    trainer = part(job, "spec", "trainer")
    nodes, per_node = whole(trainer.get("numNodes")), whole(trainer.get("numProcPerNode"))
    return nodes * per_node if nodes and per_node else None


def is_elastic(job: KubeObject) -> bool:
    """Whether ranks are handed out at run time by a rendezvous, so that no label can tell them."""
    return bool(part(job, "spec", "elasticPolicy"))


def ranks_per_pod(pod_spec: Mapping[str, Any], job: KubeObject | None) -> int:
    """Processes of the collective in one pod: as the job or the pod says it, else one per GPU, else one."""
    spec = part(job or {}, "spec")
    said: list[Any] = [spec.get("nprocPerNode"), spec.get("slotsPerWorker")]
    said.append(part(spec, "trainer").get("numProcPerNode"))
    said += [env_of(pod_spec, name) for name in names().ranks_per_pod_env]
    said += [_nproc_flag(container) for container in items(pod_spec, "containers")]
    return next((count for value in said if (count := whole(value))), 0) or gpus_requested(pod_spec) or 1


def env_of(pod_spec: Mapping[str, Any], name: str) -> str | None:
    """The literal value of an environment variable in the first container that has one; references count as unset."""
    for container in items(pod_spec, "containers"):
        for variable in items(container, "env"):
            if variable.get("name") == name and text(variable, "value") is not None:
                return text(variable, "value")
    return None


def _nproc_flag(container: Mapping[str, Any]) -> str | None:
    words = [str(word) for key in ("command", "args") for word in container.get(key) or []]
    match = _NPROC_FLAG.search(" ".join(words)[:20_000])
    return match[1] if match else None


def _usual_end(job: KubeObject) -> End | None:
    status = part(job, "status")
    phase = str(part(status, "state").get("phase") or status.get("jobDeploymentStatus") or "")
    if holds(job, "Failed") or phase in ("Failed", "Terminated"):
        return End(phase or "Failed", failed=True)
    done = any(holds(job, name) for name in ("Complete", "Completed", "Succeeded"))
    return End("Complete", failed=False) if done or phase in ("Completed", "Complete") else None


def _usually_suspended(job: KubeObject) -> bool:
    status = part(job, "status")
    phase = part(status, "state").get("phase") or status.get("jobDeploymentStatus")
    spec = part(job, "spec")
    asked = spec.get("suspend") is True or part(spec, "runPolicy").get("suspend") is True
    return asked or phase in ("Aborted", "Aborting", "Suspended")


def _is_kubeflow(job: KubeObject) -> bool:
    return str(job.get("apiVersion") or "").startswith("kubeflow.org/")
