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
    here: Any = obj
    for step in path:
        here = here.get(step) if _is_mapping(here) else None
    return here if _is_mapping(here) else {}


def _is_mapping(value: Any) -> bool:
    """What JSON makes is told at once; asking the abstract class costs ten times as much, millions of times at a start."""
    return type(value) is dict or isinstance(value, Mapping)


def items(obj: KubeObject, *path: str) -> Iterator[Mapping[str, Any]]:
    """The mappings in the list at `path`."""
    found = part(obj, *path[:-1]).get(path[-1])
    return (item for item in found if _is_mapping(item)) if isinstance(found, list) else iter(())


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
