"""Looking into Kubernetes objects as they come: plain mappings in which any part may be missing or null."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from streams.inventory.names import names
from streams.model.clock import parse_rfc3339
from streams.model.errors import BadInput

KubeObject = Mapping[str, Any]


class Identity(NamedTuple):
    """Which object: kinds that two API groups share are told apart (`VolcanoJob`)."""

    kind: str
    namespace: str
    name: str


def kind_of(api_version: str, kind: str) -> str:
    """The kind under the name used here: the API kind, except where two groups use the same one."""
    group = api_version.rpartition("/")[0]
    return names().renamed_kinds.get(f"{group}/{kind}", kind)


def identity(obj: KubeObject) -> Identity:
    """Which object this is.

    Raises:
        BadInput: when it has no kind or no name.
    """
    about = part(obj, "metadata")
    kind, name = obj.get("kind"), about.get("name")
    if not isinstance(kind, str) or not isinstance(name, str) or not name:
        raise BadInput("a Kubernetes object without kind or name")
    return Identity(kind_of(str(obj.get("apiVersion") or ""), kind), text(about, "namespace") or "", name)


def part(obj: KubeObject, *path: str) -> Mapping[str, Any]:
    """The mapping at `path`, empty when it is not there."""
    here: Any = obj
    for step in path:
        here = here.get(step) if isinstance(here, Mapping) else None
    return here if isinstance(here, Mapping) else {}


def items(obj: KubeObject, *path: str) -> Iterator[Mapping[str, Any]]:
    """The mappings in the list at `path`."""
    found = part(obj, *path[:-1]).get(path[-1])
    return (item for item in found if isinstance(item, Mapping)) if isinstance(found, list) else iter(())


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


def condition(obj: KubeObject, kind: str) -> Mapping[str, Any]:
    """The entry of `status.conditions` of that type, empty when there is none."""
    return next((c for c in items(obj, "status", "conditions") if c.get("type") == kind), {})


def holds(obj: KubeObject, kind: str) -> bool:
    """Whether a condition is there and `True`."""
    return condition(obj, kind).get("status") == "True"


def is_managed(obj: KubeObject) -> bool:
    """False when a person has set the label `faultline.dev/managed=false`."""
    return str(labels_of(obj).get("faultline.dev/managed", "")).lower() != "false"


def is_node_work(obj: KubeObject) -> bool:
    """True for a Job that Faultline created to work on a node, and for its pod: neither is anybody's training job."""
    return "faultline.dev/node-work" in labels_of(obj)


def gpus_in(resources: Mapping[str, Any], *, slices: bool) -> int:
    """GPUs in a map of resource quantities; with `slices`, MIG devices count as one each."""
    table = names()
    count = 0
    for name, amount in resources.items():
        if name in table.gpu_resources or (slices and name.startswith(table.gpu_resource_prefixes)):
            count += whole(amount) or 0
    return count


def gpus_requested(pod_spec: Mapping[str, Any]) -> int:
    """GPUs that a pod's containers hold together while it runs; an init container counts only when it wants more."""

    def wanted(container: Mapping[str, Any]) -> int:
        resources = part(container, "resources")
        return max(gpus_in(part(resources, kind), slices=True) for kind in ("limits", "requests"))

    running = sum(wanted(c) for c in items(pod_spec, "containers"))
    return max([running, *(wanted(c) for c in items(pod_spec, "initContainers"))])
