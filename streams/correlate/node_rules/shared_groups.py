"""What several nodes share, put together group by group: a rack, an NVLink domain, a file system.

Every node brings what it has to say into the groups it is part of; a group is looked at anew only when that changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from streams.correlate.hypothesis import Hypothesis

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SharedFault:
    """A root, and what became part of it: ids of hypotheses on nodes, each with its node."""

    hypothesis: Hypothesis
    parts: Mapping[str, str] = field(default_factory=dict)


class Shares(Generic[T]):
    """What each node says in each group."""

    def __init__(self) -> None:
        self._of_group: dict[str, dict[str, T]] = defaultdict(dict)
        self._of_node: dict[str, Mapping[str, T]] = {}

    def put(self, node: str, said: Mapping[str, T]) -> set[str]:
        """Replace what one node says. Returns the groups in which something changed."""
        before = self._of_node.pop(node, {})
        touched = {group for group in before.keys() | said.keys() if before.get(group) != said.get(group)}
        for group in touched:
            if group in said:
                self._of_group[group][node] = said[group]
                continue
            del self._of_group[group][node]
            if not self._of_group[group]:
                del self._of_group[group]
        if said:
            self._of_node[node] = said
        return touched

    def groups(self) -> list[str]:
        """Groups in which anything is said."""
        return sorted(self._of_group)

    def of(self, group: str) -> list[tuple[str, T]]:
        """Nodes and what they say in a group, by name."""
        return sorted(self._of_group.get(group, {}).items(), key=lambda pair: pair[0])
