"""What a plan's drains would evict, by the inventory: shown with the plan, before anybody approves it. Pure.

It is no part of what is approved: pods come and go, and the drain decides on those that are there then
(`connectors.kubernetes.drain`). The inventory knows the pods of training jobs and those that hold GPUs; of others a drain of the
whole node tells when it has begun.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from runbooks.engine.job_condition import JobCondition, condition_of
from streams.inventory.cluster_view import ClusterView
from streams.inventory.names import names
from streams.job_kinds.known import KNOWN
from streams.model.facts import PodFact
from streams.model.kinds import WorkloadClass
from streams.model.run import PlannedStep

LINES = 20
"""Lines of one plan; what is not listed is counted."""
GOING_ON = ", made anew by its controller while the job goes on"
_UNTOLD = (None, WorkloadClass.UNKNOWN, WorkloadClass.TRAINING)
NAMED = 5
"""Pods named in a line."""


def would_evict(steps: Sequence[PlannedStep], view: ClusterView) -> tuple[str, ...]:
    """One line per job or service on each node that the plan drains, the largest first."""
    stopped = {step.target.key for step in steps if step.action == "suspend_job" and step.target is not None}
    lines = [
        line
        for step in steps
        if step.action == "drain_node" and step.target is not None
        for line in _of_node(step, step.target.name, stopped, view)
    ]
    more = len(lines) - LINES
    return (*lines[:LINES], *([f"{more} more jobs and services"] if more > 0 else []))


def _of_node(step: PlannedStep, node: str, stopped: set[str], view: ClusterView) -> Iterator[str]:
    groups: dict[str, list[PodFact]] = {}
    if step.params.get("scope") == "gpu":
        yield f"{node}: only the pods that hold the GPU; where that cannot be known, all of these"
    for pod in view.pods_on(node):
        if pod.workload is not WorkloadClass.SYSTEM and (pod.gpus or step.params.get("only") == "all"):
            groups.setdefault(pod.job.key if pod.job else "", []).append(pod)
    for key, pods in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
        if key and condition_of(key, view, node=node) is JobCondition.GOES_ON:
            fate = GOING_ON
        elif key in stopped:
            fate = _of_job(key, node, view)
        else:
            fate = _fate(key, pods, bare=bool(step.params.get("bare")))
        yield f"{node}: {_count(pods)} {_whose(key)}{fate}: {_named(pods)}"
    if step.params.get("only") == "all":
        yield f"{node}: and what else runs there, but for the system's own pods"


def _whose(key: str) -> str:
    kind, _, name = key.partition("/")
    return f"of {kind} {name}" if key else "without a controller"


def _of_job(key: str, node: str, view: ClusterView) -> str:
    """What becomes of the pods of a job that the plan has a stop for."""
    fact = view.jobs.get(key)
    if fact is not None and not fact.managed:
        return ", left: their job is opted out, and the node is not drained while they run there"
    if condition_of(key, view, node=node) is JobCondition.HEALS:
        return ", left to their job's own controller first"
    if fact is not None and fact.suspended:
        return ", of a job that is suspended already"
    return ", stopped with their job before"


def _fate(key: str, pods: Sequence[PodFact], *, bare: bool) -> str:
    """What becomes of the pods of one owner that the plan does not stop."""
    if not key:
        return ", lost" if bare else ", left for their owners"
    kind = key.partition("/")[0]
    # Nothing can stop such a job before, and its controller is not known to make its pods anew: its owner should see that.
    known = kind in names().services or kind in KNOWN or not any(pod.workload in _UNTOLD for pod in pods)
    told = "" if known else ", of a kind that Faultline does not know"
    if any(pod.trains for pod in pods) and kind not in names().services:
        return f"{told}, with the time they ask for a checkpoint"
    return f"{told}, within their disruption budgets"


def _count(pods: Sequence[PodFact]) -> str:
    return "1 pod" if len(pods) == 1 else f"{len(pods)} pods"


def _named(pods: Iterable[PodFact]) -> str:
    found = sorted(pod.name for pod in pods)
    more = len(found) - NAMED
    return ", ".join(found[:NAMED]) + (f" and {more} more" if more > 0 else "")
