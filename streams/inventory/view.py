"""The other side of the topic: facts in, answers out. For whoever must know what runs where now."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

from streams.model.entity import JobRef
from streams.model.facts import Fact, FactRecord, JobFact, LinkFact, NodeFact, PodFact


def cluster_of(key: str) -> str:
    """The cluster that a record key of the `inventory` topic belongs to."""
    return key.partition("/")[0]


class View:
    """One cluster as its facts tell it. Lists are in the order of names, so that readers decide alike.

    `updated_at` is the newest time given to `update`: how far this view has come.
    """

    def __init__(self) -> None:
        self._facts: dict[str, Fact] = {}
        self._by_node: defaultdict[str, set[str]] = defaultdict(set)
        self._by_job: defaultdict[str, set[str]] = defaultdict(set)
        self._nodes: dict[str, NodeFact] = {}
        self._jobs: dict[str, JobFact] = {}
        self._pod_names: dict[tuple[str, str], PodFact] = {}
        self._links: dict[tuple[str, str], LinkFact] = {}
        self.updated_at: datetime | None = None

    def update(self, key: str, fact: Fact | FactRecord | None, at: datetime) -> None:
        """Take in one record of the topic; None is a tombstone."""
        self._forget(key)
        if fact is not None:
            self._learn(key, fact.fact if isinstance(fact, FactRecord) else fact)
        self.updated_at = at if self.updated_at is None else max(self.updated_at, at)

    def node(self, name: str) -> NodeFact | None:
        """A node by its name."""
        return self._nodes.get(name)

    def nodes(self) -> tuple[NodeFact, ...]:
        """All nodes."""
        return tuple(self._nodes[name] for name in sorted(self._nodes))

    def job(self, ref: JobRef) -> JobFact | None:
        """A job by its kind, namespace and name."""
        return self._jobs.get(ref.key)

    def jobs(self) -> tuple[JobFact, ...]:
        """All jobs."""
        return tuple(self._jobs[key] for key in sorted(self._jobs))

    def pod(self, namespace: str, name: str) -> PodFact | None:
        """A pod by its namespace and name."""
        return self._pod_names.get((namespace, name))

    def job_pods(self, ref: JobRef) -> tuple[PodFact, ...]:
        """The pods of a job."""
        return self._pods(self._by_job.get(ref.key, set()))

    def pods_on(self, node: str) -> tuple[PodFact, ...]:
        """The pods placed on a node that have not ended."""
        found = self._pods(self._by_node.get(node, set()))
        return tuple(pod for pod in found if pod.phase not in ("Succeeded", "Failed"))

    def jobs_on(self, node: str) -> tuple[JobRef, ...]:
        """The jobs that have pods on a node now."""
        return tuple({pod.job.key: pod.job for pod in self.pods_on(node) if pod.job is not None}.values())

    def link(self, switch: str, port: str) -> LinkFact | None:
        """The cable in a switch port."""
        return self._links.get((switch, port))

    def links_of(self, node: str) -> tuple[LinkFact, ...]:
        """The cables of a node."""
        return tuple(self._links[at] for at in sorted(self._links) if self._links[at].node == node)

    def _pods(self, keys: set[str]) -> tuple[PodFact, ...]:
        facts = (self._facts[key] for key in sorted(keys))
        return tuple(fact for fact in facts if isinstance(fact, PodFact))

    def _learn(self, key: str, fact: Fact) -> None:
        self._facts[key] = fact
        match fact:
            case NodeFact():
                self._nodes[fact.name] = fact
            case JobFact():
                self._jobs[fact.job.key] = fact
            case LinkFact():
                self._links[fact.switch, fact.port] = fact
            case PodFact():
                self._pod_names[fact.namespace, fact.name] = fact
                if fact.node is not None:
                    self._by_node[fact.node].add(key)
                if fact.job is not None:
                    self._by_job[fact.job.key].add(key)

    def _forget(self, key: str) -> None:
        match self._facts.pop(key, None):
            case NodeFact() as node:
                del self._nodes[node.name]
            case JobFact() as job:
                del self._jobs[job.job.key]
            case LinkFact() as link:
                del self._links[link.switch, link.port]
            case PodFact() as pod:
                del self._pod_names[pod.namespace, pod.name]
                if pod.node is not None:
                    self._by_node[pod.node].discard(key)
                if pod.job is not None:
                    self._by_job[pod.job.key].discard(key)
