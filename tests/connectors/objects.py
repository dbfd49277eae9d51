"""Kubernetes objects in miniature, for decisions that need no server."""

from __future__ import annotations

from typing import Any

from connectors.base import Effect, Outcome
from connectors.kubernetes.client import Object
from connectors.kubernetes.guarded_patch import GuardedChange
from streams.model.run import Target


def effect(action: str, target: Target, number: int = 1) -> Effect:
    """An effect of incident `inc-N` with the key `key-N`."""
    return Effect(f"key-{number}", action, target, "c1", f"inc-{number}", f"run-{number}", action)


def node(name: str = "gpu-07", *, ready: bool = True, **spec: Any) -> Object:
    """A node."""
    condition = {"type": "Ready", "status": "True" if ready else "Unknown"}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"},
        "spec": spec,
        "status": {"conditions": [condition]},
    }


def pod(
    name: str, on: str | None = "gpu-07", *, phase: str = "Running", ready: bool = True, **more: Any
) -> Object:
    """A GPU pod that a Job with uid `uid-train` controls; `more` overrides parts of its metadata."""
    owner = {"kind": "Job", "name": "train", "uid": "uid-train", "controller": True}
    limits = {"resources": {"limits": {"nvidia.com/gpu": "8"}}}
    return {
        "metadata": {"name": name, "namespace": "team-a", "uid": f"uid-{name}", "ownerReferences": [owner]}
        | more,
        "spec": {"nodeName": on, "containers": [{"name": "train", **limits}]},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }


def merged(thing: Any, patch: Any) -> Any:
    """The thing after a JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(thing) if isinstance(thing, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def made(thing: Object, decided: GuardedChange | Outcome) -> Object:
    """The object once the server has taken a decision that must be a change."""
    assert isinstance(decided, GuardedChange), decided
    found: Object = merged(thing, decided.patch)
    return found
