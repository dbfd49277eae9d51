"""Which nodes share which part, as far as labels, the topology file and names tell."""

from __future__ import annotations

from collections import defaultdict

from streams.model.entity import Part
from streams.model.facts import NodeFact


class PartIndex:
    """The nodes of each part. `version` changes whenever any node enters or leaves one."""

    def __init__(self) -> None:
        self._of: dict[Part, set[str]] = defaultdict(set)
        self.version = 0

    def move(self, node: str, before: NodeFact | None, after: NodeFact | None) -> None:
        """Enter a node under the parts that its fact tells, and no others."""
        old = set(before.shared_parts) if before else set()
        new = set(after.shared_parts) if after else set()
        for part in old - new:
            self._of[part].discard(node)
            if not self._of[part]:
                del self._of[part]
        for part in new:
            self._of[part].add(node)
        self.version += old != new

    def size(self, part: Part) -> int:
        """How many nodes are known to share it."""
        return len(self._of.get(part, ()))
