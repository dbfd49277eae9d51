"""What every simulated operator does: it looks at all objects of its kind again and again, and does one step for each.

What it has made it finds by the uid of the owner, so that a restart of it, or another object of the same name, changes nothing.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Self

from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.errors import AlreadyExists, Conflict, MaybeApplied, NotFound
from connectors.kubernetes.objects import controller
from streams.model.clock import utc_now
from streams.model.errors import Temporary, Unreachable
from streams.model.kube_objects import condition

PAUSE_S = 0.2


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[None]:
    """Run it for a `async with` block; an error that ended it early is raised at the end."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


class NamespaceReconciler(ABC):
    """A controller that looks at a whole namespace in each round; it remembers nothing."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Reconcile for a `async with` block; an error that ended it early is raised at the end."""
        async with _beside(self._run(), f"{type(self).__name__} of {self._namespace}"):
            yield self

    @abstractmethod
    async def reconcile(self) -> None:
        """One round."""

    async def _run(self) -> None:
        while True:
            try:
                await self.reconcile()
            except (Conflict, NotFound, AlreadyExists, Temporary, Unreachable):
                pass  # somebody was quicker: the next round sees what came of it
            await asyncio.sleep(PAUSE_S)


class Reconciler(ABC):
    """One controller for one namespace. `api_version` and `plural` say of which objects."""

    api_version: ClassVar[str]
    plural: ClassVar[str]

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    @classmethod
    @asynccontextmanager
    async def running(cls, cluster: Cluster, namespace: str) -> AsyncIterator[Self]:
        """Reconcile for a `async with` block; an error that ended it early is raised at the end."""
        controller = cls(cluster, namespace)
        async with _beside(controller._run(), f"{cls.plural} of {namespace}"):
            yield controller

    @abstractmethod
    async def reconcile(self, owner: Object) -> None:
        """One step towards what the object says."""

    async def _run(self) -> None:
        while True:
            try:
                for owner in await self.cluster.list_all(self.path()):
                    if not owner["metadata"].get("deletionTimestamp"):
                        await self._step(owner)
            except (Temporary, Unreachable):
                pass  # the server is away: the next round finds it, or what it does then
            await asyncio.sleep(PAUSE_S)

    async def _step(self, owner: Object) -> None:
        try:
            await self.reconcile(owner)
        except (Conflict, NotFound, AlreadyExists, MaybeApplied):
            pass  # somebody was quicker, or the answer was lost: the next round sees what came of it

    def path(self, name: str | None = None) -> str:
        """Where its objects are, or one of them."""
        return path_of(self.api_version, self.plural, namespace=self.namespace, name=name)

    async def set_status(self, owner: Object, **fields: Any) -> None:
        """Write fields of the status where they differ, unless the object has changed since it was read."""
        status = owner.get("status") or {}
        if all(status.get(key) == value for key, value in fields.items()):
            return
        about = owner["metadata"]
        read = {"uid": about["uid"], "resourceVersion": about["resourceVersion"]}
        changed = await self.cluster.patch(
            f"{self.path(about['name'])}/status", {"metadata": read, "status": fields}
        )
        owner["metadata"], owner["status"] = changed["metadata"], changed.get("status") or {}

    async def made_by(self, owner: Object, api_version: str, plural: str) -> list[Object]:
        """What is there of a kind that this very object controls, and that is not being deleted."""
        found = await self.cluster.list_all(path_of(api_version, plural, namespace=self.namespace))
        return [
            one
            for one in found
            if (controller(one) or {}).get("uid") == owner["metadata"]["uid"]
            and not one["metadata"].get("deletionTimestamp")
        ]


def reference_to(owner: Object) -> Object:
    """The reference by which `owner` controls what is made for it."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def with_condition(owner: Object, kind: str, holds: bool, reason: str) -> list[Object]:
    """Its conditions with this one; the time changes with the status only."""
    status = "True" if holds else "False"
    before = condition(owner, kind)
    others = [one for one in (owner.get("status") or {}).get("conditions") or [] if one["type"] != kind]
    if before.get("status") == status:
        return [*others, dict(before)]
    now = utc_now().isoformat(timespec="seconds").replace("+00:00", "Z")
    made = {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": reason,
        "lastTransitionTime": now,
    }
    return [*others, made]
