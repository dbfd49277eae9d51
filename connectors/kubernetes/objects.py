"""Reads what several connectors need from objects as the API server shows them. Any part may be missing or null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def set_by_another(thing: Mapping[str, Any], path: Sequence[str], manager: str) -> str | None:
    """Who gave a field the value that it has, if that was not `manager`; None where it was, or where nobody knows.

    The API server notes in `metadata.managedFields` who last changed each field (Kubernetes, "Server-Side Apply", Field
    Management): a value that was taken away and set again is not its first author's any more.
    """
    owners = [
        str(entry.get("manager"))
        for entry in thing.get("metadata", {}).get("managedFields") or []
        if _has(entry.get("fieldsV1"), path)
    ]
    return owners[0] if owners and manager not in owners else None


def _has(fields: Any, path: Sequence[str]) -> bool:
    for step in path:
        fields = fields.get(f"f:{step}") if isinstance(fields, Mapping) else None
    return fields is not None


def has_ended(pod: Mapping[str, Any]) -> bool:
    """True for a pod whose containers have all ended: it holds no resources of its node any more."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
