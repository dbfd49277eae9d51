"""Which nodes share which part, as far as labels, the topology file and names tell."""

from __future__ import annotations

from collections import defaultdict

from streams.model.entity import Part
from streams.model.facts import NodeFact
from streams.model.hostnames import folded


class PartIndex:
    """The nodes of each part. `version` changes whenever any node enters or leaves one."""

    def __init__(self) -> None:
        self._of: dict[Part, set[str]] = defaultdict(set)
        self._at: dict[str, frozenset[Part]] = {}
        self._named: dict[str, set[Part]] = defaultdict(set)
        self.version = 0
        self.renamed: set[str] = set()
        """Names that have begun or ceased to mean a part; whoever reads it, empties it."""

    def move(self, node: str, before: NodeFact | None, after: NodeFact | None) -> None:
        """Enter a node under the parts that its fact tells, and no others."""
        old = set(before.shared_parts) if before else set()
        new = set(after.shared_parts) if after else set()
        for part in old - new:
            self._of[part].discard(node)
            if not self._of[part]:
                del self._of[part]
                self._named[folded(part.name)].discard(part)
                self.renamed.add(folded(part.name))
        for part in new:
            if not self._of[part]:
                self._named[folded(part.name)].add(part)
                self.renamed.add(folded(part.name))
            self._of[part].add(node)
        self.version += old != new
        self._at[node] = frozenset(new)
        if not new:
            del self._at[node]

    def named(self, name: str) -> Part | None:
        """The part with this name, as a device may call itself (a PDU, a coolant unit); None if several have it."""
        short = folded(name)
        found = self._named.get(short) or self._named.get(short.partition(".")[0]) or set()
        return next(iter(found)) if len(found) == 1 else None

    def at(self, node: str) -> frozenset[Part]:
        """What a node shares with others."""
        return self._at.get(node, frozenset())

    def size(self, part: Part) -> int:
        """How many nodes are known to share it."""
        return len(self._of.get(part, ()))
