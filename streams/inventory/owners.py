"""From a pod up its controllers to the job that it belongs to: the top-most owner is what gets suspended and resumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from streams.inventory.names import names
from streams.inventory.objects import kind_of
from streams.model import kube_objects
from streams.model.entity import JobRef
from streams.model.kube_objects import KubeObject, labels_of, text

Lookup = Callable[[JobRef], KubeObject | None]
"""The object that is meant, or None: one that bears the name but another uid is somebody else."""

MOST_STEPS = 8
"""No real chain is longer; a circle of owner references must end too."""


def controller_of(obj: KubeObject) -> Mapping[str, Any] | None:
    """The owner that controls the object, where its kind and name are told."""
    owner = kube_objects.controller_of(obj)
    return owner if owner is not None and text(owner, "kind") and text(owner, "name") else None


def chain(obj: KubeObject, namespace: str, lookup: Lookup) -> tuple[JobRef, ...]:
    """The owners above an object, nearest first.

    The chain ends below owners that merely start jobs (a CronJob, a workflow), and at the last owner that is named,
    known or not: a name is enough to act on.
    """
    owners: list[JobRef] = []
    here: KubeObject | None = obj
    while here is not None and len(owners) < MOST_STEPS:
        reference = controller_of(here)
        if reference is None:
            break
        kind = kind_of(str(reference.get("apiVersion") or ""), str(reference["kind"]))
        if kind in names().starters or kind in names().not_jobs:
            break
        owners.append(JobRef(kind, namespace, str(reference["name"]), text(reference, "uid")))
        here = lookup(owners[-1])
    return tuple(owners)


def top_owner(obj: KubeObject, owners: tuple[JobRef, ...]) -> JobRef | None:
    """The job an object belongs to, given its `chain`; None when nobody controls it.

    Where the chain ends at something unwatched, a label that the job's controller sets may name what is above it.
    """
    if not owners:
        return None
    top = owners[-1]
    for label, kind in names().owner_labels.items():
        named = text(labels_of(obj), label)
        if named and top.kind != kind and all(owner.kind != kind for owner in owners):
            return JobRef(kind, top.namespace, named)
    return top
