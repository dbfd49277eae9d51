"""Evidence of nodes by the groups they are part of, so that only a group whose evidence changed is re-evaluated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.state.place import SharedGroup

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SharedFault:
    """A root, and what became part of it: ids of hypotheses on nodes, each with its node."""

    hypothesis: Hypothesis
    parts: Mapping[str, str] = field(default_factory=dict)
    counted: frozenset[str] = frozenset()
    """The nodes it is counted from, where more are than have a part in it: some stayed away when the others came back."""
    left: Mapping[str, datetime] = field(default_factory=dict)
    """Hypotheses that outlast it, each with the moment from which on it stands for itself."""


class GroupIndex(Generic[T]):
    """The evidence of each node in each group."""

    def __init__(self) -> None:
        self._of_group: dict[SharedGroup, dict[str, T]] = defaultdict(dict)
        self._of_node: dict[str, Mapping[SharedGroup, T]] = {}

    def __contains__(self, group: SharedGroup) -> bool:
        return group in self._of_group

    def put(self, node: str, evidence: Mapping[SharedGroup, T]) -> set[SharedGroup]:
        """Replace the evidence of one node. Returns the groups in which something changed."""
        before = self._of_node.pop(node, {})
        if not before and not evidence:
            return set()  # as of nearly every node
        touched = {
            group for group in before.keys() | evidence.keys() if before.get(group) != evidence.get(group)
        }
        for group in touched:
            if group in evidence:
                self._of_group[group][node] = evidence[group]
                continue
            del self._of_group[group][node]
            if not self._of_group[group]:
                del self._of_group[group]
        if evidence:
            self._of_node[node] = evidence
        return touched

    def groups(self) -> list[SharedGroup]:
        """Groups with any evidence, sorted."""
        return sorted(self._of_group)

    def of(self, group: SharedGroup) -> list[tuple[str, T]]:
        """Nodes with their evidence in a group, by name."""
        return sorted(self._of_group.get(group, {}).items(), key=lambda pair: pair[0])
