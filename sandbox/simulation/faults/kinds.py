"""What every fault shares: picking a place, and recording the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sandbox.simulation.simulation import Simulation
from sandbox.simulation.topology import GPUS, Node
from sandbox.simulation.truth import Fault, TrueRoot
from sandbox.simulation.workload import Job

Kind = Callable[[Simulation, datetime], bool]
"""Plays a fault at a time; False when there is no free place for it."""

AFTER = timedelta(minutes=6)
"""Symptoms of a fault may show for so long after its end."""

JUST_BEFORE = timedelta(minutes=1)
"""A job that cannot start again was stopped by its owner this long before, at most."""


@dataclass(frozen=True, slots=True)
class FaultPlace:
    """A GPU of a node (or the NIC of the same number), and the job with a rank on it, if any."""

    node: Node
    gpu: int
    job: Job | None

    @property
    def ranks(self) -> range:
        """The global ranks on the node."""
        assert self.job is not None, "an idle GPU has no rank"
        first = self.job.nodes.index(self.node) * GPUS
        return range(first, first + GPUS)

    @property
    def rank(self) -> int:
        """The global rank on the GPU."""
        return self.ranks[self.gpu]

    def gpu_root(self) -> TrueRoot:
        """The GPU as the root of a fault."""
        node, gpu = self.node, self.gpu
        return TrueRoot(
            node=node.name, gpu={"pci": node.gpu_pci(gpu), "uuid": node.gpu_uuid(gpu), "index": gpu}
        )

    def nic_root(self) -> TrueRoot:
        """The NIC as the root of a fault."""
        return TrueRoot(node=self.node.name, nic=self.node.nic(self.gpu))

    def node_root(self) -> TrueRoot:
        """The node as the root of a fault."""
        return TrueRoot(node=self.node.name)


def some_gpu(sim: Simulation, at: datetime, *, idle_share: float = 0.1) -> FaultPlace | None:
    """A GPU of a free job, now and then of an idle node."""
    idle = sim.idle_nodes(at)
    if idle and sim.rng.random() < idle_share:
        return FaultPlace(sim.rng.choice(idle), sim.rng.randrange(GPUS), None)
    job = sim.free_job(at)
    return FaultPlace(sim.rng.choice(job.nodes), sim.rng.randrange(GPUS), job) if job else None


def all_free(sim: Simulation, at: datetime, nodes: Iterable[Node], jobs: Iterable[Job]) -> bool:
    """Whether all of these nodes and jobs are free."""
    free = sim.free_jobs(at)
    return all(sim.is_free(node, at) for node in nodes) and all(job in free for job in jobs)


def on_busy_gpu(
    kind: str,
    family: str,
    play: Callable[[Simulation, FaultPlace, Job, datetime], datetime],
    *,
    root: Callable[[FaultPlace], TrueRoot] = FaultPlace.node_root,
    accepted: tuple[str, ...] = (),
    cabled: bool = False,
) -> Kind:
    """A fault of a node under a job; `play` returns when it is over. `cabled`: of nodes in the topology file only."""

    def inject(sim: Simulation, at: datetime) -> bool:
        place = some_gpu(sim, at, idle_share=0)
        if place is None or place.job is None or (cabled and place.node.name not in sim.cabled):
            return False
        nodes = place.job.nodes  # the job may run elsewhere when the fault is over
        until = play(sim, place, place.job, at)
        record_truth(
            sim, kind, at, until, family, root(place),
            jobs=[place.job], nodes=nodes, may_cordon=[place.node], accepted=accepted,
        )  # fmt: skip
        return True

    return inject


def record_truth(
    sim: Simulation,
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
    """Record the truth about a fault, and reserve its nodes and jobs until it is over."""
    victims, hit = list(jobs), {node.name: node for node in nodes}
    fault = Fault(
        id=f"fault-{len(sim.truth.faults) + 1:04d}",
        kind=kind,
        at=at,
        until=until + AFTER,
        family=family,
        root=root,
        accepted=accepted,
        roots=roots,
        jobs=tuple(job.ref for job in victims),
        nodes=tuple(sorted(hit)),
        stopped=tuple(job.ref for job in victims if job.stopped_at and job.stopped_at >= at - JUST_BEFORE),
        may_cordon=tuple(sorted(node.name for node in may_cordon)),
        note=note,
    )
    sim.truth.faults.append(fault)
    sim.reserve(until + AFTER, hit.values())
    for job in victims:
        sim.reserve(until + AFTER, job=job)
