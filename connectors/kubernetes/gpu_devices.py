"""Which devices are one GPU, and which pods hold them, by DRA (dynamic resource allocation) and by device plugins. Pure.

A GPU is one device, or several where it is partitioned (MIG): those that name it as their parent, and those that use up the same
counters. Sources: Kubernetes, "Dynamic Resource Allocation"; attributes as the NVIDIA and AMD drivers publish them (`uuid`,
`parentUUID`, `resource.kubernetes.io/pciBusID`, `pciAddr`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from connectors.kubernetes.client import Object
from streams.model.entity import canonical_pci
from streams.model.kube_objects import whole
from streams.model.signal import Attribute

_UUIDS = ("uuid", "parentuuid")
_PCI = ("pcibusid", "pciebusid", "pciaddr", "parentpcibusid")

Device = tuple[str, str, str]
"""Driver, pool and name: the identity of a device in the cluster."""


@dataclass(frozen=True, slots=True)
class SickGpu:
    """The GPU of an incident, by those of its names that are known. `pci` is canonical."""

    uuid: str | None = None
    pci: str | None = None

    @classmethod
    def of(cls, context: Mapping[str, Attribute]) -> SickGpu | None:
        """The GPU that the context of an effect names; None where it names none, or only by an index that may change."""
        uuid, pci = context.get("gpu_uuid"), context.get("gpu_pci")
        found = cls(
            str(uuid).lower() if uuid else None,
            canonical_pci(str(pci)) if pci else None,
        )
        return found if found.uuid or found.pci else None

    def is_named(self, name: str) -> bool | None:
        """Whether an id of a device plugin is this GPU; None where it may be, which is not known.

        `GPU-…` and `0000:1b:00.0` are GPUs; `::` and what follows is a share of one (time slicing, MPS); `MIG-GPU-…/5/0` names
        its GPU, `MIG-…` of newer drivers does not.
        """
        name = name.strip().lower().partition("::")[0]
        if name.startswith("mig-gpu-"):
            name = name.removeprefix("mig-").partition("/")[0]
        if name.startswith("gpu-"):
            return name == self.uuid if self.uuid else None
        if (pci := canonical_pci(name)) is not None:
            return pci == self.pci if self.pci else None
        return None

    def __str__(self) -> str:
        return self.pci or self.uuid or "?"


def devices_of(gpu: SickGpu, slices: Iterable[Object]) -> set[Device]:
    """The devices that are this GPU or a part of it; empty where no driver publishes it."""
    listed = [(slice_, device) for slice_ in slices for device in _devices(slice_)]
    own = [(where, device) for where, device in listed if _is(gpu, device)]
    counters = {counter for where, device in own for counter in _counters(where, device)}
    return {
        _id(where, device)
        for where, device in listed
        if _is(gpu, device) or not counters.isdisjoint(_counters(where, device))
    }


def allocated(claim: Object) -> set[Device]:
    """The devices that a claim holds."""
    results = (((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}).get(
        "results"
    ) or []
    return {(str(r.get("driver")), str(r.get("pool")), str(r.get("device"))) for r in results}


def claims_of(pod: Object) -> list[str] | None:
    """Names of the pod's claims; None while one of them has not been made."""
    status = pod.get("status") or {}
    made = {str(s.get("name")): s.get("resourceClaimName") for s in status.get("resourceClaimStatuses") or []}
    found: list[str] = []
    for claim in pod.get("spec", {}).get("resourceClaims") or []:
        if (name := claim.get("resourceClaimName")) is not None:
            found.append(str(name))
        elif str(claim.get("name")) not in made:
            return None
        elif (name := made[str(claim.get("name"))]) is not None:  # a template may turn out to need no claim
            found.append(str(name))
    if extended := (status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName"):
        found.append(str(extended))
    return found


def plugin_ids(pod: Object) -> list[str]:
    """The ids of GPUs that device plugins gave to the pod's containers, as the kubelet reports them."""
    status = pod.get("status") or {}
    statuses = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
    return [
        str(one.get("resourceID"))
        for container in statuses
        for resource in container.get("allocatedResourcesStatus") or []
        if is_gpu_resource(str(resource.get("name")))
        for one in resource.get("resources") or []
    ]


def gpus_asked(pod: Object) -> int:
    """How many GPUs, shares or partitions the pod asks device plugins for: its containers together, or one init container."""
    spec = pod.get("spec", {})
    together = sum(_asked(container) for container in spec.get("containers") or [])
    return max([together, *(_asked(container) for container in spec.get("initContainers") or [])])


def is_gpu_resource(name: str) -> bool:
    """Whether an extended resource is GPUs: `nvidia.com/gpu`, `nvidia.com/mig-…`, `nvidia.com/gpu.shared`; AMD alike."""
    vendor, _, device = name.partition("/")
    return vendor in ("nvidia.com", "amd.com") and device.startswith(("gpu", "mig-"))


def _asked(container: Object) -> int:
    resources = container.get("resources") or {}
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return sum(whole(count) or 0 for name, count in asked.items() if is_gpu_resource(name))


def _devices(slice_: Object) -> Sequence[Object]:
    found: Sequence[Object] = (slice_.get("spec") or {}).get("devices") or []
    return found


def _about(device: Object) -> Mapping[str, Any]:
    """v1beta1 has what a device is one level deeper."""
    found: Mapping[str, Any] = device.get("basic") or device
    return found


def _is(gpu: SickGpu, device: Object) -> bool:
    for name, value in (_about(device).get("attributes") or {}).items():
        key, text = name.rpartition("/")[2].lower(), str((value or {}).get("string") or "")
        if key in _UUIDS and gpu.uuid and text.lower() == gpu.uuid:
            return True
        if key in _PCI and gpu.pci and canonical_pci(text) == gpu.pci:
            return True
    return False


def _counters(slice_: Object, device: Object) -> Iterator[tuple[str, str]]:
    pool = str(((slice_.get("spec") or {}).get("pool") or {}).get("name"))
    for used in _about(device).get("consumesCounters") or []:
        yield pool, str(used.get("counterSet"))


def _id(slice_: Object, device: Object) -> Device:
    spec = slice_.get("spec") or {}
    return str(spec.get("driver")), str((spec.get("pool") or {}).get("name")), str(device.get("name"))
