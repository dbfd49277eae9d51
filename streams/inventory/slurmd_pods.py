"""Slurm on Kubernetes: its nodes are pods, so what Slurm calls a node is another name of the node that the pod stands on.

Whatever operator or chart made them: `streams/model/slurmd_pod.py` tells which pods run slurmd, and how each registers.
A name that is a node's own means that node, and one that pods on two nodes bear at once (two Slurms) means neither
(`streams/correlate/state/host_names.py`).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from streams.inventory.objects import Identity
from streams.model.facts import NodeFact
from streams.model.hostnames import folded
from streams.model.kube_objects import KubeObject, part, text
from streams.model.slurmd_pod import is_slurmd, names_in_slurm

_OVER = ("Succeeded", "Failed")


class SlurmdPods:
    """The pods of slurmd, and the nodes with what they are called there."""

    def __init__(self) -> None:
        self._at: dict[Identity, tuple[str, frozenset[str]]] = {}
        """By pod: its node, and its names."""
        self._on: defaultdict[str, set[Identity]] = defaultdict(set)
        self._bare: dict[str, NodeFact] = {}
        """Nodes as their objects describe them, by name."""

    def named(self, node: NodeFact) -> NodeFact:
        """A node as its object describes it, with what Slurm calls it."""
        self._bare[node.name] = node
        own = {folded(node.name), *node.aliases, *node.addresses}
        called = {name for pod in self._on.get(node.name, ()) for name in self._at[pod][1]} - own
        return replace(node, aliases=tuple(sorted({*node.aliases, *called}))) if called else node

    def forget(self, node: str) -> None:
        """The node is gone."""
        self._bare.pop(node, None)

    def learn(self, who: Identity, pod: KubeObject | None) -> list[NodeFact]:
        """Learn a pod, or with None that it is gone. Returns the nodes that are called otherwise now."""
        before, after = self._at.get(who), _place_of(pod)
        if before == after:
            return []
        if before is not None:
            self._on[before[0]].discard(who)
            if not self._on[before[0]]:
                del self._on[before[0]]
        if after is None:
            self._at.pop(who, None)
        else:
            self._at[who] = after
            self._on[after[0]].add(who)
        nodes = sorted({place[0] for place in (before, after) if place is not None})
        return [self.named(self._bare[node]) for node in nodes if node in self._bare]


def _place_of(pod: KubeObject | None) -> tuple[str, frozenset[str]] | None:
    """On which node a slurmd stands, and what Slurm calls it; None for any other pod, and one that has ended."""
    node = text(part(pod, "spec"), "nodeName") if pod is not None else None
    if pod is None or node is None or part(pod, "status").get("phase") in _OVER or not is_slurmd(pod):
        return None
    return node, names_in_slurm(pod)
