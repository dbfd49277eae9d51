"""What runs where: the values of the `inventory` topic, keyed `<cluster>/<kind>/<name>`; a tombstone means gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import AwareDatetime, Discriminator

from streams.model.entity import JobRef, Part
from streams.model.kinds import WorkloadClass
from streams.model.node_notice import NodeNotice

WorkEnds = Literal["back", "gone", "held"]
"""How work on a node ends: it comes back by itself, it is gone for good, or a person takes the mark off."""


def taint_key(taint: str) -> str:
    """The key of a taint as facts have it, `key=value:effect`."""
    return taint.partition(":")[0].partition("=")[0]


@dataclass(frozen=True, slots=True)
class NodeWork:
    """Work on a node that somebody announced on it: it is expected to go away."""

    by: str
    """Who: a program's name, or `a person`."""
    mark: str
    """The label, annotation, taint or condition that says so."""
    ends: WorkEnds = "back"
    since: AwareDatetime | None = None
    """When it was set, where the API server knows."""


@dataclass(frozen=True, slots=True)
class NodeFact:
    """A node as the API server shows it. `gpus` is capacity; `gpus_allocatable` falls when a device is unhealthy."""

    cluster: str
    name: str
    uid: str
    observed_at: AwareDatetime
    ready: bool = True
    ready_since: AwareDatetime | None = None
    joining: bool = False
    """It has never been Ready since it was created."""
    created_at: AwareDatetime | None = None
    """When its object was created."""
    unschedulable: bool = False
    gpus: int = 0
    gpus_allocatable: int = 0
    pool: str | None = None
    leaf: str | None = None
    rack: str | None = None
    nvlink_domain: str | None = None
    rails: Mapping[str, str] = field(default_factory=dict)
    """The leaf of each NIC, by the NIC's name, where a topology file says so."""
    parts: Mapping[str, str] | None = None
    """What else it shares with other nodes, by kind: zone, room, power feed, coolant loop, chassis, block …"""
    guessed_parts: tuple[str, ...] | None = None
    """Kinds of `parts` that only a key word of a label, or the node's name, tells of."""
    control_plane: bool = False
    spot: Literal[True] | None = None
    """Its cloud may take it back at any time."""
    managed: bool = True
    """False when an operator has set `faultline.dev/managed` to `false`, as label or annotation: never act on it."""
    protected_by: str | None = None
    """Its label that `inventory.protected_labels` lists, if any."""
    maintenance: bool = False
    """Somebody says on it that they work on it; `work` says who, unless an older inventory wrote this."""
    work: NodeWork | None = None
    notice: NodeNotice | None = None
    """What its cloud announced on it: that it goes, and when."""
    addresses: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    """Other names of the machine: host names, cloud id, system UUID, machine id and serial number."""
    taints: tuple[str, ...] = ()
    """`key=value:effect` each, sorted."""
    owner_incident: str | None = None
    """The incident whose cordon this is, from Faultline's own annotation; several are separated by commas."""
    boot_id: str | None = None
    """The kernel's id of this boot: it changes with every reboot."""
    kernel: str | None = None
    """The version of its kernel."""
    gpu_layout: str | None = None
    """How its GPUs are handed out (MIG, time-slicing, passthrough) by its labels, for that changes their number as well."""
    kind: Literal["node"] = "node"

    @property
    def key(self) -> str:
        """The record key."""
        return f"{self.cluster}/node/{self.name}"

    @property
    def shared_parts(self) -> tuple[Part, ...]:
        """All that it shares with other nodes, by kind."""
        own = {"rack": self.rack, "leaf": self.leaf, "nvlink-domain": self.nvlink_domain, "pool": self.pool}
        named = {**(self.parts or {}), **{kind: name for kind, name in own.items() if name}}
        return tuple(Part(kind, name) for kind, name in sorted(named.items()) if name)

    @property
    def owners(self) -> tuple[str, ...]:
        """The incidents that its cordon belongs to."""
        return tuple(filter(None, (self.owner_incident or "").split(",")))

    @property
    def worked_on(self) -> NodeWork | None:
        """Who works on it: by its mark, else whoever cordoned it. What Faultline cordoned is its own."""
        if self.work is not None:
            return self.work
        if self.maintenance:
            return NodeWork("a person", "maintenance", "held")
        if self.unschedulable and self.owner_incident is None:
            return NodeWork("somebody", "cordon")
        return None


@dataclass(frozen=True, slots=True)
class PodFact:
    """A pod of a training job, or one that holds GPUs. `rank` is its first global rank, `ranks` how many it holds."""

    cluster: str
    namespace: str
    name: str
    uid: str
    observed_at: AwareDatetime
    node: str | None = None
    job: JobRef | None = None
    phase: str = "Pending"
    ready: bool = False
    gpus: int = 0
    rank: int | None = None
    ranks: int | None = None
    rank_source: str | None = None
    """Where `rank` comes from: `env`, `label`, `annotation`, `index` …; shown when sources conflict."""
    scheduled_at: AwareDatetime | None = None
    ended_at: AwareDatetime | None = None
    ip: str | None = None
    workload: WorkloadClass | None = None
    """What it is for. Records of versions that told only of training have none, and are about that."""
    workload_guessed: Literal[True] | None = None
    """Set where that is only inferred, from a size, an image or a command."""
    created_at: AwareDatetime | None = None
    started_at: AwareDatetime | None = None
    """When the last of its containers started; None while one waits to. What kept it from starting before is over, and what
    is said of an image or a volume of it afterwards keeps it from nothing."""
    removed_at: AwareDatetime | None = None
    """When somebody asked for its deletion: a person, preemption, a drain, a queue, its controller."""
    position: int | None = None
    """Its place in the list of its job's nodes, where only that is known of its ranks."""
    exit_code: int | None = None
    """With what its container ended last that ended badly; None where none did, or Kubernetes took the pod away."""
    exited_at: AwareDatetime | None = None
    replaceable: Literal[True] | None = None
    """Its job goes on when it is evicted, and its controller replaces it alone: a worker of a Ray cluster."""
    kind: Literal["pod"] = "pod"

    @property
    def trains(self) -> bool:
        """Whether it is part of a training job."""
        return self.workload in (None, WorkloadClass.TRAINING)

    @property
    def key(self) -> str:
        """The record key."""
        return f"{self.cluster}/pod/{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class JobFact:
    """A job (the top-most owner). `world` is the number of ranks when the spec says it."""

    cluster: str
    job: JobRef
    observed_at: AwareDatetime
    suspended: bool = False
    finished: bool = False
    failed: bool = False
    pods: int | None = None
    world: int | None = None
    managed: bool = True
    owner: str | None = None
    """Whom to notify: the annotation or label `faultline.dev/owner`, else None."""
    queue: str | None = None
    """The queue that it is in: Kueue's LocalQueue, Volcano's queue."""
    team: str | None = None
    """Whose it is, by the label or annotation `faultline.dev/team`."""
    workload: WorkloadClass | None = None
    """What it is for, as of a pod."""
    workload_guessed: Literal[True] | None = None
    lever: str | None = None
    """By what it is stopped and started again elsewhere (`streams.job_kinds.kind.Lever`); None where by nothing, or not told."""
    immovable: str | None = None
    """Why it cannot be stopped and started again, for its owner; None where it can."""
    cost: str | None = None
    """What stopping and starting it costs it; None where nothing."""
    costs_retries: int | None = None
    """How many of its restarts that costs; None where none."""
    retries_left: int | None = None
    """Restarts that its own controller still makes; None where it does not count them."""
    heals_within_s: float | None = None
    """Its own controller replaces what a broken node took, within so many seconds: then nobody else must."""
    progress_at: AwareDatetime | None = None
    """When the job last reported progress in its own object; None where it reports none there."""
    progress_percent: int | None = None
    """How much of its training is done by that report."""
    incarnation: str | None = None
    """What changes with each restart of it as a whole, where its object tells."""
    checkpoint_at: AwareDatetime | None = None
    """When it saved its last checkpoint, as its annotation `faultline.dev/last-checkpoint-at` says."""
    checkpoint_by: str | None = None
    """How it can be asked for one, as it declares it (`streams.job_kinds.checkpoint_way`); None where it does not."""
    checkpoint_within_s: float | None = None
    """Within how many seconds it then saves."""
    checkpoint_within_unreadable: str | None = None
    """What it says in place of these seconds, where that cannot be read and the usual ones count."""
    kind: Literal["job"] = "job"

    @property
    def trains(self) -> bool:
        """Whether it is a training job."""
        return self.workload in (None, WorkloadClass.TRAINING)

    @property
    def key(self) -> str:
        """The record key."""
        return f"{self.cluster}/job/{self.job.key}"


@dataclass(frozen=True, slots=True)
class LinkFact:
    """One cable: a switch port and the host NIC, or the other switch's port, at its end."""

    cluster: str
    switch: str
    port: str
    observed_at: AwareDatetime
    node: str | None = None
    nic: str | None = None
    peer_switch: str | None = None
    peer_port: str | None = None
    heard: bool = False
    """Learned from what devices hear of each other; what is configured counts before it."""
    rack: str | None = None
    """Where the host stands, as a topology file tells: no object does of hosts outside Kubernetes."""
    kind: Literal["link"] = "link"

    @property
    def key(self) -> str:
        """The record key."""
        return f"{self.cluster}/link/{self.switch}/{self.port}"


Fact = NodeFact | PodFact | JobFact | LinkFact
"""Any value of the `inventory` topic."""


@dataclass(frozen=True, slots=True)
class FactRecord:
    """The envelope on the wire, so that one decoder serves all kinds."""

    fact: Annotated[Fact, Discriminator("kind")]
    extra: Mapping[str, str] = field(default_factory=dict)
