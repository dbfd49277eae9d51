"""Reads what several connectors need from objects as the API server shows them. Any part may be missing or null."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streams.model.kube_objects import controller_of


def name_of(thing: Mapping[str, Any]) -> str:
    """`namespace/name` of a namespaced object."""
    about = thing["metadata"]
    return f"{about.get('namespace')}/{about.get('name')}"


def controller(thing: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The owner reference that controls an object; None for an object without a controller."""
    return controller_of(thing)


def condition(thing: Mapping[str, Any], kind: str, status: str = "True") -> Mapping[str, Any] | None:
    """The condition of this type if it has this status, else None."""
    conditions = thing.get("status", {}).get("conditions") or []
    return next((c for c in conditions if c.get("type") == kind and c.get("status") == status), None)


def is_ready(thing: Mapping[str, Any]) -> bool:
    """True when the condition Ready of a node or pod is `True`: neither `False`, nor `Unknown`, nor missing."""
    return condition(thing, "Ready") is not None


def has_ended(pod: Mapping[str, Any]) -> bool:
    """True for a pod whose containers have all ended: it holds no resources of its node any more."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
