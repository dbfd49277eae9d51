"""A pod → its fact: where it runs, for which job, with which ranks."""

from __future__ import annotations

from datetime import datetime, timedelta

from streams.inventory.jobs import Workload
from streams.inventory.known_pod import KnownPod
from streams.inventory.ranks import PodRanks
from streams.model.entity import JobRef
from streams.model.facts import PodFact

_WATCH_LAG = timedelta(seconds=5)
"""How much later than a change a watch reports it at most, with clocks that differ."""

_NO_RANKS = PodRanks()


def pod_fact(
    cluster: str,
    pod: KnownPod,
    at: datetime,
    *,
    work: Workload,
    job: JobRef | None,
    ranks: PodRanks | None = None,
    replaceable: bool = False,
) -> PodFact:
    """What is known of a pod, given its class, and what was worked out for it: its job, its ranks, and whether that job goes on
    without it.
    """
    held = ranks or _NO_RANKS
    exited_at, exit_code = pod.last_exit or (None, None)
    return PodFact(
        cluster=cluster,
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        observed_at=at,
        node=pod.node,
        job=job,
        phase=pod.phase,
        ready=pod.ready,
        gpus=pod.template.gpus,
        rank=held.first,
        ranks=held.count,
        rank_source=held.source,
        scheduled_at=pod.scheduled_at,
        ended_at=pod.ended_at,
        ip=pod.ip,
        workload=work.kind,
        workload_guessed=True if work.guessed else None,
        created_at=pod.created_at,
        started_at=pod.started_at,
        removed_at=_removed_at(pod, at),
        exit_code=exit_code,
        exited_at=exited_at,
        replaceable=True if replaceable else None,
    )


def _removed_at(pod: KnownPod, seen_at: datetime) -> datetime | None:
    """When its deletion was asked for: the object says when its time to end by itself is over.

    A watch reports it at once. Where it comes later, that time was shortened meanwhile, or is none: a pod that ended has no
    use for it.
    """
    until = pod.deleted_at
    if until is None:
        return None
    return min(until, max(until - timedelta(seconds=pod.grace_s), seen_at - _WATCH_LAG))
