"""The three kinds of patch of the Kubernetes API, as pure functions from an object and a patch to a new object.

merge      RFC 7396: null removes, lists are replaced
strategic  the same, but lists of known kinds are merged by the key of their elements (Kubernetes, "Update API Objects in
           Place Using kubectl patch"); taints are not among them
json       RFC 6902 without `move` and `copy`; a `test` that fails is 422
"""

from __future__ import annotations

import copy
from typing import Any

from sandbox.emulated.store import ApiError

_MERGE_KEYS = {
    "conditions": "type",
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "ownerReferences": "uid",
    "addresses": "type",
}


def patched(thing: dict[str, Any], patch: Any, content_type: str) -> dict[str, Any]:
    """The object after the patch; the given one stays unchanged."""
    match content_type:
        case "application/merge-patch+json":
            result = _merged(thing, patch)
        case "application/strategic-merge-patch+json":
            result = _merged(thing, patch, strategic=True)
        case "application/json-patch+json":
            result = _json_patched(thing, patch)
        case _:
            raise ApiError(415, "UnsupportedMediaType", f"{content_type} is not served here")
    if not isinstance(result, dict):
        raise ApiError(422, "Invalid", "the patched object is not an object")
    return result


def _merged(old: Any, patch: Any, *, strategic: bool = False) -> Any:
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        key = _MERGE_KEYS.get(name) if strategic else None
        if value is None:
            result.pop(name, None)
        elif key and isinstance(value, list):
            result[name] = _merged_list(result.get(name) or [], value, key)
        else:
            result[name] = _merged(result.get(name), value, strategic=strategic)
    return result


def _merged_list(old: list[Any], patch: list[Any], key: str) -> list[Any]:
    result = list(old)
    for element in patch:
        at = next((i for i, have in enumerate(result) if have.get(key) == element.get(key)), None)
        if element.get("$patch") == "delete":
            result = [have for have in result if have.get(key) != element.get(key)]
        elif at is None:
            result.append(_merged({}, element, strategic=True))
        else:
            result[at] = _merged(result[at], element, strategic=True)
    return result


def _json_patched(thing: dict[str, Any], operations: Any) -> Any:
    if not isinstance(operations, list):
        raise ApiError(400, "BadRequest", "a JSON patch is a list of operations")
    document = {"": copy.deepcopy(thing)}
    for operation in operations:
        try:
            _apply(document, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise ApiError(422, "Invalid", f"cannot apply {operation!r}: {error!r}") from error
    return document[""]


def _apply(document: dict[str, Any], operation: dict[str, Any]) -> None:
    steps = [step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")]
    parent: Any = document
    for step in steps[:-1]:
        parent = parent[int(step)] if isinstance(parent, list) else parent[step]
    last: Any = steps[-1]
    if isinstance(parent, list):
        last = len(parent) if last == "-" else int(last)
    match operation["op"]:
        case "add" if isinstance(parent, list):
            parent.insert(last, operation["value"])
        case "add":
            parent[last] = operation["value"]
        case "replace":
            parent[last]
            parent[last] = operation["value"]
        case "remove":
            del parent[last]
        case "test":
            if parent[last] != operation["value"]:
                raise ApiError(422, "Invalid", f"the test of {operation['path']} failed")
        case unknown:
            raise ValueError(f"operation {unknown}")
