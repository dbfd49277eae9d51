"""The origin of a sample: the part it is about, its exporter, and the job that owns the part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from zlib import crc32

from streams.detect.finding import Stream
from streams.detect.matching import re2_patterns
from streams.detect.metrics.dcgm_gauges import gpu_named, names_of_gpu
from streams.detect.metrics.rule_rows import Named
from streams.detect.rule_state import Key
from streams.model.entity import Gpu
from streams.model.record import Sample
from streams.model.signal import Attribute

_NIC_LABELS = ("device", "interface", "netdev", "nic", "hca")
_PORT_LABELS = ("interface", "ifName", "ifDescr")
"""Labels of a switch's port: snmp_exporter's are the columns of IF-MIB."""
_PODS = (("exported_pod", "exported_namespace"), ("pod_name", "pod_namespace"), ("pod", "namespace"))
_SUFFIX = re2_patterns.compile(
    r"-(?:\d{1,6}|[bcdfghjklmnpqrstvwxz2456789]{5}|[bcdfghjklmnpqrstvwxz2456789]{8,10})$"
)
"""What Kubernetes and job controllers append to a name: ordinals, and random letters without vowels (apimachinery, rand.go)."""
_ROLE = re2_patterns.compile(r"-(?:worker|master|chief|head|node|replica|leader)s?$")
_PCI = re2_patterns.compile(r"(?i)[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}")
_FUNCTIONS = frozenset("1234567")
"""Of a PCI device, beside the first: the second port of a card is one."""
_CACHED = 65_536


@dataclass(frozen=True, slots=True)
class SamplePlace:
    """One part of a node. Rules remember it by `key`; the key of a GPU is one shared object, which saves memory."""

    key: Key
    gpu: Gpu | None = None
    nic: str | None = None
    port: str | None = None
    attributes: tuple[tuple[str, Attribute], ...] = ()
    on_switch: bool = False


@lru_cache(_CACHED)
def _of_gpu(
    cluster: str, node: str, whole: bool, address: str, uuid: str, index: str, mig: str
) -> SamplePlace | None:
    gpu = gpu_named(address, uuid, index, mig)
    if gpu.pci is None and gpu.uuid is None and gpu.index is None:
        return None
    if whole and gpu.mig:
        gpu = Gpu(gpu.pci, gpu.uuid, gpu.index)
    named: dict[str, Attribute | None] = {"pci": gpu.pci, "uuid": gpu.uuid}
    name = gpu.uuid or (gpu.pci if gpu.pci else f"index-{gpu.index}")
    key = (cluster, node, name, gpu.mig) if gpu.mig else (cluster, node, name)
    return SamplePlace(key, gpu, attributes=tuple((k, v) for k, v in named.items() if v is not None))


def gpu_place(sample: Sample, stream: Stream, *, whole: bool) -> SamplePlace | None:
    """The GPU, or with `whole` False its MIG instance; None without a GPU in the labels, as in sums and averages."""
    names = names_of_gpu(sample)
    # A GPU without MIG is the same either way, and shares its key.
    return _of_gpu(stream.cluster, sample.node or stream.lines, whole and names[-1] != "", *names)


def nic_place(sample: Sample, stream: Stream) -> SamplePlace | None:
    """The NIC and its port, as far as the labels name them."""
    labels = sample.labels
    nic = next((labels[name] for name in _NIC_LABELS if labels.get(name)), None)
    if nic is None:
        return None
    port = labels.get("port") or None
    attributes: tuple[tuple[str, Attribute], ...] = (("device", nic), *((("port", port),) if port else ()))
    key = (stream.cluster, sample.node or stream.lines, nic, port or "")
    return SamplePlace(key, None, nic, port, attributes)


def port_place(sample: Sample, stream: Stream) -> SamplePlace | None:
    """The port of a switch; a NIC where the sample is of a host's end of the cable."""
    labels = sample.labels
    port = next((labels[name] for name in _PORT_LABELS if labels.get(name)), None)
    if port is None and not any(labels.get(name) for name in _NIC_LABELS):
        port = labels.get("port") or None
    if port is None or sample.node is None:
        return nic_place(sample, stream)
    return SamplePlace(
        (stream.cluster, sample.node, "", port), port=port, attributes=(("port", port),), on_switch=True
    )


def pci_place(sample: Sample, stream: Stream) -> SamplePlace | None:
    """The PCI device, whatever it is, by the labels of node_exporter's pcidevice collector: hexadecimal digits."""
    labels = sample.labels
    segment, bus, device = (labels.get(name, "") for name in ("segment", "bus", "device"))
    address = f"{segment or '0000'}:{bus}:{device}"
    if _PCI.fullmatch(address) is None:
        return None
    function = labels.get("function", "")
    attributes: tuple[tuple[str, Attribute], ...] = (("pci", address.lower()),)
    if function in _FUNCTIONS:
        attributes += (("pci_function", int(function)),)
    return SamplePlace(
        (stream.cluster, sample.node or stream.lines, address, function), attributes=attributes
    )


def node_place(sample: Sample, stream: Stream) -> SamplePlace:
    """The node."""
    return SamplePlace((stream.cluster, sample.node or stream.lines))


def with_parts(
    place: SamplePlace, labels: Mapping[str, str], parts: tuple[str, ...], from_name: Named
) -> SamplePlace:
    """The place of one series of a part that has several: a link, a sensor, a memory controller."""
    named = (*((part, labels[part]) for part in parts if labels.get(part)), *from_name)
    if not named:
        return place
    key = (*place.key, *(value for _, value in named))
    return replace(place, key=key, attributes=(*place.attributes, *named))


def exporter_of(labels: Mapping[str, str], metric: str = "") -> int:
    """A number for the exporter of a sample, or for one metric of it; the same in every process."""
    return _exporter(labels.get("instance", ""), labels.get("job", ""), labels.get("url", ""), metric)


@lru_cache(_CACHED)
def _exporter(instance: str, job: str, url: str, metric: str) -> int:
    number = _number(instance, job, url)
    return crc32(metric.encode("utf-8", "replace"), number) if metric else number


@lru_cache(_CACHED)
def _number(*names: str) -> int:
    return crc32("\n".join(names).encode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class Owner:
    """The pod or batch job a GPU is allocated to. `family` is the part of the name that all pods of the job share."""

    namespace: str
    family: str
    number: int
    """A hash of the pod."""


def owner_of(labels: Mapping[str, str]) -> Owner | None:
    """The owner of a GPU, None when it is free.

    Without `honor_labels`, Prometheus renames the workload's labels to `exported_…` and puts the exporter's own pod in their
    place; an exporter is no owner. A Slurm job is in `hpc_job` (dcgm-exporter).
    """
    for pod_label, namespace_label in _PODS:
        if pod_label in labels:
            if not (pod := labels[pod_label]):
                break
            return _owner(labels.get(namespace_label, ""), pod) if "exporter" not in pod else None
    job = labels.get("hpc_job")
    return Owner("hpc", job, _number(job)) if job else None


@lru_cache(_CACHED)
def _owner(namespace: str, pod: str) -> Owner:
    family = pod
    for _ in range(3):
        match = _SUFFIX.search(family)
        if match is None or match.start() == 0:
            break
        family = family[: match.start()]
    match = _ROLE.search(family)
    if match is not None and match.start() > 0:
        family = family[: match.start()]
    return Owner(namespace, family, _number(namespace, pod))
