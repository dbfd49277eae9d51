"""Who holds one sick GPU of a node: by DRA's claims, else by what the kubelet says device plugins gave to each container.

Either everybody on the node is explained, or nothing is known: a holder that is overlooked would stay on a sick GPU unseen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from connectors.base import Effect
from connectors.kubernetes.client import Cluster, Object, path_of
from connectors.kubernetes.errors import Forbidden, NotFound
from connectors.kubernetes.gpu_devices import (
    Device,
    SickGpu,
    allocated,
    claims_of,
    devices_of,
    gpus_asked,
    plugin_ids,
)
from connectors.kubernetes.objects import has_ended, is_ready, name_of
from connectors.kubernetes.pod_roles import asks_for_gpu

GROUP = "resource.k8s.io"
VERSIONS = ("v1", "v1beta2", "v1beta1")
RIGHTS = "k8s/components/gpu-drain"

OF_THE_NODE = frozenset({"gpu_nvlink", "nvswitch", "gpu_driver"})
"""Families of faults that are not one GPU's own, or that are mended by touching all of them."""


@dataclass(frozen=True, slots=True)
class Holders:
    """`uids` of the pods that hold the GPU, or None where that is not known; `why` says by what, or why not.

    `later`: not known yet, for something on the node is just being started.
    """

    uids: frozenset[str] | None
    why: str
    later: bool = False
    devices: frozenset[Device] = frozenset()
    """The GPU as DRA knows it; empty where it does not."""


async def holders(cluster: Cluster, effect: Effect, node: Object, pods: Sequence[Object]) -> Holders:
    """Who among the pods of a node holds the GPU of the incident."""
    gpu, name = SickGpu.of(effect.context), effect.target.name
    family = str(effect.context.get("family") or "")
    if gpu is None:
        return Holders(None, "the incident names no GPU by its UUID or PCI address")
    if family in OF_THE_NODE:
        return Holders(None, f"a fault of the family {family} is not one GPU's own")
    if not is_ready(node):
        return Holders(None, f"{name} is not ready")
    live = [pod for pod in pods if not has_ended(pod) and asks_for_gpu(pod)]
    try:
        devices = await _devices(cluster, gpu, name)
        claimed = await _claimed(cluster, live) if devices else {}
    except Forbidden as error:
        return Holders(None, f"reading {GROUP} is not allowed (apply {RIGHTS}): {error}"[:300])
    return _judged(gpu, live, devices, claimed)


def _judged(
    gpu: SickGpu, live: Sequence[Object], devices: set[Device], claimed: dict[str, set[Device] | None]
) -> Holders:
    """Who holds it, given what the claims of each pod (by uid) hold; None there for claims that are not made yet."""
    found: set[str] = set()
    by: set[str] = set()
    for pod in live:
        uid = str(pod["metadata"]["uid"])
        held = claimed.get(uid, set())
        if held is None:
            return Holders(None, f"the claims of {name_of(pod)} are not allocated yet", later=True)
        if devices & held:
            found.add(uid)
            by.add("ResourceClaims")
        ids, asked = plugin_ids(pod), gpus_asked(pod)
        if held or not asked:
            continue
        if len(ids) < asked:
            if not (pod.get("status") or {}).get("containerStatuses"):
                return Holders(None, f"{name_of(pod)} is just being started", later=True)
            return Holders(
                None, f"the kubelet does not say which GPUs {name_of(pod)} has (allocatedResourcesStatus)"
            )
        verdicts = [gpu.is_named(one) for one in ids]
        if any(verdicts):
            found.add(uid)
            by.add("allocatedResourcesStatus")
        elif None in verdicts:
            unclear = ids[verdicts.index(None)]
            return Holders(None, f"whether {unclear} of {name_of(pod)} is on GPU {gpu} cannot be told")
    why = f"by {' and '.join(sorted(by))}" if by else "nobody holds it"
    return Holders(frozenset(found), why, devices=frozenset(devices))


async def _devices(cluster: Cluster, gpu: SickGpu, node: str) -> set[Device]:
    """The GPU as DRA's drivers publish it; empty where none does, or DRA is not served."""
    version = await served_version(cluster, "resourceslices")
    if version is None:
        return set()
    query = {"fieldSelector": f"spec.nodeName={node}"}
    return devices_of(gpu, await cluster.list_all(path_of(version, "resourceslices"), query=query))


async def _claimed(cluster: Cluster, pods: Sequence[Object]) -> dict[str, set[Device] | None]:
    """What the claims of each pod hold, by its uid, of the pods that have claims."""
    version = await served_version(cluster, "resourceclaims")
    found: dict[str, set[Device] | None] = {}
    for pod in pods:
        uid, names = str(pod["metadata"]["uid"]), claims_of(pod)
        if names is None:
            found[uid] = None
        elif names and version is not None:
            found[uid] = await _held(cluster, version, pod["metadata"]["namespace"], names)
    return found


async def _held(cluster: Cluster, version: str, namespace: str, names: Sequence[str]) -> set[Device] | None:
    held: set[Device] = set()
    for name in names:
        try:
            claim = await cluster.get(path_of(version, "resourceclaims", namespace=namespace, name=name))
        except NotFound:
            return None  # its pod is going, or it is just being made
        if not (devices := allocated(claim)):
            return None
        held |= devices
    return held


async def served_version(cluster: Cluster, plural: str, versions: Sequence[str] = VERSIONS) -> str | None:
    """`resource.k8s.io/VERSION` of the newest version in which the server has this kind; None where it has none."""
    for version in versions:
        try:
            served = await cluster.get(f"/apis/{GROUP}/{version}")
        except NotFound:
            continue
        if any(one.get("name") == plural for one in served.get("resources") or []):
            return f"{GROUP}/{version}"
    return None
