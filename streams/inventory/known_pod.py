"""What is kept of a Pod object: a few values, and what it shares with other pods. An object has a hundred times as many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from streams.inventory.objects import Identity
from streams.inventory.owners import Owners
from streams.inventory.pod_templates import PodTemplate, PodTemplates, variables
from streams.model.kube_objects import KubeObject, annotations_of, items, labels_of, part, text, time, whole

_LONGEST_MARK = 300
"""Annotations are cut after so many characters: none that is read is as long, and some hold whole documents."""
_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class KnownPod:
    """A pod. Two are equal where the same is known of them."""

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, Any]
    annotations: Mapping[str, Any]
    owners: Owners
    template: PodTemplate
    env: Mapping[str, str]
    """Variables by which ranks and kinds of work are told (`pod_templates.variables`)."""
    node: str | None
    phase: str
    ready: bool
    ip: str | None
    created_at: datetime | None
    scheduled_at: datetime | None
    """When it came to its node. Its kubelet took it after that, and never later again, however often its containers start."""
    started_at: datetime | None
    """When the last of its running containers started."""
    ended_at: datetime | None
    """When the last container ended; for a pod that ended without a word of them, when it stopped being ready."""
    last_exit: tuple[datetime, int] | None
    """When a container ended badly for the last time, and with which code."""
    deleted_at: datetime | None
    """When its time to end by itself is over, once its deletion was asked for."""
    grace_s: int
    """How many seconds it was given for that."""


def known_pod(who: Identity, pod: KubeObject, owners: Owners, templates: PodTemplates) -> KnownPod:
    """What is kept of a pod, given its owners."""
    about, spec, status = part(pod, "metadata"), part(pod, "spec"), part(pod, "status")
    env = variables(spec)
    conditions: dict[Any, Mapping[str, Any]] = {}
    for condition in items(status, "conditions"):
        conditions.setdefault(condition.get("type"), condition)
    ready, scheduled = conditions.get("Ready", _NOTHING), conditions.get("PodScheduled", _NOTHING)
    containers = list(items(status, "containerStatuses"))
    phase = text(status, "phase") or "Pending"
    return KnownPod(
        namespace=_shared(who.namespace),
        name=who.name,
        uid=text(about, "uid") or "",
        labels=_kept(labels_of(pod)),
        annotations=_kept(annotations_of(pod)),
        owners=owners,
        template=templates.of(spec, env),
        env=env or _NOTHING,
        node=_shared(node) if (node := text(spec, "nodeName")) is not None else None,
        phase=_shared(phase),
        ready=ready.get("status") == "True",
        ip=text(status, "podIP"),
        created_at=time(about, "creationTimestamp"),
        scheduled_at=_scheduled_at(scheduled, status) if scheduled.get("status") == "True" else None,
        started_at=_started_at(containers),
        ended_at=_ended_at(containers, ready) if phase in ("Succeeded", "Failed") else None,
        # A pod with a reason of its own (`Evicted`, `NodeLost`, `UnexpectedAdmissionError`) did not end by what its program did.
        last_exit=None if text(status, "reason") else _last_exit(containers),
        deleted_at=time(about, "deletionTimestamp"),
        grace_s=whole(about.get("deletionGracePeriodSeconds")) or 0,
    )


@lru_cache(2**14)
def _shared(value: str) -> str:
    """The same string, as one object for all who have it: each pod brings its own `train` and `gpu-00017`."""
    return value


def _kept(marks: Mapping[str, Any]) -> Mapping[str, Any]:
    """Labels or annotations, whose values are one object with those of other pods where they are the same."""
    if not marks:
        return _NOTHING
    return {
        key: _shared(value[:_LONGEST_MARK]) if type(value) is str else value for key, value in marks.items()
    }


def _scheduled_at(condition: Mapping[str, Any], status: Mapping[str, Any]) -> datetime | None:
    times = time(condition, "lastTransitionTime"), time(status, "startTime")
    return min((at for at in times if at is not None), default=None)


def _started_at(containers: list[Mapping[str, Any]]) -> datetime | None:
    """When the last of them started, whether it runs or has ended; None while one of them waits to."""
    if any(part(container, "state").get("waiting") is not None for container in containers):
        return None
    starts = (
        time(part(container, "state", state), "startedAt")
        for container in containers
        for state in ("running", "terminated")
    )
    # A runtime that could not start a container dates that to 1970.
    return max((start for start in starts if start is not None and start.timestamp() > 0), default=None)


def _ended_at(containers: list[Mapping[str, Any]], ready: Mapping[str, Any]) -> datetime | None:
    ends = (time(part(container, "state", "terminated"), "finishedAt") for container in containers)
    known = [end for end in ends if end is not None]
    return max(known) if known else time(ready, "lastTransitionTime")


def _last_exit(containers: list[Mapping[str, Any]]) -> tuple[datetime, int] | None:
    """One that starts again in its pod tells it as well."""
    exits = [
        (ended, code)
        for container in containers
        for state in ("state", "lastState")
        if (code := whole(part(container, state, "terminated").get("exitCode")))
        and (ended := time(part(container, state, "terminated"), "finishedAt")) is not None
    ]
    return max(exits, default=None)
