"""Looking into Kubernetes objects as they come: plain mappings in which any part may be missing or null."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from streams.model.clock import parse_rfc3339
from streams.model.errors import BadInput

KubeObject = Mapping[str, Any]


def part(obj: KubeObject, *path: str) -> Mapping[str, Any]:
    """The mapping at `path`, empty when it is not there."""
    # These two run millions of times at a start: what JSON makes is told by its type, and asking the abstract class costs ten
    # times as much.
    here: Any = obj
    for step in path:
        if type(here) is not dict and not isinstance(here, Mapping):
            return {}
        here = here.get(step)
    return here if type(here) is dict or isinstance(here, Mapping) else {}


def items(obj: KubeObject, *path: str) -> Iterator[Mapping[str, Any]]:
    """The mappings in the list at `path`."""
    found = part(obj, *path[:-1]).get(path[-1])
    if not isinstance(found, list):
        return iter(())
    return iter([item for item in found if type(item) is dict or isinstance(item, Mapping)])


def text(obj: KubeObject, key: str) -> str | None:
    """A string that is not empty."""
    value = obj.get(key)
    return value if isinstance(value, str) and value else None


def whole(value: Any) -> int | None:
    """A count or index, given as a number or as text; None when it is neither or negative."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    if isinstance(value, str) and not (value.isascii() and value.isdigit()):
        return None
    number = int(value) if len(str(value)) < 12 else -1
    return number if number >= 0 else None


def time(obj: KubeObject, key: str) -> datetime | None:
    """A time, when there is a readable one."""
    value = text(obj, key)
    try:
        return parse_rfc3339(value) if value else None
    except BadInput:
        return None


def labels_of(obj: KubeObject) -> Mapping[str, Any]:
    """`metadata.labels`."""
    return part(obj, "metadata", "labels")


def annotations_of(obj: KubeObject) -> Mapping[str, Any]:
    """`metadata.annotations`."""
    return part(obj, "metadata", "annotations")


UNMARKED_CONTROLLERS = frozenset({"ElasticJob"})
"""Kinds that make their pods anew and do not mark themselves as their controllers (DLRover's master sets no `controller`)."""


def controller_of(obj: KubeObject) -> Mapping[str, Any] | None:
    """The owner reference that controls the object; others only keep it from being collected."""
    owners = list(items(obj, "metadata", "ownerReferences"))
    marked = [owner for owner in owners if owner.get("controller") is True]
    found = marked or [owner for owner in owners if owner.get("kind") in UNMARKED_CONTROLLERS]
    return next(iter(found), None)


def condition(obj: KubeObject, kind: str) -> Mapping[str, Any]:
    """The entry of `status.conditions` of that type, empty when there is none."""
    return next((c for c in items(obj, "status", "conditions") if c.get("type") == kind), {})


def holds(obj: KubeObject, kind: str) -> bool:
    """Whether a condition is there and `True`."""
    return condition(obj, kind).get("status") == "True"
