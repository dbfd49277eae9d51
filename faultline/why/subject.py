"""What is asked about: a node or a job, by any of its names, and which signals are about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from streams.inventory.cluster_view import ClusterView
from streams.model.counted import many
from streams.model.entity import Entity, JobRef
from streams.model.errors import BadInput
from streams.model.facts import JobFact, NodeFact, PodFact
from streams.model.hostnames import short
from streams.model.signal import Signal
from streams.model.similar import suggestion


@dataclass(frozen=True, slots=True)
class Subject:
    """A node or a job. `fact` is None for one that the inventory does not know and that only signals name."""

    kind: Literal["node", "job"]
    name: str
    fact: NodeFact | JobFact | None = None
    job: JobRef | None = None
    names: frozenset[str] = frozenset()
    """For a node: every name of it, folded to lower case."""
    pods: Mapping[str, str] = field(default_factory=dict)
    """For a job: its pods, each with its node."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    def is_meant_by(self, entity: Entity) -> bool:
        """Whether a place is this node or on it, or a part of this job."""
        if self.kind == "node":
            return entity.node is not None and not self.names.isdisjoint(_names(entity.node))
        if entity.job is not None:
            return self.job is not None and entity.job.key == self.job.key
        return entity.pod is not None and entity.pod.key in self.pods


def subject_of(name: str, view: ClusterView, pods: Iterable[PodFact], signals: Iterable[Signal]) -> Subject:
    """The node or job of this name: of the inventory, else one that signals speak of.

    Args:
        name: A node's name, short or long; a job as NAME, NAMESPACE/NAME or KIND/NAMESPACE/NAME.
        view: The inventory.
        pods: Every pod that was seen, also of jobs that are over.
        signals: All signals.

    Raises:
        BadInput: when nobody knows it, with what may have been meant; or when several jobs have the name.
    """
    wanted = _names(name)
    for fact in view.nodes.values():
        every = frozenset().union(*(_names(one) for one in (fact.name, *fact.aliases)))
        if not wanted.isdisjoint(every):
            return Subject("node", fact.name, fact, names=every)
    known = {fact.job.key: fact.job for fact in view.jobs.values()}
    seen = [*pods]
    known |= {pod.job.key: pod.job for pod in seen if pod.job is not None and pod.job.key not in known}
    jobs = [job for key, job in known.items() if name in (key, str(job), job.name)]
    if len(jobs) > 1:
        raise BadInput(f"{len(jobs)} jobs are called {name}: {', '.join(sorted(job.key for job in jobs))}")
    if jobs:
        (job,) = jobs
        mine = {
            pod.key.split("/", 2)[2]: pod.node or ""
            for pod in seen
            if pod.job is not None and pod.job.key == job.key
        }
        return Subject("job", str(job), view.jobs.get(job.key), job, pods=mine)
    told = {signal.entity.node for signal in signals if signal.entity.node is not None}
    for node in sorted(told):
        if not wanted.isdisjoint(_names(node)):
            return Subject("node", node, names=_names(node))
    every_name = [*view.nodes, *map(str, known.values()), *told]
    raise BadInput(
        f"no node or job is called {name}, of {many(len(view.nodes), 'node')} and {many(len(known), 'job')}"
        f"{suggestion(name, every_name)}"
    )


def _names(name: str) -> frozenset[str]:
    """A host's name as it is, and without its domain."""
    return frozenset({name.lower(), short(name).lower()})
