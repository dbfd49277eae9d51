"""Which hosts share a leaf, or a part where no leaf is known, and what else is known of them when their NICs lose packets.

On a busy fabric hundreds of hosts show it at any time. So what is asked of a host is kept until something of it changes, and
leafs are compared with each other only where enough hosts of one began together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Set
from datetime import datetime

from streams.correlate.cause_sources.nodes import HostCauses
from streams.correlate.cause_sources.source import Causes
from streams.correlate.fabric_rules.links import LinkFault
from streams.correlate.fabric_rules.lossy_rails import Spells, lost_by_rail, may_lose_rail, rail_losses
from streams.correlate.fabric_rules.lossy_switches import READ_LATE
from streams.correlate.fabric_rules.resending_hosts import (
    Around,
    FeltLoss,
    HostGroup,
    Shown,
    Spell,
    felt_losses,
    may_lose,
    shown_by,
    spells_of,
)
from streams.correlate.fabric_rules.switch_faults import LinkFaultsBySwitch
from streams.correlate.hypothesis import ERROR_COUNTERS, SOMEWHERE
from streams.correlate.node_rules.shared_parts import root_of
from streams.correlate.policy.link_parts import parts
from streams.correlate.state.incarnations import FiringInterval
from streams.correlate.state.nic_names import nic_names
from streams.correlate.state.place import Touched
from streams.correlate.state.rows import NodeRow
from streams.inventory.leaf_names import may_hang_on
from streams.model.entity import Entity, Part
from streams.model.hostnames import short
from streams.model.incident import Certainty

_BY_PLACE = ("rack", "row", "block", "room", "zone")
"""Parts whose hosts may hang on one switch, the smallest first. What shares power, cooling or a backplane need not."""
_NOWHERE = ""
"""In place of a leaf: for hosts of which none is known."""


_MAX_MOMENTS = 500
"""Of more times nothing is kept of any host: waves come all day."""


class FeltGroups:
    """Compares hosts by their leafs, and those of which no leaf is known by where they stand."""

    def __init__(self, causes: Causes, links: LinkFaultsBySwitch, hosts: HostCauses) -> None:
        self._cluster, self._config, self._state = causes.cluster, causes.config, causes.state
        self._topology, self._placements = causes.topology, causes.topology.placements
        self._links, self._hosts = links, hosts
        self._shown: dict[str, Shown] = {}
        self._at_leaf: dict[str, dict[str, tuple[Spell, ...]]] = defaultdict(dict)
        """By leaf and host: what its NICs show that may be attached there."""
        self._leafs_of: dict[str, frozenset[str]] = {}
        """Under which leafs a host is entered there."""
        self._rails_of: dict[str, Spells] = {}
        """By host of which no leaf is known: when packets of which NIC were lost."""
        self._rails: dict[str, set[str]] = defaultdict(set)
        """By the name of a NIC: those of these hosts on which packets of it were lost."""
        self._near_rails: dict[str, bool] = {}
        """By the name of a NIC: whether it is worth a comparison; absent where something of it has changed."""
        self._near: dict[str, bool] = {}
        """By leaf: whether it is worth a comparison; absent where something of it has changed."""
        self._jobs: dict[str, dict[datetime, frozenset[str]]] = defaultdict(dict)
        self._busy: dict[str, dict[datetime, bool]] = defaultdict(dict)
        self._moments: set[datetime] = set()
        """The times that these were asked for."""

    def update(self, touched: Touched) -> bool:
        """Take in what has changed of hosts. Returns whether anything of it may matter to `losses`."""
        hosts = set(touched.nodes)
        for name in touched.ports:
            hosts |= self._topology.hosts_at(name)
        if self._shown:
            for job in touched.placed:
                hosts.update(p.node for p in self._placements.placements_of(job))
        changed = False
        for host in hosts:
            row = self._state.nodes.get(host, NodeRow())
            shown = shown_by(row.seen)
            if not shown and not self._shown:
                continue  # as long as nobody shows anything, nothing is kept
            before = self._shown.pop(host, ())
            if shown:
                self._shown[host] = shown
            changed = True
            self._jobs.pop(host, None)
            self._busy.pop(host, None)
            leafs = self._topology.switches_of(host) or frozenset({_NOWHERE})
            for leaf in leafs | self._leafs_of.get(host, frozenset()):
                self._near.pop(leaf, None)
            if before or shown:
                self._enter(host, leafs, shown)
                self._enter_rails(host, lost_by_rail(shown) if leafs == {_NOWHERE} else {})
        if not self._shown:
            self._forget()
        return changed

    @property
    def showing(self) -> Collection[str]:
        """The hosts whose NICs show that packets are lost, time out or congest."""
        return self._shown.keys()

    def _forget(self) -> None:
        for kept in (self._near, self._near_rails, self._jobs, self._busy, self._moments):
            kept.clear()

    def _enter(self, host: str, leafs: frozenset[str], shown: Shown) -> None:
        for leaf in self._leafs_of.pop(host, frozenset()):
            self._at_leaf[leaf].pop(host, None)
            if not self._at_leaf[leaf]:
                del self._at_leaf[leaf]
        at: dict[str, list[FiringInterval]] = defaultdict(list)
        for nic, interval in shown:
            for leaf in self._may_be_at(host, nic, leafs, interval.start):
                at[leaf].append(interval)
        for leaf, mine in at.items():
            self._at_leaf[leaf][host] = spells_of(mine)
        if at:
            self._leafs_of[host] = frozenset(at)

    def _enter_rails(self, host: str, lost: Spells) -> None:
        for nic in self._rails_of.pop(host, {}).keys() - lost.keys():
            self._rails[nic].discard(host)
            self._near_rails.pop(nic, None)
            if not self._rails[nic]:
                del self._rails[nic]
        for nic in lost:
            self._rails[nic].add(host)
            self._near_rails.pop(nic, None)
        if lost:
            self._rails_of[host] = lost

    def _may_be_at(self, host: str, nic: str, leafs: Set[str], at: datetime) -> Iterable[str]:
        """The leafs of a host to which a NIC of it may be attached: one, where cables or rails tell."""
        if len(leafs) < 2 or not nic:
            return leafs
        names = nic_names(self._state.nodes.get(host, NodeRow()).nics)
        relations = {}
        for leaf in leafs:
            there = self._topology.nics_at(host, leaf)
            relations[leaf] = names.relation(there, (nic,), at) if there else "open"
        same = [leaf for leaf, relation in relations.items() if relation == "same"]
        return same or [leaf for leaf, relation in relations.items() if relation == "open"]

    def losses(self) -> dict[str, tuple[FeltLoss, ...]]:
        """What hosts show of lost packets: by the switch, or at `SOMEWHERE` where only a part is known that they share."""
        if len(self._moments) > _MAX_MOMENTS:
            self._forget()
        around = self._around()
        for leaf, showing in self._at_leaf.items():
            if leaf not in self._near:
                self._near[leaf] = len(showing) > 1 and (
                    leaf == _NOWHERE or may_lose(self._leaf(leaf), around)
                )
        near = {leaf for leaf, is_near in self._near.items() if is_near}
        found: dict[str, list[FeltLoss]] = defaultdict(list)
        losses: list[FeltLoss] = []
        if which := {Entity(self._cluster, switch=leaf).key for leaf in near - {_NOWHERE}}:
            groups = [self._leaf(leaf) for leaf in sorted(self._topology.leafs())]
            losses += felt_losses(groups, around, self._config, which)
        if _NOWHERE in near:
            losses += self._of_parts(around) or self._of_rails(around)
        for loss in losses:
            found[loss.root.switch or SOMEWHERE].append(loss)
        return {name: tuple(mine) for name, mine in found.items()}

    def _leaf(self, leaf: str) -> HostGroup:
        hosts = frozenset(self._topology.hosts_of(leaf))
        return HostGroup(Entity(self._cluster, switch=leaf), hosts, self._at_leaf.get(leaf, {}))

    def _of_parts(self, around: Around) -> list[FeltLoss]:
        """By the smallest kind of part of which just one explains all of it that began at a time."""
        members: dict[Part, set[str]] = defaultdict(set)
        for host in self._topology.nodes_listed():
            if not self._topology.switches_of(host):
                for part in self._topology.parts.at(host):
                    members[part].add(host)
        for kind in _BY_PLACE:
            groups = [self._part(part, hosts) for part, hosts in sorted(members.items()) if part.kind == kind]
            which = {g.root.key for g in groups if len(g.spells) > 1 and may_lose(g, around)}
            losses = felt_losses(groups, around, self._config, which) if which else []
            if losses and len({loss.root.key for loss in losses}) == 1:
                return losses
        return []

    def _of_rails(self, around: Around) -> list[FeltLoss]:
        """By the rail, where no part explains it: NICs of one name, and no others, on the nodes of jobs."""
        for nic, hosts in self._rails.items():
            if nic not in self._near_rails:
                starts = (s.start for host in hosts for s in self._rails_of[host][nic])
                self._near_rails[nic] = may_lose_rail(starts)
        near = sorted(nic for nic, is_near in self._near_rails.items() if is_near)
        found = [
            loss
            for nic in near
            for loss in rail_losses(self._cluster, nic, self._rails_of, self._nodes_of, around, self._config)
        ]
        return found if len({loss.root.key for loss in found}) == 1 else []

    def _nodes_of(self, job: str, at: datetime) -> frozenset[str]:
        return frozenset(p.node for p in self._placements.of_job(job, at, at))

    def _part(self, part: Part, hosts: Set[str]) -> HostGroup:
        spells = self._at_leaf.get(_NOWHERE, {})
        mine = {host: spells[host] for host in sorted(hosts & spells.keys())}
        root = root_of(self._cluster, part)
        leafs = self._named_after(part, mine) if part.kind == "rack" and len(mine) > 1 else {}
        if len(leafs) != 1:
            return HostGroup(root, frozenset(hosts), mine)
        leaf = next(iter(leafs.values()))
        guess = f"That rack {part.name} hangs on {leaf} is a guess from its name"
        return HostGroup(Entity(self._cluster, switch=leaf), frozenset(hosts), mine, guess)

    def _named_after(self, rack: Part, hosts: Iterable[str]) -> Mapping[str, str]:
        """The switches whose names tell that these hosts of a rack hang on them, by their short names."""
        return {
            short(name): name
            for name in sorted(self._topology.devices(), key=lambda name: (-len(name), name))
            if all(may_hang_on(name, host, rack.name) for host in hosts)
        }

    def _around(self) -> Around:
        ill: dict[datetime, frozenset[str]] = {}

        def ill_at(at: datetime) -> frozenset[str]:
            if at not in ill:
                ill[at] = frozenset(self._ill(at))
            return ill[at]

        return Around(self._is_busy, self._jobs_at, ill_at)

    def _jobs_at(self, host: str, at: datetime) -> frozenset[str]:
        known = self._jobs[host]
        if at not in known:
            known[at] = frozenset(p.job.key for p in self._placements.on_node(host, at, at))
        return known[at]

    def _is_busy(self, host: str, at: datetime) -> bool:
        self._moments.add(at)
        known = self._busy[host]
        if at not in known:
            row = self._state.nodes.get(host)
            known[at] = (
                row is None
                or row.fact is None
                or bool(self._jobs_at(host, at))
                or self._placements.stood_beside(host, at, at)
            )
        return known[at]

    def _ill(self, at: datetime) -> Iterable[str]:
        """Hosts of which something else is known about that time that makes their peers send again."""
        since, until = at - READ_LATE, at + READ_LATE
        for host, fault in self._links.all_of_hosts():
            if _is_own(fault, since, until):
                yield host
        for h in self._hosts.all():
            if (
                h.root.node is not None
                and h.certainty is not Certainty.WEAK
                and h.facts.get("link") != ERROR_COUNTERS
                and since <= h.fault_at <= until
            ):
                yield h.root.node
        for storm in self._hosts.storms.values():
            lasts = storm.cleared_at is None or storm.cleared_at >= since
            if storm.root.node is not None and storm.fault_at <= until and lasts:
                yield storm.root.node


def _is_own(fault: LinkFault, since: datetime, until: datetime) -> bool:
    """Whether the cable of a host, or its NIC, is known to have been in trouble in that time."""
    return any(
        m.start <= until and (m.end is None or m.end >= since) and not parts().is_of_way(m.sighting)
        for m in fault.events
    )
