"""What every fault shares: picking a place, and writing down the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sandbox.simulation.timeline import Stage
from sandbox.simulation.topology import Node
from sandbox.simulation.truth import Fault, TrueRoot
from sandbox.simulation.workload import Job

Kind = Callable[[Stage, datetime], bool]
"""Plays a fault at a time; False when there is no calm place for it."""

AFTER = timedelta(minutes=6)
"""For so long after its end a fault may still show."""


@dataclass(frozen=True, slots=True)
class FaultPlace:
    """A GPU of a node, and the job with a rank on it, if any."""

    node: Node
    gpu: int
    job: Job | None

    @property
    def rank(self) -> int:
        """The global rank on the GPU."""
        assert self.job is not None, "an idle GPU has no rank"
        return self.job.nodes.index(self.node) * 8 + self.gpu

    @property
    def root(self) -> TrueRoot:
        """As the truth names it."""
        return gpu_root(self.node, self.gpu)


def gpu_root(node: Node, gpu: int) -> TrueRoot:
    """The root of a fault of one GPU."""
    return TrueRoot(node=node.name, gpu={"pci": node.gpu_pci(gpu), "uuid": node.gpu_uuid(gpu), "index": gpu})


def some_gpu(stage: Stage, at: datetime, *, idle_share: float = 0.1) -> FaultPlace | None:
    """A GPU of a calm job, now and then of an idle node."""
    idle = stage.idle_nodes(at)
    if idle and stage.rng.random() < idle_share:
        return FaultPlace(stage.rng.choice(idle), stage.rng.randrange(8), None)
    job = stage.calm_job(at)
    return FaultPlace(stage.rng.choice(job.nodes), stage.rng.randrange(8), job) if job else None


def write_down(
    stage: Stage,
    kind: str,
    at: datetime,
    until: datetime,
    family: str,
    root: TrueRoot,
    *,
    jobs: Iterable[Job] = (),
    nodes: Iterable[Node] = (),
    may_cordon: Iterable[Node] = (),
    accepted: tuple[str, ...] = (),
    roots: tuple[TrueRoot, ...] = (),
    note: str = "",
) -> None:
    """Note the truth about a fault, and keep its nodes for it until it is over."""
    suffering, hit = list(jobs), {node.name: node for node in nodes}
    fault = Fault(
        id=f"fault-{len(stage.truth.faults) + 1:04d}",
        kind=kind,
        at=at,
        until=until + AFTER,
        family=family,
        root=root,
        accepted=accepted,
        roots=roots,
        jobs=tuple(job.ref for job in suffering),
        nodes=tuple(sorted(hit)),
        may_cordon=tuple(sorted(node.name for node in may_cordon)),
        note=note,
    )
    stage.truth.faults.append(fault)
    stage.occupy(until + AFTER, hit.values())
    for job in suffering:
        stage.occupy(until + AFTER, job=job)
