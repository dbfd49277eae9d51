"""Index of a cluster's topology: nodes with their ports, leafs, parts and names, cables with their ends, pods with jobs.

It is rebuilt from the rows at start; the writers of rows keep it up to date.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable
from datetime import datetime
from functools import lru_cache

from streams.correlate.state.allocations import nodes_of
from streams.correlate.state.host_names import HostNames
from streams.correlate.state.parts import PartIndex
from streams.correlate.state.placement import Placements
from streams.correlate.state.pod_jobs import PodJobs, job_ref
from streams.correlate.state.renamed_hosts import ReportedNames
from streams.correlate.state.rows import JobRow, NodeRow
from streams.correlate.state.store import State
from streams.correlate.state.switch_names import SwitchNames
from streams.inventory.parts import shared_parts
from streams.model.entity import JobRef, Part
from streams.model.facts import LinkFact, NodeFact
from streams.model.hostnames import short

MAX_UNLISTED = 5000
"""Of each kind. Log text can name any number of them."""


class Unlisted:
    """Names of such places by their kind: `node`, `pod` or `port`."""

    def __init__(self, state: State) -> None:
        self.names: dict[str, set[str]] = {
            "node": {n for n, node in state.nodes.items() if node.fact is None},
            "pod": {n for n, pod in state.pods.items() if not pod.tenancies},
            "port": {n for n, port in state.ports.items() if port.link is None},
        }

    def admits(self, kind: str, name: str, known: Container[str]) -> bool:
        """Whether a signal of that place is kept: always at a known place, at a new one while there is room for it."""
        if name in known:
            return True
        if len(self.names[kind]) >= MAX_UNLISTED:
            return False
        self.names[kind].add(name)
        return True


class Topology:
    """Looks up neighbours in fabric and parts. Ports are named `switch/port`, everything else by its own name."""

    def __init__(self, state: State, placements: Placements) -> None:
        self._state = state
        self.placements = placements
        self.pod_jobs = PodJobs(state, placements)
        self.unlisted = Unlisted(state)
        self.hosts = HostNames()
        self.names = ReportedNames(self.hosts, self.is_unlisted_node)
        self.switch_names = SwitchNames()
        self.deleted = {n for n, node in state.nodes.items() if node.gone_at is not None}
        """Nodes that were deleted and are not forgotten yet."""
        self.gpu_hosts = {n for n, node in state.nodes.items() if node.gpus_at is not None}
        """Hosts with metrics of GPUs, by their short names: the cluster's nodes as long as no inventory lists any."""
        self._not_ready: set[str] = set()
        """Nodes that the inventory shows NotReady and that nobody has taken in hand."""
        self._at_leaf: dict[str, set[str]] = defaultdict(set)
        self._leafs: dict[str, set[str]] = {}
        """The same the other way round."""
        self._switches: dict[str, frozenset[str]] = {}
        """By node: a cache of `switches_of`, which every job is asked about every storm by."""
        self.parts = PartIndex()
        self._ports: dict[str, set[str]] = defaultdict(set)
        """Ports by the node at the end of their cable."""
        self._node_at: dict[str, str] = {}
        """The same the other way round; the node by the inventory's name."""
        self._by_host_name: dict[str, set[str]] = defaultdict(set)
        """Ports whose cable ends at a host of another or no known name, by what that name's meaning depends on."""
        self._facing: dict[str, set[str]] = defaultdict(set)
        """Ports by the switch port that their cable ends at."""
        self._of_switch: dict[str, set[str]] = defaultdict(set)
        """Cabled ports by their switch."""
        self._racks: dict[str, dict[str, str]] = defaultdict(dict)
        """By a host's short name: its rack, by the ports at whose cables the topology file tells it."""
        self._reported: dict[str, set[str]] = defaultdict(set)
        """Ports that signals named, by their device."""
        self._load()

    def _load(self) -> None:
        # Names first: a cable's host is entered under the node that its name means.
        for name, node in self._state.nodes.items():
            self.hosts.put(name, node)
            self.move_node(name, None, node)
        for store in (self._state.nodes, self._state.pods):
            for name in store.reporting:
                for s in (s for group in store[name].seen.values() for s in group):
                    self.names.record(s, (store.kind, name))
        for key, job in self._state.jobs.items():
            if job.was_placed:
                self.name_placed(job_ref(key))
        for name, port in self._state.ports.items():
            self.relink(name, None, port.link)
            if port.seen:
                self.add_reported(name)
        self.guess_parts({*self.placements.of_slurm(), *self.gpu_hosts})

    def guess_parts(self, nodes: Iterable[str]) -> None:
        """Enter nodes of which no object tells: under the rack that the topology file has for them, what the labels of their
        metrics say, and what their names tell.

        Names count of those of Slurm, else of those with GPUs, for all of these are known.
        """
        for node in nodes:
            row = self._state.nodes.get(node)
            if row is None or row.fact is None:
                stated = {part.kind: part for part in self.stated_parts(node)}
                known = self.placements.is_of_slurm(node) or (
                    short(node) in self.gpu_hosts and not self.has_listed
                )
                named = _named_parts(short(node)) if known or stated else ()
                self.parts.guess(node, {**{part.kind: part for part in named}, **stated}.values())

    def stated_parts(self, node: str) -> tuple[Part, ...]:
        """What a node of which no object tells shares by more than its name: by the topology file, by its metrics' labels."""
        row = self._state.nodes.get(short(node))
        shares = dict(one.split("=", 1) for one in (row.shares or ())) if row is not None else {}
        if (rack := self.rack_of(node)) is not None:
            shares["rack"] = rack
        return tuple(Part(kind, name) for kind, name in sorted(shares.items()))

    def rack_of(self, node: str) -> str | None:
        """The rack of a node that no object describes, where the topology file has one for it."""
        told = self._racks.get(short(node))
        return min(told.values()) if told else None

    def rack_at(self, node: str) -> str | None:
        """The rack of a node, by its labels, the topology file or its name."""
        return next((part.name for part in sorted(self.parts.at(node)) if part.kind == "rack"), None)

    def name_placed(self, job: JobRef) -> set[str]:
        """Record what Slurm calls the hosts of a job. Returns the keys of `hosts` whose meaning that changes."""
        row = self._state.jobs.get(job.key, JobRow())
        return {key for node in nodes_of(row) for key in self.names.placed(node, job.key)}

    def ports_of(self, node: str) -> list[str]:
        """Switch ports with this node at their end, sorted."""
        own = {port for port in self._reported.get(node, ()) if node in self.hosts_at(port)}
        return sorted(own | self._ports.get(node, set()))

    def is_cabled(self, node: str) -> bool:
        """Whether a cable is known to end at the node."""
        return bool(self._ports.get(node))

    def hosts_at(self, port: str) -> set[str]:
        """The node at the end of a switch port, if it is one; or whose own port it is, for InfiniBand's managers name both."""
        row = self._state.ports.get(port)
        if row and row.link:
            return {self._node_at[port]} if row.link.node else set()
        device = self._state.nodes.get(name := port.partition("/")[0])
        return {name} if device is not None and device.fact is not None else set()

    def cable(self, port: str) -> tuple[str, ...]:
        """The switch ports at both ends of a cable, sorted; only this one where the other end is a host or not known."""
        row = self._state.ports.get(port)
        ends = {port, *self._facing.get(port, ())}
        if row and row.link and (peer := _peer(row.link)):
            ends.add(peer)
        return tuple(sorted(ends))

    def beyond(self, port: str) -> str | None:
        """The switch at the other end of a port's cable, if it is one."""
        row = self._state.ports.get(port)
        if row and row.link and row.link.peer_switch:
            return row.link.peer_switch
        return next((end.partition("/")[0] for end in self.cable(port) if end != port), None)

    def neighbours(self, switch: str) -> int:
        """How many hosts and switches are attached to a switch, as far as cabling and labels tell."""
        found = {f"node/{name}" for name in self._at_leaf.get(switch, ())}
        for port in self._of_switch.get(switch, ()):
            link = self._state.ports[port].link
            if link and (link.node or link.peer_switch):
                found.add(f"node/{self._node_at[port]}" if link.node else f"switch/{link.peer_switch}")
        return len(found)

    def ports_at(self, switch: str) -> set[str]:
        """The ports of a switch that cables or signals name."""
        return self._of_switch.get(switch, set()) | self._reported.get(switch, set())

    def has_cabled_hosts(self, switch: str) -> bool:
        """Whether hosts are known at ports of this switch."""
        return any(port in self._node_at for port in self._of_switch.get(switch, ()))

    def hosts_of(self, switch: str) -> set[str]:
        """The hosts that are known to be attached to this switch, at whatever ports."""
        cabled = {self._node_at[port] for port in self._of_switch.get(switch, ()) if port in self._node_at}
        return cabled | self._at_leaf.get(switch, set())

    def leafs(self) -> set[str]:
        """The switches at which any host is known."""
        cabled = {port.partition("/")[0] for port in self._node_at}
        return cabled | {leaf for leaf, nodes in self._at_leaf.items() if nodes}

    def nics_at(self, node: str, switch: str) -> set[str]:
        """The NICs of a node that its cables and rails put at a switch, as far as these name any."""
        links = (self._state.ports[port].link for port in self._ports.get(node, ()))
        found = {link.nic for link in links if link is not None and link.switch == switch and link.nic}
        row = self._state.nodes.get(node)
        rails = row.fact.rails if row is not None and row.fact is not None else {}
        return found | {rail for rail, leaf in rails.items() if leaf == switch}

    def devices(self) -> set[str]:
        """The devices that any cable or signal names a port of."""
        return {*(name for name, ports in self._of_switch.items() if ports), *self._reported}

    def nodes_listed(self) -> Iterable[str]:
        """The nodes that an inventory lists, else those with GPUs, or that Slurm gave to jobs."""
        if self.has_listed:
            return (
                n for n, node in self._state.nodes.items() if node.fact is not None and n not in self.deleted
            )
        return {*self.gpu_hosts, *self.placements.of_slurm()}

    def switches_of(self, node: str) -> frozenset[str]:
        """The switches a node is attached to, by its cables and by the label of its leaf."""
        found = self._switches.get(node)
        if found is None:
            cabled = {port.partition("/")[0] for port in self._ports.get(node, ())}
            found = self._switches[node] = frozenset(self._leafs.get(node, frozenset()) | cabled)
        return found

    @property
    def _listed(self) -> int:
        return len(self._state.nodes) - len(self.unlisted.names["node"]) - len(self.deleted)

    @property
    def has_listed(self) -> bool:
        """Whether an inventory lists nodes."""
        return self._listed > 0

    def is_no_node(self, host: str) -> bool:
        """Whether a host that no object lists is known to be none of the cluster's nodes.

        Without an inventory metrics of GPUs and Slurm's jobs show the nodes.
        """
        if self.has_listed or not self.gpu_hosts:
            return self.has_listed and not self.placements.nodes_of_slurm
        return short(host) not in self.gpu_hosts and not self.placements.is_of_slurm(host)

    def is_unlisted_node(self, host: str) -> bool:
        """Whether a host without an object is a node, by the metrics of its GPUs or a job that Slurm gave it to."""
        return short(host) in self.gpu_hosts or self.placements.is_of_slurm(host)

    def nodes_known(self) -> int:
        """How many nodes there are, as far as the inventory tells; without one, those with GPUs or that Slurm gave to jobs."""
        listed = self._listed
        return max(listed, self.placements.nodes_of_slurm, 0 if listed else len(self.gpu_hosts))

    def nodes_known_at(self, at: datetime) -> int:
        """How many there were at that time."""
        hosts = 0 if self.has_listed else len(self.gpu_hosts)
        return max(self.parts.known(at), self.placements.nodes_of_slurm, hosts)

    def counts(self) -> tuple[int, int, int]:
        """How many nodes there are, how many are shown NotReady, and a version of what they share: tells cheaply of a change."""
        return self.nodes_known(), len(self._not_ready), self.parts.version

    def nodes_not_ready(self) -> set[str]:
        """Nodes that the inventory shows NotReady now, without those in maintenance, cordoned, or joining for the first time.

        What was reported of them may be forgotten: an incident that somebody closed goes with its evidence, the fact stays.
        """
        return self._not_ready - self.deleted

    def reported_ports(self, device: str) -> set[str]:
        """Ports that signals named as this device's."""
        return set(self._reported.get(device, ()))

    def ports_by_host_name(self, keys: Iterable[str]) -> list[str]:
        """Ports whose cable may end at another node, now that these keys of `hosts` mean another one; sorted."""
        return sorted({port for key in keys for port in self._by_host_name.get(key, ())})

    def move_node(self, node: str, before: NodeFact | None, row: NodeRow | None) -> set[str]:
        """Enter a node under its leafs and parts, and whether it is missed. Returns the leafs that gained or lost it."""
        after = row.fact if row is not None else None
        old, new = _leafs_of(before), _leafs_of(after)
        self._leafs[node] = new
        if not new:
            del self._leafs[node]
        self._switches.pop(node, None)
        if after is not None and _is_missed(after):
            self._not_ready.add(node)
        else:
            self._not_ready.discard(node)
        for leaf in old - new:
            self._at_leaf[leaf].discard(node)
            self.switch_names.enter(leaf, -1)
        for leaf in new - old:
            self._at_leaf[leaf].add(node)
            self.switch_names.enter(leaf)
        self.parts.put(node, row)
        return old ^ new

    def add_reported(self, port: str) -> None:
        """Enter a port that a signal named under its device."""
        self._reported[device := port.partition("/")[0]].add(port)
        self.switch_names.report(device)

    def relink(self, port: str, before: LinkFact | None, after: LinkFact | None) -> None:
        """Enter the cable at a port in place of the one before; with the same one twice, under its host's present name."""
        for link, by in ((before, -1), (after, 1)):
            for switch in (link.switch, link.peer_switch) if link is not None and not link.heard else ():
                self.switch_names.enter(switch, by)
        if before is not None:
            self._of_switch[before.switch].discard(port)
            if before.node:
                node = self._node_at.pop(port)
                self._ports[node].discard(port)
                self._switches.pop(node, None)
                for key in self.hosts.keys(before.node) & self._by_host_name.keys():
                    self._by_host_name[key].discard(port)
                self._set_rack(before.node, port, None)
            if peer := _peer(before):
                self._facing[peer].discard(port)
        if after is not None:
            self._of_switch[after.switch].add(port)
            if after.node:
                node = self.hosts.find(after.node, after.observed_at).node or after.node
                self._node_at[port] = node
                self._ports[node].add(port)
                self._switches.pop(node, None)
                if after.node not in self.hosts:
                    for key in self.hosts.keys(after.node):
                        self._by_host_name[key].add(port)
                self._set_rack(after.node, port, after.rack)
            if peer := _peer(after):
                self._facing[peer].add(port)

    def _set_rack(self, node: str, port: str, rack: str | None) -> None:
        told = self._racks[short(node)]
        if told.get(port) != rack:
            told.pop(port, None)
            if rack is not None:
                told[port] = rack
            self.guess_parts([node])
        if not told:
            del self._racks[short(node)]


def _is_missed(node: NodeFact) -> bool:
    """Whether a node is NotReady though nobody works on it: not in maintenance, closed by somebody, or new."""
    return not (node.ready or node.maintenance or node.unschedulable or node.joining)


def _leafs_of(node: NodeFact | None) -> set[str]:
    """The leafs a node is attached to: by its label, and by the rails of a topology file."""
    return {leaf for leaf in (node.leaf, *node.rails.values()) if leaf} if node else set()


def _peer(link: LinkFact) -> str | None:
    """The switch port at the other end of a cable, if it is one."""
    return f"{link.peer_switch}/{link.peer_port}" if link.peer_switch and link.peer_port else None


@lru_cache(MAX_UNLISTED)
def _named_parts(node: str) -> tuple[Part, ...]:
    return tuple(Part(*part) for part in shared_parts(node, {}).parts.items())
