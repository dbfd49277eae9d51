"""How a job stands, by the inventory: what is done for it follows from that, not from the fault. Pure.

stands     it is hung or runs: it is suspended and resumed elsewhere
died       it has failed: nothing can be suspended or resumed, its owner starts it again
fixed      nothing can suspend it: its owner, or its own controller, starts it again
completed  nothing is left to do
restarted  its own controller has started it elsewhere since the fault: a second restart would only cost time
not_ours   no training job: the drain moves its pods, and their controller starts them elsewhere
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from streams.inventory.cluster_view import ClusterView
from streams.inventory.names import names
from streams.job_kinds.known import KNOWN
from streams.model.facts import PodFact
from streams.model.kinds import WorkloadClass


class JobCondition(StrEnum):
    """How a job stands."""

    STANDS = "stands"
    DIED = "died"
    FIXED = "fixed"
    COMPLETED = "completed"
    RESTARTED = "restarted"
    NOT_OURS = "not_ours"


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
        node: The node that a restarted job must not be on any more.
        uid: The job's uid, if known: a job that was created anew under the same name has been restarted by somebody.
    """
    kind, fact = key.partition("/")[0], view.jobs.get(key)
    pods = tuple(view.pods_of(key))
    if kind in names().services or not _trains(key, view, pods):
        return JobCondition.NOT_OURS
    if fact is not None and uid is not None and fact.job.uid not in (None, uid):
        return JobCondition.RESTARTED
    if fact is not None and fact.finished:
        return JobCondition.DIED if fact.failed else JobCondition.COMPLETED
    if immovable(key, view):
        return JobCondition.FIXED
    if fault_at is not None and pods and all(_is_new(pod, fault_at, node) for pod in pods):
        return JobCondition.RESTARTED
    return JobCondition.STANDS


def immovable(key: str, view: ClusterView) -> str:
    """Why the job with this key can neither be suspended nor resumed, for its owner; empty where it can, as far as is known."""
    kind, fact = key.partition("/")[0], view.jobs.get(key)
    declared = KNOWN.get(kind)
    if fact is not None and fact.immovable is not None:
        return fact.immovable
    if fact is not None and fact.lever is not None:
        return ""
    # A record of an older inventory, or none yet: the kind alone tells.
    if declared is None:
        return f"the kind {kind} is not one that Faultline can suspend"
    return declared.no_means


def _trains(key: str, view: ClusterView, pods: tuple[PodFact, ...]) -> bool:
    """Whether it is a training job. Where nothing tells, it is: an incident names those only."""
    fact = view.jobs.get(key)
    if fact is not None:
        return fact.workload in (None, WorkloadClass.TRAINING)
    return not pods or any(pod.trains for pod in pods)


def _is_new(pod: PodFact, fault_at: datetime, node: str | None) -> bool:
    """Whether a pod was scheduled after the fault, and not on the bad node."""
    return pod.scheduled_at is not None and pod.scheduled_at > fault_at and pod.node not in (None, node)
