"""The names of a node's NICs over time: learned from what names two at once, a line or a set of labels.

Names change when a node boots. Where a name is given to another NIC later on, a new epoch begins: nothing holds in it that was
last reported before, for other names may have changed as well. Within an epoch what joins two addresses, or two RDMA devices,
means neither (a device of several NICs, a name that was reused at once). All of it depends on times only, never on the order of
arrival.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import permutations
from sys import intern
from typing import Literal

from streams.correlate.sightings import Sighting
from streams.correlate.state.rows import Naming
from streams.model.kinds import SignalKind
from streams.model.nics import nic_name, nic_name_kind

MAX_NAMINGS = 64
"""Of a node: nine NICs named in three ways each, and those of the boot before."""
_OTHERS = ("netdev", "rdma_device")
_BOOT = timedelta(minutes=5)
"""Drivers and udev name a node's NICs within this."""
_NODES_CACHED = 4096

Relation = Literal["same", "different", "open"]


def host_names(s: Sighting) -> tuple[str, ...]:
    """Every name that a sighting gives one NIC on its host, sorted; none of a device of several NICs."""
    if s.entity.switch is not None:
        return ()
    function = s.number("pci_function")
    reported = (
        s.entity.nic or "",
        f"{s.text('pci')}.{function}" if function else s.text("pci"),
        *map(s.text, _OTHERS),
    )
    names = {nic_name(name) for name in reported if name}
    if any(nic_name_kind(name) == "bond" for name in names) or (s.number("ib_port") or 1) > 1:
        return ()  # of two ports that share one device each is a NIC
    return tuple(sorted(map(intern, names)))  # of thousands of hosts most have the same


def naming(s: Sighting) -> tuple[Naming, ...]:
    """What a sighting joins; nothing where it has just one name."""
    names = host_names(s)
    return (Naming(names, s.at, s.at),) if len(names) > 1 else ()


def merged(*namings: Naming) -> tuple[Naming, ...]:
    """All of them, of one set of names the first and the last time; the latest `MAX_NAMINGS`."""
    by_names: dict[tuple[str, ...], Naming] = {}
    for n in namings:
        old = by_names.get(n.names, n)
        by_names[n.names] = Naming(n.names, min(old.first, n.first), max(old.last, n.last))
    return tuple(sorted(by_names.values(), key=lambda n: (n.last, n.names))[-MAX_NAMINGS:])


@dataclass(frozen=True, slots=True)
class NicNames:
    """Which names mean the same NIC of one node, and when."""

    starts: tuple[datetime, ...] = ()
    """When each epoch but the first began."""
    epochs: tuple[Mapping[str, frozenset[str]], ...] = ({},)

    def of(self, name: str, at: datetime) -> frozenset[str]:
        """All names of the NIC with this name at that time, this one too."""
        name = nic_name(name)
        return self.epochs[bisect_right(self.starts, at)].get(name, frozenset((name,)))

    def keys(self, names: Iterable[str], at: datetime) -> list[str]:
        """All names of the NICs with these names, each different from the same name in another epoch."""
        epoch = bisect_right(self.starts, at)
        mark = f" since {self.starts[epoch - 1]}" if epoch else ""
        return sorted({f"{other}{mark}" for name in names for other in self.of(name, at)})

    def relation(self, one: Iterable[str], other: Iterable[str], at: datetime) -> Relation:
        """Whether two sets of names mean the same NIC: `open` where nothing tells, as of names of different kinds."""
        ours, theirs = (frozenset().union(*(self.of(n, at) for n in names)) for names in (one, other))
        if not ours.isdisjoint(theirs):
            return "same"
        kinds = [{nic_name_kind(name) for name in names} - {"bond"} for names in (ours, theirs)]
        return "open" if kinds[0].isdisjoint(kinds[1]) else "different"

    def named(self, s: Sighting) -> Sighting:
        """What is seen of a PCI device, with the name of the NIC that it is; as it is where no name is known for its address."""
        if s.kind != SignalKind.NODE_PCIE or s.entity.gpu is not None or s.entity.nic is not None:
            return s
        of_kind = {nic_name_kind(n): n for name in host_names(s) for n in sorted(self.of(name, s.at))}
        nic = of_kind.get("rdma") or of_kind.get("interface")
        return replace(s, entity=replace(s.entity, nic=nic)) if nic else s


NO_NAMES = NicNames()
"""Of a node of which nothing joined two names."""


@lru_cache(_NODES_CACHED)
def nic_names(known: tuple[Naming, ...] | None) -> NicNames:
    """What a node's row holds, ready to be asked."""
    if not known:
        return NO_NAMES
    starts = sorted(
        {
            max(old.last + timedelta(microseconds=1), new.first - _BOOT)
            for old, new in permutations(known, 2)
            if old.last < new.first and _contradict(old, new)
        }
    )
    bounds = [(None, *starts), (*starts, None)]
    return NicNames(
        tuple(starts),
        tuple(
            _joined(n.names for n in known if _within(n, since, until))
            for since, until in zip(*bounds, strict=True)
        ),
    )


def _contradict(one: Naming, other: Naming) -> bool:
    """Whether a name that both give a NIC stands beside different addresses or RDMA devices: it went to another NIC.

    Different interfaces are other names of the same one: an alternative name, one that udev has changed.
    """
    ours, theirs = set(one.names) - set(other.names), set(other.names) - set(one.names)
    kinds = set(map(nic_name_kind, ours)) & set(map(nic_name_kind, theirs))
    return len(ours) < len(one.names) and not kinds.isdisjoint(("address", "rdma"))


def _within(n: Naming, since: datetime | None, until: datetime | None) -> bool:
    return (since is None or n.last >= since) and (until is None or n.first < until)


def _joined(sets: Iterable[tuple[str, ...]]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for names in sets:
        whole = frozenset(names).union(*(found.get(name, ()) for name in names))
        found |= dict.fromkeys(whole, whole)
    return {name: whole for name, whole in found.items() if not _of_several(whole)}


def _of_several(names: Iterable[str]) -> bool:
    kinds = [nic_name_kind(name) for name in names]
    return kinds.count("address") > 1 or kinds.count("rdma") > 1
