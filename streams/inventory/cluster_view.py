"""What the guardrails and the planner see of a cluster: the latest inventory facts, by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from streams.model.facts import Fact, JobFact, NodeFact, PodFact, taint_key

Place = Literal["pool", "rack", "leaf"]
"""A place that several nodes share."""


@dataclass(frozen=True, slots=True)
class GpuNodes:
    """Nodes with GPUs of one pool: how many there are, and the names of those that are ready and cordoned by nobody."""

    count: int
    open: frozenset[str]


@dataclass(slots=True)
class ClusterView:
    """Facts of one cluster. The shell feeds it, by `put` and `forget` alone; pure parts only read."""

    cluster: str
    nodes: dict[str, NodeFact] = field(default_factory=dict)
    pods: dict[str, PodFact] = field(default_factory=dict)
    jobs: dict[str, JobFact] = field(default_factory=dict)
    version: int = 0
    """Rises with every change of a node: what was counted over all nodes holds as long as it stands still."""
    _groups: dict[str, tuple[int, dict[str | None, list[NodeFact]]]] = field(default_factory=dict)
    _tainted: dict[str, tuple[int, tuple[NodeFact, ...]]] = field(default_factory=dict)
    _gpu_nodes: tuple[int, Mapping[str | None, GpuNodes]] | None = None
    _by_node: defaultdict[str, dict[str, PodFact]] = field(default_factory=lambda: defaultdict(dict))
    _by_job: defaultdict[str, dict[str, PodFact]] = field(default_factory=lambda: defaultdict(dict))

    def put(self, fact: Fact) -> None:
        """Take in a fact; kinds that nobody here asks for are left out."""
        match fact:
            case NodeFact():
                self.nodes[fact.name] = fact
                self.version += 1
            case PodFact():
                self._take_out(fact.key)
                self.pods[fact.key] = fact
                if fact.node is not None:
                    self._by_node[fact.node][fact.key] = fact
                if fact.job is not None:
                    self._by_job[fact.job.key][fact.key] = fact
            case JobFact():
                self.jobs[fact.job.key] = fact

    def forget(self, key: str) -> None:
        """Take out what a tombstone with this record key says is gone."""
        _, kind, name = key.split("/", 2)
        match kind:
            case "node":
                self.nodes.pop(name, None)
                self.version += 1
            case "pod":
                self._take_out(key)
            case "job":
                self.jobs.pop(name, None)

    def nodes_by(self, place: Place) -> dict[str | None, list[NodeFact]]:
        """All nodes, by their pool, rack or leaf; under None those of which it is not known."""
        known = self._groups.get(place)
        if known is None or known[0] != self.version:
            groups: dict[str | None, list[NodeFact]] = {}
            for fact in self.nodes.values():
                groups.setdefault(getattr(fact, place), []).append(fact)
            known = self._groups[place] = (self.version, groups)
        return known[1]

    def gpu_nodes(self) -> Mapping[str | None, GpuNodes]:
        """Nodes with GPUs, by pool; under None those of which the pool is not known."""
        if self._gpu_nodes is None or self._gpu_nodes[0] != self.version:
            found = {
                pool: GpuNodes(
                    sum(fact.gpus > 0 for fact in facts),
                    frozenset(f.name for f in facts if f.gpus > 0 and f.ready and not f.unschedulable),
                )
                for pool, facts in self.nodes_by("pool").items()
            }
            self._gpu_nodes = (self.version, found)
        return self._gpu_nodes[1]

    def tainted(self, key: str) -> tuple[NodeFact, ...]:
        """The nodes that bear a taint of this key."""
        known = self._tainted.get(key)
        if known is None or known[0] != self.version:
            found = tuple(
                fact for fact in self.nodes.values() if any(taint_key(taint) == key for taint in fact.taints)
            )
            known = self._tainted[key] = (self.version, found)
        return known[1]

    def pods_on(self, node: str) -> Iterator[PodFact]:
        """Pods on the node that have not ended."""
        return (pod for pod in self._by_node.get(node, {}).values() if pod.ended_at is None)

    def pods_of(self, job: str) -> Iterator[PodFact]:
        """Pods of the job with this key that have not ended."""
        return (pod for pod in self._by_job.get(job, {}).values() if pod.ended_at is None)

    def jobs_on(self, node: str) -> set[str]:
        """Keys of the training jobs with a pod on the node that has not ended."""
        return {pod.job.key for pod in self.pods_on(node) if pod.job is not None and pod.trains}

    def nodes_of(self, job: str) -> set[str]:
        """Names of the nodes with a pod of the job that has not ended."""
        return {pod.node for pod in self.pods_of(job) if pod.node is not None}

    def _take_out(self, pod: str) -> None:
        known = self.pods.pop(pod, None)
        if known is None:
            return
        for index, name in (
            (self._by_node, known.node),
            (self._by_job, known.job.key if known.job is not None else None),
        ):
            if name is not None:
                del index[name][pod]
                if not index[name]:
                    del index[name]
