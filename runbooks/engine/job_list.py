"""What runs on a cluster, and what could be done for it if its node failed now. Pure, over the inventory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from runbooks.engine.job_condition import POD, JobCondition, bare_pods, condition_of, immovable
from streams.inventory.cluster_view import ClusterView
from streams.model.facts import JobFact, PodFact
from streams.model.kinds import WorkloadClass

WORDS: Mapping[str, str] = {
    "suspend": "suspended, and resumed elsewhere",
    "evict": "evicted from the closed node, and made anew by its controller",
    "command": "aborted by a command, and resumed elsewhere",
    "queue": "sent back to its Kueue queue, and admitted elsewhere",
}
"""What is done with each lever (`streams.job_kinds.kind.Lever`)."""

EVICTED = "never stopped: the drain evicts its pods on the closed node within their budgets"
ANEW = "and its controller makes them anew elsewhere"
AFTER_DRAIN: Mapping[WorkloadClass, str] = {
    WorkloadClass.NOTEBOOK: "; what it holds in memory is lost, so save it before",
    WorkloadClass.BATCH: "; what they had done since they last saved it is done again",
}
"""What its owner should know of a drain, besides."""
NAMED = 3
"""Nodes that are named in a text."""
BARE = (
    "nothing: no controller would make it anew, so it is never evicted; "
    "delete it and create it again once its node is closed, and it runs elsewhere"
)
SAME_NAME = "; they keep their names, so each waits until the old one is gone"


@dataclass(frozen=True, slots=True)
class ListedJob:
    """One job, service or bare pod that holds GPUs or trains. `can` says what could be done for it, or why nothing can."""

    kind: str
    namespace: str
    name: str
    workload: str
    state: str
    gpus: int
    nodes: tuple[str, ...]
    owner: str | None
    lever: str | None
    can: str
    retries_left: int | None
    heals_within_s: float | None
    last_progress: datetime | None


def listed_jobs(
    view: ClusterView, progress: Mapping[str, datetime] | None = None, *, ended: bool = False
) -> list[ListedJob]:
    """Everything that runs, waits or is suspended, the largest first; with `ended` also what is over.

    `progress` is when each job (by its key) was last seen to make progress.
    """
    keys = set(view.jobs) | {pod.job.key for pod in view.pods.values() if pod.job is not None and _runs(pod)}
    nodes = {pod.node for pod in view.pods.values() if pod.node is not None}
    found = [_job(key, view, progress or {}) for key in keys if ended or not _is_over(view.jobs.get(key))]
    found += [_bare(pod, view) for node in nodes for pod in bare_pods(node, view)]
    return sorted(found, key=lambda one: (-one.gpus, one.namespace, one.name, one.kind))


def _job(key: str, view: ClusterView, progress: Mapping[str, datetime]) -> ListedJob:
    kind, namespace, name = key.split("/", 2)
    fact, pods = view.jobs.get(key), [pod for pod in view.pods_of(key) if _runs(pod)]
    classes = {pod.workload for pod in pods if pod.workload is not None}
    workload = (fact.workload if fact is not None else None) or next(
        iter(sorted(classes)), WorkloadClass.TRAINING
    )
    condition = condition_of(key, view)
    nodes = tuple(sorted({pod.node for pod in pods if pod.node is not None}))
    return ListedJob(
        kind=kind,
        namespace=namespace,
        name=name,
        workload=workload.value,
        state=_state(fact, pods),
        gpus=sum(pod.gpus for pod in pods if pod.node is not None),
        nodes=nodes,
        owner=fact.owner if fact is not None else None,
        lever=fact.lever
        if fact is not None and condition in (JobCondition.STANDS, JobCondition.HEALS)
        else None,
        can=_can(key, view, condition, fact, workload) + _others_at_work(nodes, view),
        retries_left=fact.retries_left if fact is not None else None,
        heals_within_s=fact.heals_within_s if fact is not None else None,
        last_progress=progress.get(key),
    )


def _bare(pod: PodFact, view: ClusterView) -> ListedJob:
    return ListedJob(
        kind=POD,
        namespace=pod.namespace,
        name=pod.name,
        workload=(pod.workload or WorkloadClass.UNKNOWN).value,
        state=pod.phase.lower(),
        gpus=pod.gpus,
        nodes=(pod.node,) if pod.node else (),
        owner=None,
        lever=None,
        can=f"{BARE}{_others_at_work((pod.node,) if pod.node else (), view)}",
        retries_left=None,
        heals_within_s=None,
        last_progress=None,
    )


def _can(
    key: str, view: ClusterView, condition: JobCondition, fact: JobFact | None, workload: WorkloadClass
) -> str:
    reason = immovable(key, view)
    moved = WORDS.get(fact.lever or "", "stopped, and started elsewhere") if fact is not None else ""
    cost = f"; {fact.cost}" if fact is not None and fact.cost else ""
    if fact is not None and not fact.managed and condition is not JobCondition.NOT_OURS:
        return "nothing: it is opted out (faultline.dev/managed=false)"
    match condition:
        case JobCondition.COMPLETED | JobCondition.DIED:
            return "nothing: it is over"
        case JobCondition.NOT_OURS:
            same_name = SAME_NAME if key.startswith("StatefulSet/") else ""
            return f"{EVICTED}, {ANEW}{same_name}{AFTER_DRAIN.get(workload, '')}"
        case JobCondition.FIXED if any(pod.replaceable for pod in view.pods_of(key)):
            return f"its workers evicted from the closed node, and made anew; with its head there nothing: {reason}"
        case JobCondition.FIXED:
            return f"nothing: {reason}"
        case JobCondition.HEALS:
            within = fact.heals_within_s if fact is not None and fact.heals_within_s else 0.0
            then = f"its owner is told: {reason}" if reason else f"{moved}{cost}"
            return f"left to its own controller for {within:g} s; then {then}"
        case _ if fact is None:
            return "as its kind allows: the inventory does not know it yet"
        case _:
            return moved + cost


def _others_at_work(nodes: Sequence[str], view: ClusterView) -> str:
    """Who else works on its nodes (NVSentinel, HyperPod, a cloud, a person): what they do there is theirs."""
    working = {node: fact.worked_on for node in nodes if (fact := view.nodes.get(node)) is not None}
    told = [f"{work.by} works on {node}" for node, work in sorted(working.items()) if work is not None]
    more = f" and on {len(told) - NAMED} other nodes of it" if len(told) > NAMED else ""
    return f"; {', '.join(told[:NAMED])}{more}" if told else ""


def _state(fact: JobFact | None, pods: list[PodFact]) -> str:
    if fact is not None and fact.finished:
        return "failed" if fact.failed else "completed"
    if fact is not None and fact.suspended:
        return "suspended" if not pods else f"suspended, {len(pods)} pods left"
    told = (fact.pods if fact is not None else None) or 0
    ready, wanted = sum(pod.ready for pod in pods), max(told, len(pods))
    return "running" if pods and ready >= wanted else f"{ready} of {wanted} pods ready"


def _runs(pod: PodFact) -> bool:
    return pod.ended_at is None and pod.phase not in ("Succeeded", "Failed")


def _is_over(fact: JobFact | None) -> bool:
    return fact is not None and fact.finished
