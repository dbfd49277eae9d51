"""Places that are evaluated as one, places that jobs suspect, and the set of places to re-evaluate."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from streams.model.entity import COOLING as OF_COOLING
from streams.model.entity import OUTPUT as JOB_OUTPUT


class PlaceKind(StrEnum):
    """What a place is."""

    NODE = "node"
    JOB = "job"
    PORT = "port"
    SWITCH = "switch"
    SHARED = "shared"
    """What several nodes have in common: a rack, an NVLink domain, storage, the cluster itself."""
    SERVICE = "service"
    """What several jobs need to start or to go on: a registry, a webhook, the resolver of names, space in a storage."""
    POD = "pod"
    """A pod of no training job, or an object that could make none: only what incidents of other places are built from."""


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


def of_whole(switch: str) -> str:
    """The name under which it is kept, beside a switch's ports, what is said of all of it: a port without a name."""
    return f"{switch}/"


_PARTITION = "pkey "
_PARTITION_ROWS = 128
"""Each keeps 256 members that left or joined (`MAX_GROUPS`): room for 2,000 hosts with eight ports, out and in again."""


def of_partition(pkey: str) -> str:
    """The name under which it is kept, beside ports of switches, what a subnet's manager says of a partition; with "" of all."""
    return of_whole(f"{_PARTITION}{pkey}")


@lru_cache(256)
def rows_of_partition(pkey: str) -> tuple[str, ...]:
    """The names of the rows that hold its members, in the order in which they are filled; `of_partition` is the first."""
    return (of_partition(pkey), *(of_partition(f"{pkey} {number}") for number in range(1, _PARTITION_ROWS)))


def partition_at(port: str) -> str | None:
    """The partition that is kept under this name of a port; "" for all of them, None for a port."""
    if not port.startswith(_PARTITION):
        return None
    return port.removeprefix(_PARTITION).removesuffix("/").partition(" ")[0]


_STORAGE = "storage/"


def of_storage(name: str) -> str:
    """The name under which it is kept, beside the hosts, what is said of a storage itself by nobody who mounts it."""
    return f"{_STORAGE}{name}"


def is_of_storage(name: str) -> bool:
    """Whether what is kept under this name of a host is said of a storage itself."""
    return name.startswith(_STORAGE)


class GroupKind(StrEnum):
    """What the nodes of a group share; every other kind is a part's (`inventory/parts.yaml`)."""

    NVLINK = "nvlink"
    STORAGE = "storage"
    """All storage: any node may mount any of it."""
    SOFTWARE = "gpu-software"
    """A version of GPU software, or how it is broken."""
    RUNTIME = "container-runtime"
    """What gives containers their devices, and takes them away."""
    STARTS = "job-starts"
    """A step of the workload manager before or after each job."""
    IMEX = "imex"
    """A node whose service for memory that is shared over NVLink others do not reach."""
    OUTPUT = JOB_OUTPUT
    """What the pods of one namespace print."""
    INPUTS = "power-inputs"
    """The cluster's power: hosts that lose an input together, of which no part is known that they share."""
    COOLING = OF_COOLING
    """The cluster's cooling: nodes that grow hot together, of which no part is known that they share."""
    NODES = "nodes"
    """The cluster itself: nodes that are NotReady together."""


class SharedGroup(NamedTuple):
    """Nodes that share something. Storage, power and the cluster are one group each, without a name."""

    kind: str
    name: str = ""

    @classmethod
    def parse(cls, name: str) -> SharedGroup:
        """The group behind the name of its place."""
        kind, _, rest = name.partition("/")
        return cls(kind, rest)

    @property
    def place(self) -> Place:
        """Where its faults are kept."""
        return Place(PlaceKind.SHARED, f"{self.kind}/{self.name}" if self.name else str(self.kind))


STORAGE, NODES = SharedGroup(GroupKind.STORAGE), SharedGroup(GroupKind.NODES)
INPUTS, COOLING = SharedGroup(GroupKind.INPUTS), SharedGroup(GroupKind.COOLING)
RESOLVER = "resolver"
"""The service that resolves names for the cluster, and the kind of its part."""
ADDRESS_POOL = "address-pool"
"""The pool that gives pods their addresses, and the kind of its part."""
PODS = "pods"
"""What that pool is called while no line names it."""
SERVERS = "servers"
"""Fact of a storage's fault: the hosts whose own faults are why it is gone."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A place that jobs suspect. Which incident that is shows when all that they say of it is put together."""

    place: Place


Cause = str | Suspect
"""Why a job suffers: the id of an incident, or a place that its ranks suspect."""


@dataclass(slots=True)
class Touched:
    """Places to re-evaluate, by kind and name."""

    nodes: set[str] = field(default_factory=set)
    jobs: set[str] = field(default_factory=set)
    ports: set[str] = field(default_factory=set)
    switches: set[str] = field(default_factory=set)
    services: set[str] = field(default_factory=set)
    shared: set[SharedGroup] = field(default_factory=set)
    causes: set[Cause] = field(default_factory=set)
    """Causes whose symptoms changed, or of which runs reported."""
    mentioned: set[str] = field(default_factory=set)
    """Jobs whose placement or progress changed, which their incidents show."""
    pressing: set[str] = field(default_factory=set)
    """Of the jobs, those that may take over what an incident was opened for."""
    moves: set[tuple[str, datetime]] = field(default_factory=set)
    """Jobs that reported progress, and when they made it."""
    pods: set[str] = field(default_factory=set)
    """Pods, and objects that could make none, of no training job (or of none until now) of which failures are kept or were."""
    populated: set[str] = field(default_factory=set)
    """Namespaces in which the inventory reported a pod for the first time."""
    placed: set[str] = field(default_factory=set)
    """Jobs whose pods or whose end the inventory reported again."""

    def __ior__(self, other: Touched) -> Touched:
        for name in self.__slots__:
            if added := getattr(other, name):  # most are empty: this runs for every fact
                getattr(self, name).update(added)
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
        kinds = (PlaceKind.NODE, PlaceKind.JOB, PlaceKind.PORT, PlaceKind.SWITCH, PlaceKind.SERVICE)
        names = (self.nodes, self.jobs, self.ports, self.switches, self.services)
        return dict(zip(kinds, names, strict=True))
