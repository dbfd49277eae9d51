"""What a container that cannot open its GPUs shows about its node: a sighting of the node, whosever container it is.

Its program says it, a probe that the kubelet makes in it, or a tool that it runs. The words are the same where the driver is
broken, where a program asks for other GPUs than it has, and where the container's device rules are gone: which it is, is judged
where the node, its GPUs and other nodes are known (`node_rules/lost_devices.py`).
"""

from __future__ import annotations

from dataclasses import replace

from streams.correlate.sightings import EACH_MINUTE, Sighting
from streams.correlate.state.allocations import is_slurm
from streams.correlate.state.unstarted_pods import POD, series_of
from streams.model.entity import Entity, PodRef
from streams.model.kinds import SignalKind
from streams.model.signal import PRINTED_BY

DEVICE_ACCESS = "device_access"
"""The subtype of such a sighting."""
ENDS = "ends"
"""Attribute: the program ends with it, or the kubelet ends the container; a tool that only reads the GPUs' state does not."""
FIRM = "firm"
"""Attribute: no program brings it about by the GPUs that it asks for, as CUDA_VISIBLE_DEVICES and an actor without GPUs do."""
_NO_GPUS, _UNKNOWN, _NVML = "no CUDA GPUs are available", "CUDA unknown error", "NVML: Unknown Error"
_PROBE = "its probe cannot open them"
_OF_CUDA = {
    "unknown error": _UNKNOWN,
    "OS call failed or operation not supported on this OS": _UNKNOWN,
    "No CUDA GPUs are available": _NO_GPUS,
    "no CUDA-capable device is detected": _NO_GPUS,
}
"""Reasons of CUDA's errors (CUDA Runtime API, 999, 304, 100), and how they are called here."""
_WARNED = {
    "NVMLError_Unknown": _NVML,
    "NVML_ERROR_UNKNOWN": _NVML,
    "CUDA unknown error": _UNKNOWN,
    "Error 304": _UNKNOWN,
    "Error 999": _UNKNOWN,
    "No CUDA GPUs are available": _NO_GPUS,
}
"""What programs only warn of, and go on without (`catalog/lines/launcher.yaml`, `gpu_access`)."""
_UNKNOWN_OF_NVML = "Unknown Error"


def says_of_access(seen: Sighting) -> tuple[str, bool] | None:
    """In which words a program or a probe of a container says that it cannot open its GPUs, and whether it ends with it."""
    if seen.kind != SignalKind.JOB_FAILED or not seen.firing:
        return None
    subtype, reason = seen.text("subtype"), seen.text("reason")
    if subtype == "cuda_error" and reason in _OF_CUDA:
        return _OF_CUDA[reason], True
    if subtype != "gpu_access":
        return None
    return (_WARNED[reason], False) if reason in _WARNED else (_PROBE, True)


def of_container(seen: Sighting) -> Sighting | None:
    """What a container says of its node, if it is its own words; None for other sightings, and where the node is not known."""
    if seen.kind == SignalKind.GPU_DRIVER and PRINTED_BY in seen.attributes:
        namespace, _, name = seen.text(PRINTED_BY).partition("/")
        of_nvml = seen.text("subtype") == "nvml_init" and seen.text("reason") == _UNKNOWN_OF_NVML
        if not of_nvml or not seen.firing or not seen.entity.node:
            return None
        return at_node(seen, seen.entity.node, PodRef(namespace, name), _NVML, ends=False)
    pod, said = seen.entity.pod, says_of_access(seen)
    # A driver that relays what its workers say names their address: those stand elsewhere (`job_rules/device_reports.py`).
    if said is None or pod is None or not seen.entity.node or is_slurm(pod) or seen.text("ip"):
        return None
    return at_node(seen, seen.entity.node, pod, said[0], ends=said[1])


def at_node(seen: Sighting, node: str, pod: PodRef, words: str, *, ends: bool) -> Sighting:
    """The sighting of a node that one of its containers cannot open its GPUs."""
    return replace(
        seen,
        kind=SignalKind.GPU_DRIVER,
        entity=Entity(seen.entity.cluster, node=node),
        attributes={
            "subtype": DEVICE_ACCESS,
            "reason": words,
            EACH_MINUTE: series_of(pod),
            POD: pod.key,
            ENDS: ends,
            FIRM: words != _NO_GPUS,
        },
    )


def is_of_access(s: Sighting) -> bool:
    """Whether it is a sighting of a node that one of its containers cannot open its GPUs."""
    return s.kind == SignalKind.GPU_DRIVER and s.text("subtype") == DEVICE_ACCESS
