"""Which pods use volumes that only their node has: a pod made anew elsewhere waits until that node is back.

Source: Kubernetes, "Persistent Volumes" (local volumes and node affinity), "Ephemeral Volumes".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.errors import Forbidden, NotFound

HOSTNAME = "kubernetes.io/hostname"


async def pinned_volumes(cluster: Cluster, pods: Iterable[Object]) -> dict[str, str]:
    """Claims by the uid of the pod that uses them, of those that are bound to one node.

    Where reading claims is not allowed none counts as such: an eviction deletes no claim.
    """
    found: dict[str, str] = {}
    for pod in pods:
        names = [
            name for name in _claims(pod) if await _is_pinned(cluster, pod["metadata"]["namespace"], name)
        ]
        if names:
            found[str(pod["metadata"]["uid"])] = ", ".join(names)
    return found


def _claims(pod: Object) -> Iterator[str]:
    for volume in pod.get("spec", {}).get("volumes") or []:
        if (claim := volume.get("persistentVolumeClaim")) is not None:
            yield str(claim.get("claimName"))
        elif volume.get("ephemeral") is not None:
            yield f"{pod['metadata']['name']}-{volume.get('name')}"


async def _is_pinned(cluster: Cluster, namespace: str, name: str) -> bool:
    try:
        claim = await cluster.get(path_of("v1", "persistentvolumeclaims", namespace=namespace, name=name))
        bound = (claim.get("spec") or {}).get("volumeName")
        if not bound:
            return False
        volume = await cluster.get(path_of("v1", "persistentvolumes", name=str(bound)))
    except (NotFound, Forbidden):
        return False
    return is_bound_to_a_node(volume)


def is_bound_to_a_node(volume: Object) -> bool:
    """Whether a PersistentVolume exists on one node alone."""
    spec = volume.get("spec") or {}
    if spec.get("local") is not None or spec.get("hostPath") is not None:
        return True
    required = ((spec.get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or []
    keys = [expression.get("key") for term in required for expression in term.get("matchExpressions") or []]
    return HOSTNAME in keys
