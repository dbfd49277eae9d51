"""What a batch of signals and facts changed, and so has to be re-evaluated."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from streams.correlate.state.place import Cause, Place, PlaceKind, SharedGroup


@dataclass(slots=True)
class Touched:
    """Places to re-evaluate, by kind and name."""

    nodes: set[str] = field(default_factory=set)
    jobs: set[str] = field(default_factory=set)
    ports: set[str] = field(default_factory=set)
    switches: set[str] = field(default_factory=set)
    shared: set[SharedGroup] = field(default_factory=set)
    causes: set[Cause] = field(default_factory=set)
    """Causes whose symptoms changed, or of which runs reported."""
    mentioned: set[str] = field(default_factory=set)
    """Jobs whose placement or progress changed, which their incidents tell of."""
    pressing: set[str] = field(default_factory=set)
    """Of the jobs, those that may take over what an incident was opened for."""
    moves: set[tuple[str, datetime]] = field(default_factory=set)
    """Jobs that reported progress, and when they made it."""
    placed: set[str] = field(default_factory=set)
    """Jobs whose pods or whose end the inventory reported again."""

    def __ior__(self, other: Touched) -> Touched:
        for name in self.__slots__:
            getattr(self, name).update(getattr(other, name))
        return self

    def add(self, place: Place) -> None:
        """Touch a place."""
        if place.kind is PlaceKind.SHARED:
            self.shared.add(SharedGroup.parse(place.name))
        else:
            self._by_kind()[place.kind].add(place.name)

    def places(self) -> set[Place]:
        """All touched places."""
        named = {Place(kind, name) for kind, names in self._by_kind().items() for name in names}
        return named | {group.place for group in self.shared}

    def _by_kind(self) -> dict[PlaceKind, set[str]]:
        kinds = (PlaceKind.NODE, PlaceKind.JOB, PlaceKind.PORT, PlaceKind.SWITCH)
        return dict(zip(kinds, (self.nodes, self.jobs, self.ports, self.switches), strict=True))
