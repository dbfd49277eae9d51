"""From a pod up its controllers to the job that it belongs to: the top-most owner is what gets suspended and resumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakValueDictionary

import orjson

from streams.inventory.names import names
from streams.inventory.objects import kind_of
from streams.model.entity import JobRef
from streams.model.kube_objects import KubeObject, controller_of, items, part, text

MOST_STEPS = 8
"""No real chain is longer; a circle of owner references must end too."""


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Owners:
    """What the owner references of an object say. Two are the same where they are one object: an `OwnerTable` has each once."""

    above: JobRef | None = None
    """The controller, where that is a job or a part of one: by a name, known or not."""
    started_by: str | None = None
    """The kind of a controller that is no part of the job: a CronJob merely starts it, a DaemonSet is no job."""
    may_train: bool = False
    """Whether the controller may be a training job."""
    references: tuple[Mapping[str, Any], ...] = ()


class Owned(Protocol):
    """An object that may have owners."""

    @property
    def owners(self) -> Owners:
        """They."""


Lookup = Callable[[JobRef], Owned | None]
"""The object that is meant, or None: one that bears the name but another uid is somebody else."""


class OwnerTable:
    """The owners that some object has, one of each: all pods of a job share theirs; they go with the last that holds them."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[tuple[str, bytes], Owners] = WeakValueDictionary()

    def of(self, obj: KubeObject, namespace: str) -> Owners:
        """The owners of an object in this namespace."""
        references = part(obj, "metadata").get("ownerReferences")
        if not references:
            return NOBODY
        key = (namespace, orjson.dumps(references))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = owners_of(obj, namespace)
        return found


NOBODY = Owners()


def owners_of(obj: KubeObject, namespace: str) -> Owners:
    """What an object's owner references say; a controller counts where its kind and name are told."""
    references = tuple(items(obj, "metadata", "ownerReferences"))
    controller = controller_of(obj)
    if controller is None or not text(controller, "kind") or not text(controller, "name"):
        return Owners(references=references)
    table, named = names(), str(controller["kind"])
    kind = kind_of(str(controller.get("apiVersion") or ""), named)
    may_train = named not in table.services | table.not_jobs
    if kind in table.starters or kind in table.not_jobs:
        return Owners(None, kind, may_train, references)
    above = JobRef(kind, namespace, str(controller["name"]), text(controller, "uid"))
    return Owners(above, None, may_train, references)


def chain(owners: Owners, lookup: Lookup) -> tuple[JobRef, ...]:
    """The owners above an object, nearest first.

    The chain ends below owners that merely start jobs (a CronJob, a workflow), and at the last owner that is named,
    known or not: a name is enough to act on.
    """
    found: list[JobRef] = []
    here: Owners | None = owners
    while here is not None and here.above is not None and len(found) < MOST_STEPS:
        found.append(here.above)
        above = lookup(here.above)
        here = above.owners if above is not None else None
    return tuple(found)


def labelled_owners(labels: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Kinds and names of what is above an object as its labels have it, the outermost first."""
    table = names()
    by_label = [(kind, label) for label, kind in table.owner_labels.items()]
    by_label += [(text(labels, of) or "", label) for label, of in table.owner_kind_labels.items()]
    return tuple((kind, named) for kind, label in by_label if kind and (named := text(labels, label)))


def top_owner(labels: Mapping[str, Any], owners: tuple[JobRef, ...]) -> JobRef | None:
    """The job that an object with these labels belongs to, given its `chain`; None when nobody controls it.

    Where the chain ends at something unwatched, a label that the job's controller sets may name what is above it.
    """
    if not owners:
        return None
    top = owners[-1]
    for kind, named in labelled_owners(labels):
        if top.kind != kind and all(owner.kind != kind for owner in owners):
            return JobRef(kind, top.namespace, named)
    return top
