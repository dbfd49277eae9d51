"""A training job as it runs: its pods, their ranks, and what its release of PyTorch can log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sandbox.simulation import kube
from sandbox.simulation.layout import Layout
from sandbox.simulation.topology import GPUS, Node

_RANK = re.compile(r"^\[rank(\d+)\]")
SLURM = "Slurm"
"""The kind of jobs that no Kubernetes object stands for."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A running pod of a job: a whole node with eight ranks, the first of them `rank`; or of something else, without ranks."""

    namespace: str
    name: str
    uid: str
    node: Node
    rank: int
    address: str
    thing: kube.Object
    slurm: Mapping[str, str] | None = None
    """`job_id`, `job_name` and `task` where Slurm runs it: then it is a task, under the name of its node."""
    speaker: Pod | None = None
    """The launcher that prints its lines, with its rank or address before each."""

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def about(self) -> Mapping[str, str]:
        """What a shipper adds to its log lines."""
        if self.slurm is not None:
            return {"node": self.node.name, **self.slurm}
        return {
            "namespace": self.namespace,
            "name": self.name,
            "uid": self.uid,
            "node": self.node.name,
            "container": self.container,
        }

    def printed(self, text: str, by: int | None = None) -> str:
        """A line of a rank, else of its first, as it is printed: mpirun's --tag-output and Ray's driver say whose it is."""
        if self.speaker is None:
            return text
        said = _RANK.search(text)
        rank = by if by is not None else int(said[1]) if said else self.rank
        if self.speaker.container == "head":
            return f"(TrainWorker pid={self.pid(rank)}, ip={self.address}) {text}"
        return f"[1,{rank}]<stderr>:{text}"

    @property
    def container(self) -> str:
        """The name of its container."""
        name: str = self.thing["spec"]["containers"][0]["name"]
        return name

    @property
    def ranks(self) -> range:
        """Its global ranks."""
        return range(self.rank, self.rank + GPUS)

    def pid(self, rank: int) -> int:
        """The host's process id of a rank."""
        return 20_000 + self.node.number % 40 * 100 + rank % GPUS * 7


@dataclass(slots=True)
class Job:
    """A training job and the pods of its current start."""

    kind: str
    namespace: str
    name: str
    layout: Layout
    release: str
    timeout: timedelta
    logs_init: bool
    desync: bool
    """Whether TORCH_NCCL_DESYNC_DEBUG is set."""
    dumps: bool
    """Whether the flight recorder's dumps are collected."""
    attempt: int = 0
    pods: list[Pod] = field(default_factory=list)
    launcher: Pod | None = None
    since: datetime | None = None
    step: int = 0
    busy_until: datetime | None = None
    finished: bool = False
    number: str = ""
    """Slurm's number of it."""
    stopped_at: datetime | None = None
    """When its pods ended last."""

    @property
    def ref(self) -> dict[str, str]:
        """As `truth.jsonl` names it; Slurm's jobs go by their number, and by their name as well."""
        if self.kind == SLURM:
            return {"kind": SLURM, "namespace": "", "name": self.number, "title": self.name}
        return {"kind": self.kind, "namespace": self.namespace, "name": self.name}

    @property
    def nodes(self) -> list[Node]:
        """The nodes it runs on."""
        return [pod.node for pod in self.pods]

    def pod_of(self, rank: int) -> Pod:
        """The pod of a rank."""
        return self.pods[rank // GPUS]
