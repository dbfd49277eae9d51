"""Where something happened: everything a log line, a metric or an event says about the place.

An `Entity` is flat on purpose. A kernel line knows a node and a PCI address, a switch line knows a switch and a port,
a rank's log knows a pod and a rank; inventory fills in the rest. Two entities are the same place when their `key`s are equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

EntityKind = Literal[
    "cluster", "node", "gpu", "nic", "switch", "port", "job", "pod", "rank", "rack", "storage", "part"
]

_PCI = re.compile(
    r"(?P<domain>[0-9a-f]{4,8}):(?P<bus>[0-9a-f]{2}):(?P<device>[0-9a-f]{2})(?:[.:]0?[0-7])?"
    r"|(?P<near>[0-9a-f]{2}):(?P<there>[0-9a-f]{2})(?:\.0?[0-7])?"
    r"|(?P<whole>[0-9a-f]{4,8}):(?P<lone>[0-9a-f]{2})",
    re.ASCII,
)


def canonical_pci(text: str) -> str | None:
    """A PCI address as `dddd:bb:dd`: lower case, no function, domain of four digits unless it needs more.

    Takes the kernel's `0000:1b:00`, DCGM's `00000000:1B:00.0`, `PCI:0000:1b:00`, `0000:1b:00:00` with its function behind a
    colon, a bare `1b:00`, and `0000:1b`: a GPU is the only device of its bus.
    Returns None when the text holds no address (some kernels mask it).
    """
    text = text.strip().lower().removeprefix("pci:")
    match = _PCI.fullmatch(text)
    if match is None:
        return None
    domain = int(match["domain"] or match["whole"] or "0", 16)
    bus = match["bus"] or match["near"] or match["lone"]
    return f"{domain:04x}:{bus}:{match['device'] or match['there'] or '00'}"


SLURM = "slurm"
"""Stands where a pod has its namespace: for the output of a Slurm job, whose number is the name."""
SLURM_JOB = "SlurmJob"
"""The kind of a job that Slurm runs; its name is the number."""
SLURM_UID = "slurm:"
"""What the uid of a node, and of a job's processes on one, begins with where Slurm reported it and no API server."""


_OUTPUT = re.compile(r"slurm/\d{1,10}(?:_\d{1,7})?(?:\.|$)", re.ASCII)


def is_output_of_slurm(pod: str) -> bool:
    """Whether a pod's key stands for the output of a Slurm job, or for its processes on a host: `slurm/NUMBER[.HOST]`.

    A Kubernetes namespace may be called `slurm` as well (Slinky's): its pods are pods.
    """
    return pod.startswith(f"{SLURM}/") and _OUTPUT.match(pod) is not None


def is_of_slurm(uid: str | None) -> bool:
    """Whether a fact or a target with this uid is Slurm's."""
    return uid is not None and uid.startswith(SLURM_UID)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of a node, by any of its names. `pci` is canonical; `mig` is `GPU-I[:GPU-CI]`, e.g. `5` or `5:1`."""

    pci: str | None = None
    uuid: str | None = None
    index: int | None = None
    mig: str | None = None

    @property
    def key(self) -> str:
        """The most stable name known: PCI address, then UUID, then index."""
        name = self.pci or self.uuid or (f"index-{self.index}" if self.index is not None else "?")
        return f"{name}/mig-{self.mig}" if self.mig else name


@dataclass(frozen=True, slots=True)
class JobRef:
    """The top-most owner of a training job's pods, as Kubernetes names it. `kind` is the API kind, e.g. `PyTorchJob`."""

    kind: str
    namespace: str
    name: str
    uid: str | None = None

    @property
    def key(self) -> str:
        """`kind/namespace/name`: the uid is left out because two sources of the same job may not both know it."""
        return f"{self.kind}/{self.namespace}/{self.name}"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class PodRef:
    """One pod, by namespace and name, with its uid where known."""

    namespace: str
    name: str
    uid: str | None = None

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class Part(NamedTuple):
    """Something that several nodes share, e.g. `power-feed` `B`. Its kind is one of `inventory/parts.yaml` or a site's own."""

    kind: str
    name: str

    @property
    def key(self) -> str:
        """`kind/name`."""
        return f"{self.kind}/{self.name}"

    def __str__(self) -> str:
        if self.kind == NAMED:
            return f"the nodes named {self.name}*"
        if self.kind == OUTPUT:
            return f"the output of pods of {self.name}" if self.name else "the output of jobs"
        if self.kind == COOLING:
            return "the cooling"
        if self.kind == WENT_WITH:
            return f"the hosts lost with {self.name}"
        return f"{self.kind.replace('-', ' ')} {self.name}"


OUTPUT = "job-output"
"""The kind of what the pods of one namespace print."""
COOLING = "cooling"
"""The kind of what cools nodes of several racks, whatever it is called."""
WENT_WITH = "went-with"
"""The kind of what hosts share that went dark together, whatever it is; it is called by the first of them."""
NAMED = "name"
"""The kind of a part that only the beginning of its nodes' names tells of."""


@dataclass(frozen=True, slots=True)
class Entity:
    """A place in a cluster, as precisely as its source knows it.

    `nic` is the device as the host names it (`mlx5_3`, `eth2`); `port` belongs to `switch` when there is one. `rack`,
    `storage` (a target, a server or a file system) and `part` (anything else) are places that many nodes share.
    """

    cluster: str
    node: str | None = None
    gpu: Gpu | None = None
    nic: str | None = None
    switch: str | None = None
    port: str | None = None
    job: JobRef | None = None
    pod: PodRef | None = None
    rank: int | None = None
    rack: str | None = None
    storage: str | None = None
    part: Part | None = None

    @property
    def kind(self) -> EntityKind:
        """What is being named, the most specific hardware first: hardware is what gets acted on."""
        if self.node is not None:
            if self.gpu is not None:
                return "gpu"
            if self.nic is not None:
                return "nic"
        if self.switch is not None:
            return "port" if self.port is not None else "switch"
        if self.rank is not None and (self.job or self.pod):
            return "rank"
        if self.pod is not None:
            return "pod"
        if self.node is not None:
            return "node"
        if self.storage is not None:
            return "storage"
        if self.rack is not None:
            return "rack"
        if self.part is not None:
            return "part"
        return "job" if self.job is not None else "cluster"

    @property
    def key(self) -> str:
        """A stable identity inside the cluster, e.g. `gpu/node-07/0000:1b:00` or `port/leaf-2/Ethernet12`."""
        match self.kind:
            case "gpu":
                return f"gpu/{self.node}/{self.gpu.key if self.gpu else '?'}"
            case "nic":
                return f"nic/{self.node}/{self.nic}"
            case "port":
                return f"port/{self.switch}/{self.port}"
            case "switch":
                return f"switch/{self.switch}"
            case "rank":
                owner = self.pod.key if self.pod else self.job.key if self.job else "?"
                return f"rank/{owner}/{self.rank}"
            case "pod":
                return f"pod/{self.pod.key if self.pod else '?'}"
            case "node":
                return f"node/{self.node}"
            case "job":
                return f"job/{self.job.key if self.job else '?'}"
            case "rack":
                return f"rack/{self.rack}"
            case "storage":
                return f"storage/{self.storage}"
            case "part":
                return f"part/{self.part.key if self.part else '?'}"
            case _:
                return "cluster"

    def __str__(self) -> str:
        match self.kind:
            case "gpu" if self.gpu:
                return f"GPU {self.gpu.key} on {self.node}"
            case "nic":
                return f"NIC {self.nic} on {self.node}"
            case "port":
                return f"port {self.port} of {self.switch}"
            case "job" if self.job:
                return f"job {self.job}"
            case "part" if self.part:
                return str(self.part)
            case "rank":
                return f"rank {self.rank} of {self.pod.key if self.pod else self.job}"
            case _:
                return self.key.replace("/", " ", 1)
