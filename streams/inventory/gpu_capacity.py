"""Who waits for GPUs, since when, and what the nodes have left: a condition of a full cluster, and no fault."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from streams.model.entity import JobRef
from streams.model.facts import Fact, JobFact, NodeFact, PodFact
from streams.model.kinds import WorkloadClass

_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class WaitingWork:
    """A job, or a pod without one, of which pods that ask for GPUs have no node, or which is suspended.

    `pods` of `of_pods` wait, and `gpus` is what they ask for together; None for a suspended job, which has no pods.
    """

    namespace: str
    name: str
    kind: str
    workload: WorkloadClass
    guessed: bool
    since: datetime
    pods: int
    of_pods: int
    gpus: int | None
    suspended: bool = False


@dataclass(frozen=True, slots=True)
class PoolCapacity:
    """GPUs of the nodes of one pool (empty where none is known). `lost` are not allocatable or on nodes that are not Ready,
    `closed` on cordoned ones; `free` are neither, and held by nobody.
    """

    pool: str
    nodes: int
    gpus: int
    used: int
    free: int
    closed: int
    lost: int


def waiting_work(facts: Iterable[Fact]) -> list[WaitingWork]:
    """What waits, longest first."""
    pods: dict[str, list[PodFact]] = {}
    jobs: dict[str, JobFact] = {}
    for fact in facts:
        if isinstance(fact, JobFact):
            jobs[fact.job.key] = fact
        elif isinstance(fact, PodFact) and fact.ended_at is None and fact.phase not in _OVER:
            pods.setdefault(fact.job.key if fact.job else f"Pod/{fact.namespace}/{fact.name}", []).append(
                fact
            )
    found = [work for key, members in pods.items() if (work := _waiting(key, members)) is not None]
    found += [
        _suspended(job)
        for key, job in jobs.items()
        if job.suspended and not job.finished and not pods.get(key)
    ]
    return sorted(found, key=lambda work: (work.since, work.namespace, work.name))


def pool_capacity(facts: Iterable[Fact]) -> list[PoolCapacity]:
    """The GPUs of each pool, by its name."""
    nodes: dict[str, list[NodeFact]] = {}
    used: dict[str, int] = {}
    for fact in facts:
        if isinstance(fact, NodeFact) and fact.gpus:
            nodes.setdefault(fact.pool or "", []).append(fact)
        elif isinstance(fact, PodFact) and fact.node and fact.ended_at is None and fact.phase not in _OVER:
            used[fact.node] = used.get(fact.node, 0) + fact.gpus
    return [_pool(name, nodes[name], used) for name in sorted(nodes)]


def _waiting(key: str, members: list[PodFact]) -> WaitingWork | None:
    waits = [pod for pod in members if pod.node is None and pod.gpus]
    if not waits:
        return None
    kind, namespace, name = key.split("/", 2)
    first = min(waits, key=lambda pod: (pod.created_at or pod.observed_at, pod.name))
    return WaitingWork(
        namespace=namespace,
        name=name,
        kind=kind,
        workload=first.workload or WorkloadClass.TRAINING,
        guessed=bool(first.workload_guessed),
        since=first.created_at or first.observed_at,
        pods=len(waits),
        of_pods=len(members),
        gpus=sum(pod.gpus for pod in waits),
    )


def _suspended(job: JobFact) -> WaitingWork:
    ref: JobRef = job.job
    return WaitingWork(
        namespace=ref.namespace,
        name=ref.name,
        kind=ref.kind,
        workload=job.workload or WorkloadClass.TRAINING,
        guessed=bool(job.workload_guessed),
        since=job.observed_at,
        pods=job.pods or 0,
        of_pods=job.pods or 0,
        gpus=None,
        suspended=True,
    )


def _pool(name: str, nodes: list[NodeFact], used: dict[str, int]) -> PoolCapacity:
    free = closed = lost = 0
    for node in nodes:
        there = min(node.gpus_allocatable, node.gpus) if node.ready else 0
        left = max(there - used.get(node.name, 0), 0)
        lost += node.gpus - there
        closed += left if node.unschedulable else 0
        free += 0 if node.unschedulable else left
    gpus = sum(node.gpus for node in nodes)
    held = sum(min(used.get(node.name, 0), node.gpus) for node in nodes)
    return PoolCapacity(name, len(nodes), gpus, held, free, closed, lost)
