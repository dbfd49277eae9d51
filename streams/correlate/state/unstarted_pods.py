"""What a pod that cannot be given its GPUs shows about its node: the GPU software there is broken, whosever pod comes.

Kubernetes reports it of the pod, or the program that finds its driver without the daemons that it needs. Where several jobs' pods
cannot start on several nodes, those nodes share it, and no job does.
"""

from __future__ import annotations

from dataclasses import replace

from streams.correlate.sightings import EACH_MINUTE, Sighting
from streams.correlate.state.allocations import is_slurm
from streams.model.entity import Entity, PodRef
from streams.model.kinds import SignalKind

POD = "of_pod"
"""Attribute of what a pod shows about its node: the pod's key."""
GPU_RUNTIME = "gpu_runtime"
"""The subtype of a container runtime that has none for GPUs."""
_OF_GPU_SOFTWARE = frozenset({"version_mismatch", "cdi_devices", "dra_driver", GPU_RUNTIME})
_NOT_READY = "system not yet initialized"
"""CUDA's error 802: a daemon that the driver needs (the fabric manager) does not run. No program causes it (CUDA Runtime API)."""


def of_gpu_software(seen: Sighting) -> Sighting | None:
    """What such a pod shows about its node; None for other failures, and where the node is not known."""
    node, subtype = seen.entity.node, _broken(seen)
    if seen.kind != SignalKind.JOB_FAILED or not seen.firing or not node or not subtype:
        return None
    pod = seen.entity.pod
    attributes = {"subtype": subtype, "reason": seen.text("reason"), EACH_MINUTE: series_of(pod)}
    if pod is not None:
        attributes[POD] = pod.key
    return replace(
        seen, kind=SignalKind.GPU_DRIVER, entity=Entity(seen.entity.cluster, node=node), attributes=attributes
    )


def lacks_runtime(told: Sighting) -> bool:
    """Whether a sighting of a node is that a pod found no runtime for GPUs there."""
    return told.kind == SignalKind.GPU_DRIVER and told.text("subtype") == GPU_RUNTIME


def series_of(pod: PodRef | None) -> str:
    """The name that a controller's pods have in common, so that the retries of one job hide no other job's pod.

    Only for what is kept: whose job it is, the inventory says.
    """
    return f"{pod.namespace}/{pod.name.rpartition('-')[0]}" if pod is not None else ""


def _broken(seen: Sighting) -> str:
    """What is broken; empty where nothing of the node's software is. Any host may ship what a job of Slurm prints."""
    subtype, pod = seen.text("subtype"), seen.entity.pod
    if (
        subtype == "cuda_error"
        and seen.text("reason") == _NOT_READY
        and pod is not None
        and not is_slurm(pod)
    ):
        return "system_not_ready"
    return subtype if subtype in _OF_GPU_SOFTWARE else ""
