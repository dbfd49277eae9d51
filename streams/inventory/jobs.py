"""A job object, of any of the kinds that run training → its fact.

What each kind's spec and status mean is declared in `streams.job_kinds`. Of a kind that is not there (a site's own) the usual
fields are read: `spec.suspend`, the conditions Complete, Succeeded and Failed, a phase.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from streams.inventory.job_shape import JobShape, shape_of
from streams.inventory.objects import is_managed
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
    labels_of,
    part,
    text,
)


class Workload(NamedTuple):
    """What work is for, and whether that is only a guess."""

    kind: WorkloadClass
    guessed: bool = False


TRAINS = Workload(WorkloadClass.TRAINING)

OWNER_MARK = "faultline.dev/owner"
TEAM_MARK = "faultline.dev/team"
"""Annotation or label of a job that says whom to notify. A label cannot hold an address, an annotation can."""


def job_fact(
    cluster: str, job: KubeObject, at: datetime, work: Workload = TRAINS, shape: JobShape | None = None
) -> JobFact:
    """What the API server says of a job, given what it is for, and its shape where that is known. `finished` is set for failed
    ones too; `failed` tells them apart.

    Raises:
        BadInput: when the object has no kind or no name.
    """
    shape = shape or shape_of(job)
    who = shape.who
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
        pods=shape.pods,
        world=shape.world,
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
