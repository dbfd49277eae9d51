"""How a job stands, by the inventory: what is done for it follows from that, not from the fault. Pure.

stands     it is hung or runs: it is suspended and resumed elsewhere
died       it has failed: nothing can be suspended or resumed, its owner starts it again
fixed      nothing can suspend it: its owner, or its own controller, starts it again
completed  nothing is left to do
heals      its own controller, or somebody named on it, replaces what a broken node took: it is watched, then moved
goes_on    on the bad node are only pods that its controller replaces alone: the drain evicts them, and it is not stopped
restarted  its own controller has started it elsewhere since the fault: a second restart would only cost time
not_ours   no training job: the drain moves its pods, and their controller starts them elsewhere
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from streams.inventory.cluster_view import ClusterView
from streams.inventory.names import names
from streams.job_kinds.known import KNOWN
from streams.job_kinds.rights import component_of, how_to_permit
from streams.model.facts import JobFact, PodFact
from streams.model.kinds import WorkloadClass


class JobCondition(StrEnum):
    """How a job stands."""

    STANDS = "stands"
    DIED = "died"
    FIXED = "fixed"
    COMPLETED = "completed"
    HEALS = "heals"
    GOES_ON = "goes_on"
    RESTARTED = "restarted"
    NOT_OURS = "not_ours"


POD = "Pod"
"""The kind of a bare pod, which stands in for a job here: nobody makes it anew."""

MOVABLE = (JobCondition.STANDS, JobCondition.HEALS, JobCondition.GOES_ON, JobCondition.RESTARTED)
"""Jobs for which there are steps: some of them turn out not to be needed."""

UNMOVABLE = (JobCondition.DIED, JobCondition.FIXED)
"""Jobs that Faultline cannot start again: their owner can."""


def condition_of(
    key: str,
    view: ClusterView,
    fault_at: datetime | None = None,
    node: str | None = None,
    uid: str | None = None,
) -> JobCondition:
    """How the job with this key (`kind/namespace/name`) stands.

    Where the inventory does not know it, it stands: what it lacks may only not have been read yet.

    Args:
        fault_at: When the fault began; without it a job never counts as restarted.
        node: The bad node: a restarted job must not be on it any more, and without it a job never counts as going on.
        uid: The job's uid, if known: a job that was created anew under the same name has been restarted by somebody.
    """
    kind, fact = key.partition("/")[0], view.jobs.get(key)
    if kind == POD:
        return JobCondition.FIXED if _bare_pod(key, view) is not None else JobCondition.COMPLETED
    pods = tuple(view.pods_of(key))
    if kind in names().services or not _trains(key, view, pods):
        return JobCondition.NOT_OURS
    if fact is not None and uid is not None and fact.job.uid not in (None, uid):
        return JobCondition.RESTARTED
    if fact is not None and fact.finished:
        return JobCondition.DIED if fact.failed else JobCondition.COMPLETED
    if fault_at is not None and pods and all(_is_new(pod, fault_at, node) for pod in pods):
        return JobCondition.RESTARTED if not immovable(key, view) or _heals(fact) else JobCondition.FIXED
    if node is not None and _goes_on(fact, pods, node):
        return JobCondition.GOES_ON
    if _heals(fact):
        return JobCondition.HEALS
    return JobCondition.FIXED if immovable(key, view) else JobCondition.STANDS


def bare_pods(node: str, view: ClusterView) -> list[PodFact]:
    """The pods on a node that hold GPUs and that no controller makes anew, by name. Those of the system are none of them."""
    found = [pod for pod in view.pods_on(node) if _is_bare(pod)]
    return sorted(found, key=lambda pod: (pod.namespace, pod.name))


def has_healed(key: str, view: ClusterView, fault_at: datetime, node: str | None) -> bool:
    """Whether what a broken node took has been replaced: pods were made since the fault, all are ready, none is on that node."""
    fact = view.jobs.get(key)
    running = [pod for pod in view.pods_of(key) if pod.ended_at is None]
    if node is not None and any(pod.node == node for pod in running):
        return False
    wanted = fact.pods if fact is not None and fact.pods is not None else 1
    return (
        len(running) >= wanted
        and all(pod.ready for pod in running)
        and any(_is_new(pod, fault_at, node) for pod in running)
    )


def heals_within_s(key: str, view: ClusterView) -> float | None:
    """Within how many seconds somebody else replaces what this job lost; None where nobody does."""
    fact = view.jobs.get(key)
    return fact.heals_within_s if fact is not None and fact.heals_within_s else None


def immovable(key: str, view: ClusterView) -> str:
    """Why the job with this key can neither be suspended nor resumed, for its owner; empty where it can, as far as is known."""
    kind, fact = key.partition("/")[0], view.jobs.get(key)
    declared = KNOWN.get(kind)
    if fact is not None and fact.immovable is not None:
        return fact.immovable
    if fact is not None and fact.lever is not None:
        return ""
    if kind == POD:
        return "no controller would make it anew elsewhere"
    # A record of an older inventory, or none yet: the kind alone tells.
    if declared is None:
        return f"the kind {kind} is not one that Faultline can suspend"
    if not declared.watched_as:
        # Of what no API server knows only those jobs can be moved whose system is asked for them.
        return (
            ""
            if fact is not None
            else f"jobs of the kind {kind} are not watched here: set slurm.commands or slurm.url"
        )
    if fact is None and component_of(declared.watched_as[0]) and any(True for _ in view.pods_of(key)):
        # Its pods are known and it is not: nobody may read such jobs here, let alone suspend them.
        return f"jobs of this kind are not watched here: {how_to_permit(declared.watched_as[0])}"
    return declared.no_means


def _heals(fact: JobFact | None) -> bool:
    return fact is not None and bool(fact.heals_within_s)


def _goes_on(fact: JobFact | None, pods: tuple[PodFact, ...], node: str) -> bool:
    """Whether all that a job has on a node is replaced alone. One that is suspended has nothing that could go on."""
    here = [pod for pod in pods if pod.node == node and pod.ended_at is None]
    suspended = fact is not None and fact.suspended
    return bool(here) and not suspended and all(pod.replaceable for pod in here)


def _bare_pod(key: str, view: ClusterView) -> PodFact | None:
    _, namespace, name = key.split("/", 2)
    pod = view.pods.get(f"{view.cluster}/pod/{namespace}/{name}")
    return pod if pod is not None and _is_bare(pod) else None


def _is_bare(pod: PodFact) -> bool:
    over = pod.ended_at is not None or pod.phase in ("Succeeded", "Failed")
    return pod.job is None and bool(pod.gpus) and not over and pod.workload is not WorkloadClass.SYSTEM


def _trains(key: str, view: ClusterView, pods: tuple[PodFact, ...]) -> bool:
    """Whether it is a training job. Where nothing tells, it is: an incident names those only."""
    fact = view.jobs.get(key)
    if fact is not None:
        return fact.workload in (None, WorkloadClass.TRAINING)
    return not pods or any(pod.trains for pod in pods)


def _is_new(pod: PodFact, fault_at: datetime, node: str | None) -> bool:
    """Whether a pod was scheduled after the fault, and not on the bad node."""
    return pod.scheduled_at is not None and pod.scheduled_at > fault_at and pod.node not in (None, node)
