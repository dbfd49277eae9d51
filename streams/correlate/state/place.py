"""The places that are evaluated as one, and what stands for a cause until its incident is known."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class PlaceKind(StrEnum):
    """What a place is."""

    NODE = "node"
    JOB = "job"
    PORT = "port"
    SWITCH = "switch"
    SHARED = "shared"
    """What several nodes have in common: a rack, an NVLink domain, storage, the cluster itself."""


class Place(NamedTuple):
    """A place that is evaluated as one: its kind, and its name or key. A switch that is unknown has an empty name."""

    kind: PlaceKind
    name: str

    @classmethod
    def parse(cls, scope: str) -> Place:
        """The place as it is stored with an incident, `KIND/NAME`."""
        kind, _, name = scope.partition("/")
        return cls(PlaceKind(kind), name)

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


class GroupKind(StrEnum):
    """What the nodes of a group share."""

    RACK = "rack"
    NVLINK = "nvlink"
    STORAGE = "storage"
    """All storage: any node may mount any of it."""
    NODES = "nodes"
    """The cluster itself: nodes that are NotReady together."""


class SharedGroup(NamedTuple):
    """Nodes that share something. Storage and the cluster are one group each, without a name."""

    kind: GroupKind
    name: str = ""

    @classmethod
    def parse(cls, name: str) -> SharedGroup:
        """The group behind the name of its place."""
        kind, _, rest = name.partition("/")
        return cls(GroupKind(kind), rest)

    @property
    def place(self) -> Place:
        """Where its faults are kept."""
        return Place(PlaceKind.SHARED, f"{self.kind}/{self.name}" if self.name else str(self.kind))


STORAGE, NODES = SharedGroup(GroupKind.STORAGE), SharedGroup(GroupKind.NODES)


@dataclass(frozen=True, slots=True)
class Suspect:
    """A place that jobs suspect. Which incident that is shows when all that they say of it is put together."""

    place: Place


Cause = str | Suspect
"""Why a job suffers: the id of an incident, or a place that its ranks suspect."""
