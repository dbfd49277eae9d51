"""What storages are called: targets, servers, file systems, clusters. One has several names, and lines give some of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from streams.correlate.policy.families import storage_kind, storage_system
from streams.correlate.sightings import Sighting, latest_end
from streams.correlate.state.incarnations import FiringInterval, storage_root
from streams.ingest.metrics.labels import without_port
from streams.model.hostnames import is_address, short

ONE_A_SITE = frozenset({"ceph", "beegfs"})
"""Systems whose clients' lines name parts of it, and not the whole: what they lose at one time is of one."""


@dataclass(frozen=True, slots=True)
class Outage:
    """From a target being lost on one node until it was back there. `system` is the file system or server it is part of."""

    system: str
    target: str
    interval: FiringInterval
    lasts: timedelta
    firm: bool = True
    """Whether it says that the storage is not reached; else only that something is wrong with it."""
    replicated: bool = False
    """Whether others answer in the place of this target."""

    @property
    def first(self) -> Sighting:
        """The line that reported it first."""
        return self.interval.sightings[0]

    @property
    def is_brief(self) -> bool:
        """Whether it was over before it counted for the node by itself."""
        return self.interval.end is not None and self.interval.end - self.interval.start < self.lasts

    @property
    def kind(self) -> str:
        """Of which system it is; "" where an alert does not tell."""
        kind = storage_kind(self.first)
        return "" if kind == "remote_filesystem" else kind

    @property
    def is_named(self) -> bool:
        """Whether its lines say more of it than of which kind it is."""
        return self.system not in (self.kind, "remote_filesystem")

    def meets(self, other: Outage, within: timedelta) -> bool:
        """Whether both were so at one time, give or take `within`."""
        mine, others = self.interval, other.interval
        return mine.start - within <= (
            others.end or max(others.last, mine.start)
        ) and others.start - within <= (mine.end or max(mine.last, others.start))


def system_of(s: Sighting) -> str:
    """The file system, the cluster or the server that a line is about; its kind where it names none."""
    kind = storage_kind(s)
    if s.text("subtype") in ONE_A_SITE:
        return kind
    named = s.text("storage_cluster") or s.text("filesystem") or storage_system(s)
    return storage_root(named) if named else kind


def target_of(s: Sighting) -> str:
    """The part of it that a line names."""
    return storage_system(s) or storage_kind(s)


def hosts_in(s: Sighting) -> set[str]:
    """What a line calls the hosts that serve a storage: short names and addresses."""
    named = (s.text(name) for name in ("server", "peer", "target"))
    return {_host(word) for text in named for word in text.split() if word}


def _host(name: str) -> str:
    """A host's short name, or its address, from `beegfs-meta@10.0.8.12`, `10.0.8.12@o2ib` or `filer-3.example:2049`."""
    before, _, after = name.partition("@")
    host = after if after and is_address(without_port(after)) else before
    host = without_port(host)
    return host if is_address(host) else short(host)


def one_name(lost: Sequence[Outage], told: Sequence[Outage], within: timedelta) -> Mapping[str, str]:
    """By each name of a storage the one under which it is an incident.

    Names are of one storage where a line or an alert gives both. So are, within minutes, what only tells its kind and the one
    storage of that kind that has a name; and what clients lose and what monitoring reports, of one kind and under names that
    cannot be compared (an address and a host's name), where there is just one of each.

    Args:
        lost: What clients do not reach. Their names go before those that monitoring has.
        told: What monitoring says.
        within: How far apart they may be.
    """
    groups = _Groups()
    for o in (*lost, *told):
        for token in _tokens(o):
            groups.join(o.system, token)
    by_clients, by_monitoring = _called(lost), _called(told)
    every = [*by_clients, *by_monitoring]
    for one in every:
        alike = {groups.of(c.system) for c in every if c.is_named and c.may_be(one, within)}
        if not one.is_named and len(alike) == 1:
            groups.join(one.system, alike.pop())
    clients = {groups.of(c.system) for c in by_clients}
    apart = [c for c in by_monitoring if groups.of(c.system) not in clients]
    for one in apart:
        alike = {groups.of(c.system) for c in by_clients if c.sort != one.sort and c.may_be(one, within)}
        rivals = {groups.of(c.system) for c in apart if c.kind == one.kind}
        if len(alike) == 1 and len(rivals) == 1:
            groups.join(one.system, alike.pop())
    systems: dict[str, set[str]] = defaultdict(set)
    for c in every:
        systems[groups.of(c.system)].add(c.system)
    named = {c.system for c in every if c.is_named}
    first = {c.system for c in by_clients}
    chosen = {
        group: min(names, key=lambda n: (n not in named, n not in first, is_address(n), n))
        for group, names in systems.items()
    }
    return {name: chosen[group] for group, names in systems.items() for name in names}


@dataclass(frozen=True, slots=True)
class _Called:
    """All outages under one name and of one kind."""

    system: str
    kind: str
    sort: str
    """What sort of name it is: two of one sort are of two storages."""
    start: datetime
    until: datetime | None

    @property
    def is_named(self) -> bool:
        """Whether the name is more than the kind."""
        return self.sort != "kind"

    def may_be(self, other: _Called, within: timedelta) -> bool:
        """Whether it may be the same storage, which was lost at the same time."""
        kinds = self.kind == other.kind or not (self.kind and other.kind)
        return (
            kinds
            and (other.until is None or self.start - within <= other.until)
            and (self.until is None or other.start - within <= self.until)
        )


def _called(outages: Iterable[Outage]) -> list[_Called]:
    by_name: dict[tuple[str, str], list[Outage]] = defaultdict(list)
    for o in outages:
        by_name[o.system, o.kind].append(o)
    return [
        _Called(
            system,
            kind,
            _sort(found[0]),
            min(o.interval.start for o in found),
            latest_end(o.interval.end for o in found),
        )
        for (system, kind), found in sorted(by_name.items())
    ]


class _Groups:
    """Names that are of one storage."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def of(self, name: str) -> str:
        """The name that stands for all of them."""
        while (parent := self._parent.get(name, name)) != name:
            name = parent
        return name

    def join(self, one: str, other: str) -> None:
        """Note that two names are of one storage."""
        first, second = sorted((self.of(one), self.of(other)))
        self._parent[second] = first


def _tokens(o: Outage) -> set[str]:
    """All names of an outage that tell it from other storages of its kind. A kind's own cluster is no other kind's."""
    found = set[str]()
    for s in o.interval.sightings:
        found |= {storage_root(s.text("filesystem"))} if s.text("filesystem") else set()
        found |= {f"{o.kind} cluster {s.text('storage_cluster')}"} if s.text("storage_cluster") else set()
        found |= {f"server {_host(s.text('server'))}"} if s.text("server") else set()
    return found


def _sort(o: Outage) -> str:
    if not o.is_named:
        return "kind"
    first = o.first
    if o.system == first.text("storage_cluster"):
        return "cluster"
    if o.system == first.text("filesystem") or storage_root(o.target) != o.target:
        return "file system"
    return "address" if is_address(_host(o.system)) else "host"
