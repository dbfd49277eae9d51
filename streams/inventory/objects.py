"""Which object a Kubernetes object is, whether people want it left alone, and how many GPUs it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from streams.inventory.names import names
from streams.model.errors import BadInput
from streams.model.kube_objects import KubeObject, annotations_of, items, labels_of, part, text, whole


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


def is_managed(obj: KubeObject) -> bool:
    """False when a person has set the label or the annotation `faultline.dev/managed` to `false`."""
    set_to = (marks.get("faultline.dev/managed", "") for marks in (labels_of(obj), annotations_of(obj)))
    return "false" not in (str(value).lower() for value in set_to)


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
