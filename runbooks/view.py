"""What the guardrails and the planner see of a cluster: the latest inventory facts, by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from streams.model.inventory import Fact, JobFact, NodeFact, PodFact

Place = Literal["pool", "rack", "leaf"]
"""A place that several nodes share."""


@dataclass(slots=True)
class ClusterView:
    """Facts of one cluster. The shell feeds it; pure parts only read."""

    cluster: str
    nodes: dict[str, NodeFact] = field(default_factory=dict)
    pods: dict[str, PodFact] = field(default_factory=dict)
    jobs: dict[str, JobFact] = field(default_factory=dict)
    version: int = 0
    """Rises with every change of a node: what was counted over all nodes holds as long as it stands still."""
    _groups: dict[str, tuple[int, dict[str | None, list[NodeFact]]]] = field(default_factory=dict)

    def put(self, fact: Fact) -> None:
        """Take in a fact; kinds that nobody here asks for are left out."""
        match fact:
            case NodeFact():
                self.nodes[fact.name] = fact
                self.version += 1
            case PodFact():
                self.pods[fact.key] = fact
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
                self.pods.pop(key, None)
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

    def jobs_on(self, node: str) -> set[str]:
        """Keys of the jobs with a pod on the node that has not ended."""
        return {
            pod.job.key
            for pod in self.pods.values()
            if pod.node == node and pod.job is not None and pod.ended_at is None
        }
