"""Where failing connections meet: NCCL's network errors as votes for one NIC, one node, one leaf, or none.

Each error names a connection by its two ends, and neither end is to be believed alone. Several failing connections that share
just one node suspect that node, by the device they use there its NIC; that share no node but a leaf, the leaf (Aegis, NSDI
2025, section 4: distributed errors that concentrate on one host isolate it, those that do not are looked for in the fabric).
A process that ended before the others is named by them and names nobody: it died first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from errno import ECONNREFUSED
from functools import cache, partial
from pathlib import Path
from typing import Literal

from streams.config.yaml_tables import Strict, load_table
from streams.correlate.job_rules.rank_reports import Episode, RankReport
from streams.correlate.sightings import Sighting
from streams.model.hostnames import folded
from streams.model.kinds import SignalKind

Says = Literal["edge", "peer", "local", "gone", "absent", "none"]
Level = Literal["nic", "node", "leaf", "process", "none"]


FAILING_CONNECTIONS = "failing connections"
"""The rule of a node at which several failing connections meet."""
ONE_PAIR, NO_COMMON_END = "one failing pair", "no common end"
"""The rules of those that meet nowhere."""


@dataclass(frozen=True, slots=True)
class Edge:
    """One failing connection as one end reports it. `device` is the NIC at the reporter's end, if it says so."""

    node: str
    peer: str | None
    device: str | None
    says: Says
    at: datetime


@dataclass(frozen=True, slots=True)
class Vote:
    """Where the failing connections of one hang meet.

    `level` says how precisely: a `nic` and a `node` have `node` set, a `leaf` only `leaf`; `process` is the node whose
    process ended before those of all others. `suspects` are nodes that remain when no one can be named, `pairs` how many
    different pairs of nodes failed.
    """

    level: Level = "none"
    node: str | None = None
    nic: str | None = None
    leaf: str | None = None
    rule: str = ""
    why: str = ""
    suspects: tuple[str, ...] = ()
    pairs: int = 0
    ends: frozenset[tuple[str, str]] = frozenset()
    """All pairs of nodes whose connection failed on the network."""
    strangers: frozenset[tuple[str, str]] = frozenset()
    """The same where nobody knows whose the other end's name or address is: the node that reports it, and that name."""

    def crosses(self, under: Collection[str]) -> bool:
        """Whether all pairs are of one of these nodes and another one."""
        return all((one in under) is not (other in under) for one, other in self.ends)

    def parts(self, under: Collection[str]) -> bool:
        """Whether several of these nodes fail with several others, as far as anybody knows, and none with its own side.

        Names of nobody known tell it, too: what one side names are the nodes of the other, so both never name the same.
        """
        here = {pair for pair in self.strangers if pair[0] in under}
        there = self.strangers - here
        if not {name for _, name in here}.isdisjoint(name for _, name in there):
            return False
        nodes = {node for pair in self.ends for node in pair}
        near = nodes & set(under)
        if len(self.ends) >= _table().least_leaf_pairs and len(near) > 1 and len(nodes - near) > 1:
            return True
        return all(len({pair[i] for pair in side}) > 1 for side in (here, there) for i in (0, 1))


@dataclass(frozen=True, slots=True)
class Addresses:
    """What the names and addresses in errors stand for, and under which leaf each node hangs."""

    nodes: Mapping[str, str] = field(default_factory=dict)
    leafs: Mapping[str, str] = field(default_factory=dict)

    def node(self, peer: str) -> str | None:
        """The node of a peer: by address, pod or host name, with its domain or without. Names here are folded."""
        peer = folded(peer)
        return self.nodes.get(peer) or self.nodes.get(peer.partition(".")[0])

    def with_those_of(self, reports: Iterable[RankReport]) -> Addresses:
        """With the addresses that reports name as their own, where the inventory knows none, as of Slurm's nodes."""
        own: dict[str, set[str]] = defaultdict(set)
        for one in reports:
            if one.node is not None and (address := one.sighting.text("address")):
                own[folded(address)].add(one.node)
        learned = {address: min(nodes) for address, nodes in own.items() if len(nodes) == 1}
        return replace(self, nodes=learned | dict(self.nodes))


_OTHER_STATUS = ("ofi",)
"""Transports whose status is no ibv_wc_status."""
NO_ADDRESSES = Addresses()


class _Row(Strict):
    subtype: str
    reason: str = ""
    says: Says
    connects: bool = False


class VoteTable(Strict):
    """`connection_votes.yaml`."""

    status: Mapping[Says, frozenset[int]]
    rows: tuple[_Row, ...]
    of_network: frozenset[str]
    wave_s: float
    least_pairs: int
    least_leaf_pairs: int


_table = cache(partial(load_table, Path(__file__).with_name("connection_votes.yaml"), VoteTable))
"""The table that ships."""


def says(s: Sighting) -> Says:
    """What one error says of its connection."""
    status = s.number("status")
    if status is not None and s.text("subtype") not in _OTHER_STATUS:
        return next((said for said, codes in _table().status.items() if status in codes), "none")
    row = _row(s)
    return row.says if row is not None else "none"


def _row(s: Sighting) -> _Row | None:
    reason, subtype = s.text("reason"), s.text("subtype")
    return next((row for row in _table().rows if row.subtype == subtype and row.reason in reason), None)


def only_deaths(reports: Iterable[RankReport]) -> bool:
    """Whether ranks report no more than that others have ended, or never came: nobody timed out waiting in a collective, and no
    path or device failed.
    """
    return all(
        one.sighting.kind == SignalKind.NCCL_ERROR and says(one.sighting) in ("gone", "absent", "none")
        for one in reports
    )


def speaks_of_network(reports: Iterable[RankReport]) -> bool:
    """Whether any rank reports that a NIC, a transport or the path to a peer fails, and not just that a process has ended."""
    return any(
        one.sighting.kind == SignalKind.NCCL_ERROR
        and (
            one.sighting.text("subtype") in _table().of_network
            or says(one.sighting) in ("edge", "peer", "local")
        )
        for one in reports
    )


def waited_to_join(s: Sighting) -> bool:
    """Whether a rank says that it waited at its start for others, or for the one at which all meet, in vain."""
    return s.kind == SignalKind.NCCL_ERROR and says(s) == "absent"


def is_one_try(s: Sighting) -> bool:
    """Whether a program says that one try to reach the one at which all meet failed: it tries again until it gives up."""
    return s.text("subtype") == "store" and s.text("reason") == "client socket has failed to connect"


def could_not_connect(s: Sighting) -> bool:
    """Whether a program says that it could not connect to another one over TCP, and does not say that it was refused."""
    row = _row(s) if s.kind == SignalKind.NCCL_ERROR else None
    return row is not None and row.connects and not was_refused(s) and bool(s.text("peer"))


def was_refused(s: Sighting) -> bool:
    """Whether the host at the other end answered that nobody listens there."""
    return s.number("errno") == ECONNREFUSED or "refused" in s.text("reason")


def may_be_cut(pairs: Iterable[tuple[Hashable, Hashable]]) -> bool:
    """Whether the nodes can be parted in two sides between which alone connections fail, as a bad cable would part them."""
    beside: dict[Hashable, set[Hashable]] = defaultdict(set)
    for one, other in pairs:
        beside[one].add(other)
        beside[other].add(one)
    near: dict[Hashable, bool] = {}
    for first in beside:
        near.setdefault(first, True)
        reached = [first]
        while reached:
            node = reached.pop()
            for other in beside[node] - near.keys():
                near[other] = not near[node]
                reached.append(other)
    return all(near[one] is not near[other] for one, others in beside.items() for other in others)


def edges(reports: Iterable[RankReport], addresses: Addresses) -> list[Edge]:
    """The failing connections in errors, with their ends found in the inventory; earliest first."""
    found = []
    for one in reports:
        s = one.sighting
        if s.kind != SignalKind.NCCL_ERROR or one.node is None or (said := says(s)) in ("absent", "none"):
            continue
        peer = addresses.node(s.text("peer")) if s.text("peer") else None
        device = s.text("device").partition(":")[0] or None
        if said == "local" or (peer is not None and peer != one.node):
            found.append(Edge(one.node, peer, device, said, s.at))
    return sorted(found, key=lambda e: (e.at, e.node, e.peer or "", e.device or ""))


def vote(episode: Episode, addresses: Addresses) -> Vote:
    """Count the votes of one hang: those of its first events, then all, for who fails first makes others fail."""
    found = edges(episode.reports, addresses)
    network = [e for e in found if e.says != "gone"]
    ends = frozenset((min(e.node, e.peer), max(e.node, e.peer)) for e in network if e.peer)
    named = ((one.node, one.sighting) for one in episode.reports if one.node is not None)
    strangers = frozenset(
        (node, folded(peer))
        for node, s in named
        if s.kind == SignalKind.NCCL_ERROR and says(s) in ("edge", "peer")
        if (peer := s.text("peer")) and addresses.node(peer) is None
    )
    return replace(_counted(found, network, addresses), ends=ends, strangers=strangers)


def _counted(found: Sequence[Edge], network: Sequence[Edge], addresses: Addresses) -> Vote:
    if not found:
        return Vote()
    wave = timedelta(seconds=_table().wave_s)
    verdict = Vote()
    if network:
        early = [e for e in network if e.at <= network[0].at + wave]
        verdict = _meeting(early, addresses)
        if verdict.level == "none" and len(early) < len(network):
            late = _meeting(network, addresses)
            verdict = late if late.level != "none" or not verdict.suspects else verdict
    if verdict.level == "none":
        return verdict if network else _died_first(found)
    return _ended_before(verdict.node, network[0].at, found) or verdict


def _ended_before(node: str | None, first: datetime, found: Sequence[Edge]) -> Vote | None:
    """The process of a suspected node that was gone before anything failed on the network, and itself reports nothing.

    What is sent to a process that ended is never acknowledged. A device that fails closes nothing: the process behind it
    ends of that only later, and finds its own sends unanswered before it does.
    """
    before = [e for e in found if e.says == "gone" and e.at < first]
    if not before or any(e.node == node for e in found):
        return None
    gone = _died_first(before)
    return gone if gone.level == "process" and gone.node == node else None


def _meeting(found: Sequence[Edge], addresses: Addresses) -> Vote:
    local = {(e.node, e.device) for e in found if e.says == "local" and e.device}
    pairs = sorted({(min(e.node, e.peer), max(e.node, e.peer)) for e in found if e.peer})
    if len({node for node, _ in local}) == 1 and all(_names(pair, local) for pair in pairs):
        node = next(node for node, _ in local)
        devices = sorted(device for _, device in local if device)
        nic = devices[0] if len(devices) == 1 else None
        why = f"{node} reports its own {' and '.join(devices[:4])} as failed"
        return Vote("nic" if nic else "node", node, nic, None, "own device", why, (node,), len(pairs))
    if not pairs:
        return Vote(suspects=tuple(sorted({node for node, _ in local})[:16]))
    centers = set(pairs[0]).intersection(*pairs[1:])
    if len(pairs) >= _table().least_pairs and len(centers) == 1:
        return _center(centers.pop(), found, len(pairs))
    if len(pairs) == 1:
        why = (
            f"only the connection between {pairs[0][0]} and {pairs[0][1]} fails: either end may be the cause"
        )
        return Vote(rule=ONE_PAIR, why=why, suspects=pairs[0], pairs=1)
    return _leaf(pairs, addresses)


def _names(pair: tuple[str, str], local: set[tuple[str, str]]) -> bool:
    return any(node in pair for node, _ in local)


def _center(node: str, found: Sequence[Edge], pairs: int) -> Vote:
    """All failing connections end at one node; by its own devices, or else its peers' (rails join like devices), one NIC."""
    own = {e.device for e in found if e.node == node and e.device}
    others = {e.device for e in found if e.peer == node and e.device}
    devices = own or others
    nic = next(iter(devices)) if len(devices) == 1 else None
    peers = sorted({e.peer if e.node == node else e.node for e in found if e.peer} - {None, node}, key=str)
    where = f"{nic} of {node}" if nic else node
    why = f"connections of {pairs} nodes fail and all of them end at {where} (from {', '.join(map(str, peers[:6]))})"
    if nic and not own:
        why = f"{why}; the device is that of its peers, on the same rail"
    return Vote("nic" if nic else "node", node, nic, None, FAILING_CONNECTIONS, why, (node,), pairs)


def _leaf(pairs: Sequence[tuple[str, str]], addresses: Addresses) -> Vote:
    """No node is at every failing connection; perhaps one leaf is, and only one."""
    ends = sorted({node for pair in pairs for node in pair})
    touched = [{addresses.leafs[node] for node in pair if node in addresses.leafs} for pair in pairs]
    shared = set.intersection(*touched) if touched else set()
    text = f"{len(pairs)} pairs of nodes fail and share no node"
    if len(shared) == 1 and len(pairs) >= _table().least_leaf_pairs:
        leaf = shared.pop()
        under = [node for node in ends if addresses.leafs.get(node) == leaf]
        elsewhere = set(addresses.leafs.values()) - {leaf}
        if len(under) > 1 and elsewhere:
            why = f"{text}, but each has an end under leaf {leaf} ({len(under)} nodes there)"
            return Vote("leaf", None, None, leaf, "failing leaf", why, tuple(ends[:16]), len(pairs))
    return Vote(rule=NO_COMMON_END, why=text, suspects=tuple(ends[:16]), pairs=len(pairs))


def _died_first(found: Sequence[Edge]) -> Vote:
    """Whose connections were closed from the other end names the one that went; who is named and names nobody went first."""
    blamed: dict[str, set[str]] = defaultdict(set)
    for e in found:
        if e.says == "gone" and e.peer is not None:
            blamed[e.peer].add(e.node)
    first = sorted(blamed.keys() - {e.node for e in found if e.says == "gone"})
    if len(first) == 1:
        node, by = first[0], sorted(blamed[first[0]])
        why = f"the process on {node} was gone before: {', '.join(by[:6])} found its connections closed, and it names nobody"
        return Vote("process", node, None, None, "died first", why, (node,), len(by))
    why = "connections were closed on many sides and no process is known to have ended first"
    return Vote(rule="closed connections", why=why, suspects=tuple(first[:16]))
