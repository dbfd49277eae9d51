"""The state of an API server: objects with a resourceVersion, optimistic locking, selectors, and a log of changes to watch from.

Holds to the Kubernetes API conventions where Faultline depends on them: one counter for all versions, 409 for a stale
resourceVersion or the uid of another object, 410 for a watch from before the log, no new version for a change that
changes nothing, deletion of a pod in two steps.
"""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from streams.model.clock import Clock, rfc3339, utc_now

Object = dict[str, Any]
LOG_LENGTH = 20_000
"""Changes kept for watches; older resourceVersions are answered with 410."""


class ApiError(Exception):
    """A rejected request: HTTP status, reason and message as the API server words them."""

    def __init__(self, status: int, reason: str, message: str, details: Object | None = None) -> None:
        super().__init__(message)
        self.status, self.reason, self.message, self.details = status, reason, message, details


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind that is served. `has_status`: a write to the object leaves its status unchanged, and the other way round."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool = True
    has_status: bool = False


NODES = Kind("v1", "Node", "nodes", namespaced=False, has_status=True)
PODS = Kind("v1", "Pod", "pods", has_status=True)
NAMESPACES = Kind("v1", "Namespace", "namespaces", namespaced=False)
EVENTS = Kind("v1", "Event", "events")
JOBS = Kind("batch/v1", "Job", "jobs", has_status=True)
PYTORCH_JOBS = Kind("kubeflow.org/v1", "PyTorchJob", "pytorchjobs", has_status=True)
BUDGETS = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", has_status=True)
SLICES = Kind("resource.k8s.io/v1", "ResourceSlice", "resourceslices", namespaced=False)
CLAIMS = Kind("resource.k8s.io/v1", "ResourceClaim", "resourceclaims", has_status=True)
TAINT_RULES = Kind(
    "resource.k8s.io/v1beta2", "DeviceTaintRule", "devicetaintrules", namespaced=False, has_status=True
)
KINDS = (NODES, PODS, NAMESPACES, EVENTS, JOBS, PYTORCH_JOBS, BUDGETS, SLICES, CLAIMS, TAINT_RULES)


@dataclass(frozen=True, slots=True)
class StoreEvent:
    """One entry of the log: what a watch of `kind` shows. `object` must not be modified."""

    version: int
    kind: Kind
    type: str
    object: Object


@dataclass(frozen=True, slots=True)
class Selector:
    """Which objects a list or watch is about: namespace, labels and fields that have to be equal (or not)."""

    namespace: str | None = None
    labels: str = ""
    fields: str = ""

    def takes(self, thing: Mapping[str, Any]) -> bool:
        """Whether the object is one of them."""
        about = thing["metadata"]
        if self.namespace is not None and about.get("namespace") != self.namespace:
            return False
        labels = about.get("labels") or {}
        return all(_holds(term, labels.get(_name(term))) for term in _terms(self.labels)) and all(
            _holds(term, _field(thing, _name(term))) for term in _terms(self.fields)
        )


class Store:
    """All objects of one cluster. What it hands out are its own objects: never modify them, `put` a changed copy."""

    def __init__(self, clock: Clock = utc_now, new_uid: Callable[[], object] = uuid.uuid4) -> None:
        self.clock = clock
        self._new_uid = new_uid
        self.version = 1
        self._objects: dict[tuple[Kind, str | None, str], Object] = {}
        self._log: deque[StoreEvent] = deque(maxlen=LOG_LENGTH)
        self._changed = asyncio.Event()

    def list(self, kind: Kind, selector: Selector = Selector()) -> list[Object]:
        """Objects in the order of their creation."""
        return [thing for (of, _, _), thing in self._objects.items() if of == kind and selector.takes(thing)]

    def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        """One object, or 404."""
        found = self._objects.get((kind, namespace, name))
        if found is None:
            raise ApiError(404, "NotFound", f'{kind.plural} "{name}" not found')
        return found

    def create(self, kind: Kind, namespace: str | None, given: Object) -> Object:
        """A new object with a uid and a version of its own, or 409."""
        thing = copy.deepcopy(given)
        about = thing.setdefault("metadata", {})
        name = about.get("name")
        if not isinstance(name, str) or not name:
            raise ApiError(422, "Invalid", f"{kind.kind}: metadata.name: Required value")
        if (kind, namespace, name) in self._objects:
            raise ApiError(409, "AlreadyExists", f'{kind.plural} "{name}" already exists')
        thing |= {"apiVersion": kind.api_version, "kind": kind.kind}
        if namespace is not None:
            about["namespace"] = namespace
        about |= {
            "uid": str(self._new_uid()),
            "creationTimestamp": rfc3339(self.clock().replace(microsecond=0)),
            "generation": 1,
        }
        self._objects[kind, namespace, name] = thing
        self._record(kind, "ADDED", thing)
        return thing

    def put(self, kind: Kind, thing: Object) -> Object:
        """Replace an object by a changed copy of it; 409 when the copy is of an older version or another uid."""
        about = thing["metadata"]
        namespace = about.get("namespace") if kind.namespaced else None
        now = self.get(kind, namespace, about["name"])
        for field in ("resourceVersion", "uid"):
            if about.get(field) not in (None, now["metadata"][field]):
                raise ApiError(
                    409,
                    "Conflict",
                    f'Operation cannot be fulfilled on {kind.plural} "{about["name"]}": the object has been modified; '
                    "please apply your changes to the latest version and try again",
                )
        for field in ("uid", "resourceVersion", "creationTimestamp", "generation"):
            about[field] = now["metadata"][field]
        if thing == now:
            return now
        if thing.get("spec") != now.get("spec"):
            about["generation"] += 1
        self._objects[kind, namespace, about["name"]] = thing
        self._record(kind, "MODIFIED", thing)
        return thing

    def delete(
        self,
        kind: Kind,
        namespace: str | None,
        name: str,
        uid: str | None = None,
        *,
        grace_s: int | None = None,
    ) -> Object:
        """Delete; a pod on a node is only marked, and gone once its kubelet has stopped it. 409 for another uid.

        `grace_s` replaces the pod's own grace period.
        """
        thing = self.get(kind, namespace, name)
        if uid is not None and uid != thing["metadata"]["uid"]:
            raise ApiError(409, "Conflict", f"the UID in the precondition ({uid}) is not that of {name}")
        if kind == PODS and thing.get("spec", {}).get("nodeName"):
            if "deletionTimestamp" in thing["metadata"]:
                return thing
            marked = copy.deepcopy(thing)
            if grace_s is None:
                grace_s = int(thing["spec"].get("terminationGracePeriodSeconds", 30))
            ends = self.clock().replace(microsecond=0) + timedelta(seconds=grace_s)
            marked["metadata"]["deletionTimestamp"] = rfc3339(ends)
            marked["metadata"]["deletionGracePeriodSeconds"] = grace_s
            return self.put(kind, marked)
        return self.remove(kind, thing)

    def remove(self, kind: Kind, thing: Object) -> Object:
        """Remove an object for good."""
        namespace = thing["metadata"].get("namespace") if kind.namespaced else None
        last = copy.deepcopy(self._objects.pop((kind, namespace, thing["metadata"]["name"])))
        self._record(kind, "DELETED", last)
        return last

    def since(self, version: int) -> Sequence[StoreEvent]:
        """Every change after `version`, oldest first; 410 when the log does not reach that far back."""
        oldest = self._log[0].version if self._log else self.version + 1
        if version + 1 < oldest and len(self._log) == LOG_LENGTH:
            raise ApiError(410, "Expired", f"too old resource version: {version} ({oldest})")
        return list(islice(self._log, max(0, version + 1 - oldest), None))  # versions have no gaps

    async def changed_after(self, version: int, timeout_s: float) -> bool:
        """Wait until something has changed after `version`; False when nothing has in time."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.version <= version:
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    def _record(self, kind: Kind, what: str, thing: Object) -> None:
        self.version += 1
        thing["metadata"]["resourceVersion"] = str(self.version)
        self._log.append(StoreEvent(self.version, kind, what, thing))
        self._changed.set()
        self._changed = asyncio.Event()


def condition(kind: str, holds: bool | None, reason: str, at: datetime, message: str = "") -> Object:
    """A status condition; `holds` None is `Unknown`."""
    status = {True: "True", False: "False", None: "Unknown"}[holds]
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": rfc3339(at.replace(microsecond=0)),
    }


def with_condition(thing: Object, new: Object) -> Object:
    """A copy of the object whose status has that condition; the time of an unchanged one stays."""
    changed = copy.deepcopy(thing)
    conditions = changed.setdefault("status", {}).setdefault("conditions", [])
    old = next((c for c in conditions if c["type"] == new["type"]), None)
    if old is not None and old["status"] == new["status"]:
        new = new | {"lastTransitionTime": old["lastTransitionTime"]}
    conditions[:] = [c for c in conditions if c["type"] != new["type"]] + [new]
    return changed


def holds(thing: Mapping[str, Any], kind: str) -> bool:
    """Whether the object's condition of that type is `True`."""
    conditions = (thing.get("status") or {}).get("conditions") or []
    return any(c["type"] == kind and c["status"] == "True" for c in conditions)


def _terms(selector: str) -> list[str]:
    return [term.strip() for term in selector.split(",") if term.strip()]


def _name(term: str) -> str:
    return term.partition("=")[0].removesuffix("!").removeprefix("!").strip()


def _holds(term: str, value: Any) -> bool:
    """One term of a selector: `a=b`, `a==b`, `a!=b`, `a` (is there) or `!a`."""
    if "=" not in term:
        return (value is None) == term.startswith("!")
    left, _, right = term.partition("=")
    wanted = right.removeprefix("=").strip()
    return (str(value) if value is not None else "") != wanted if left.endswith("!") else value == wanted


def _field(thing: Mapping[str, Any], path: str) -> Any:
    here: Any = thing
    for part in path.split("."):
        here = here.get(part) if isinstance(here, Mapping) else None
    return here if here is not None else ""
