"""A Pod object → its fact: where it runs, for which job, with which ranks."""

from __future__ import annotations

from datetime import datetime, timedelta

from streams.inventory.jobs import Workload
from streams.inventory.objects import gpus_requested, identity
from streams.inventory.ranks import PodRanks
from streams.model.entity import JobRef
from streams.model.facts import PodFact
from streams.model.kube_objects import KubeObject, condition, holds, items, part, text, time, whole

_WATCH_LAG = timedelta(seconds=5)
"""How much later than a change a watch tells of it at most, with clocks that differ."""


def pod_fact(
    cluster: str,
    pod: KubeObject,
    at: datetime,
    *,
    work: Workload,
    job: JobRef | None,
    ranks: PodRanks | None = None,
    replaceable: bool = False,
) -> PodFact:
    """What the API server says of a pod, given its class, and what was worked out for it: its job, its ranks, and whether that
    job goes on without it.

    Raises:
        BadInput: when the object has no name.
    """
    who, status = identity(pod), part(pod, "status")
    held = ranks or PodRanks()
    exited_at, exit_code = _last_exit(pod) or (None, None)
    return PodFact(
        cluster=cluster,
        namespace=who.namespace,
        name=who.name,
        uid=text(part(pod, "metadata"), "uid") or "",
        observed_at=at,
        node=text(part(pod, "spec"), "nodeName"),
        job=job,
        phase=text(status, "phase") or "Pending",
        ready=holds(pod, "Ready"),
        gpus=gpus_requested(part(pod, "spec")),
        rank=held.first,
        ranks=held.count,
        rank_source=held.source,
        scheduled_at=_scheduled_at(pod),
        ended_at=_ended_at(pod),
        ip=text(status, "podIP"),
        workload=work.kind,
        workload_guessed=True if work.guessed else None,
        created_at=time(part(pod, "metadata"), "creationTimestamp"),
        started_at=_started_at(pod),
        removed_at=_removed_at(pod, at),
        exit_code=exit_code,
        exited_at=exited_at,
        replaceable=True if replaceable else None,
    )


def _scheduled_at(pod: KubeObject) -> datetime | None:
    """When it came to its node. Its kubelet took it after that, and never later again, however often its containers start."""
    if not holds(pod, "PodScheduled"):
        return None
    times = time(condition(pod, "PodScheduled"), "lastTransitionTime"), time(part(pod, "status"), "startTime")
    return min((at for at in times if at is not None), default=None)


def _removed_at(pod: KubeObject, seen_at: datetime) -> datetime | None:
    """When its deletion was asked for: the object says when its time to end by itself is over.

    A watch tells of it at once. Where it comes later, that time was shortened meanwhile, or is none: a pod that ended has no
    use for it.
    """
    about = part(pod, "metadata")
    until = time(about, "deletionTimestamp")
    grace = whole(about.get("deletionGracePeriodSeconds")) or 0
    return (
        min(until, max(until - timedelta(seconds=grace), seen_at - _WATCH_LAG)) if until is not None else None
    )


def _started_at(pod: KubeObject) -> datetime | None:
    """When the last of its running containers started."""
    starts = (
        time(part(container, "state", "running"), "startedAt")
        for container in items(pod, "status", "containerStatuses")
    )
    return max((start for start in starts if start is not None), default=None)


def _ended_at(pod: KubeObject) -> datetime | None:
    """When the last container ended; for a pod that ended without a word of them, when it stopped being ready."""
    if part(pod, "status").get("phase") not in ("Succeeded", "Failed"):
        return None
    ends = (
        time(part(container, "state", "terminated"), "finishedAt")
        for container in items(pod, "status", "containerStatuses")
    )
    known = [end for end in ends if end is not None]
    return max(known) if known else time(condition(pod, "Ready"), "lastTransitionTime")


def _last_exit(pod: KubeObject) -> tuple[datetime, int] | None:
    """When a container ended badly for the last time, and with which code; one that starts again in its pod tells it as well.

    A pod with a reason of its own (`Evicted`, `NodeLost`, `UnexpectedAdmissionError`) did not end by what its program did.
    """
    if text(part(pod, "status"), "reason"):
        return None
    exits = [
        (ended, code)
        for container in items(pod, "status", "containerStatuses")
        for state in ("state", "lastState")
        if (code := whole(part(container, state, "terminated").get("exitCode")))
        and (ended := time(part(container, state, "terminated"), "finishedAt")) is not None
    ]
    return max(exits, default=None)
