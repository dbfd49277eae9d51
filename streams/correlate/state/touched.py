"""What a batch of signals and facts changed, and so has to be judged anew."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(slots=True)
class Touched:
    """Places to judge anew, by kind and name. `causes` are incidents whose symptoms changed."""

    nodes: set[str] = field(default_factory=set)
    jobs: set[str] = field(default_factory=set)
    ports: set[str] = field(default_factory=set)
    switches: set[str] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)
    causes: set[str] = field(default_factory=set)
    pressing: set[str] = field(default_factory=set)
    """Of the jobs, those that may take over what an incident was opened for."""
    moves: list[tuple[str, datetime]] = field(default_factory=list)
    """Jobs that reported progress, and when they made it."""
    placed: set[str] = field(default_factory=set)
    """Jobs whose pods or whose end the inventory reported anew."""

    def __ior__(self, other: Touched) -> Touched:
        self.nodes |= other.nodes
        self.jobs |= other.jobs
        self.ports |= other.ports
        self.switches |= other.switches
        self.shared |= other.shared
        self.causes |= other.causes
        self.pressing |= other.pressing
        self.moves += other.moves
        self.placed |= other.placed
        return self

    def scope(self, scope: str) -> None:
        """Touch a place by its scope."""
        kind, _, name = scope.partition("/")
        places = {"node": self.nodes, "job": self.jobs, "port": self.ports, "switch": self.switches}
        places.get(kind, self.shared).add(name)
