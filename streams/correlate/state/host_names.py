"""Which node a host name means: lines, metrics and events use many names for one node.

The node's own name counts first, then whole names from its facts (addresses, host names, cloud and board ids), and last a name
that differs only by its domain. A name that fits several nodes means none of them: its longer form decides, or it stays open.
Addresses are reassigned, so every lookup is for a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from heapq import nsmallest
from itertools import pairwise

from streams.correlate.state.rows import NodeRow, name_changes
from streams.model.hostnames import (
    NOBODYS,
    address_in,
    folded,
    host_of_controller,
    is_address,
    is_within,
    parents,
)

_MAX_SURE = 50_000
"""Names whose meaning is remembered; logs can have any number."""
_MAX_CANDIDATES = 64
_NOBODY: frozenset[str] = frozenset()
_EVER = datetime.max.replace(tzinfo=UTC)

Span = tuple[datetime, datetime, str]
"""Since when, until when, and which node."""


@dataclass(frozen=True, slots=True)
class Found:
    """The node, or None; and then those that it might be, sorted.

    `by_domain` when only the short name agrees, and the node's facts have no domain at all.
    """

    node: str | None = None
    candidates: tuple[str, ...] = ()
    by_domain: bool = False
    timed: bool = False
    """Whether the name had another meaning at other times."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The names of a node in the course of time, and when it was deleted."""

    spans: tuple[tuple[datetime, tuple[str, ...]], ...]
    left_at: datetime | None

    @property
    def names(self) -> set[str]:
        """All of its other names, at whatever time."""
        return {name for _, names in self.spans for name in names}


class _Index:
    """Nodes by key. Nearly all keys have one node, and a set for each would be most of the memory."""

    def __init__(self) -> None:
        self._nodes: dict[str, str | set[str]] = {}

    def __getitem__(self, key: str) -> Set[str]:
        found = self._nodes.get(key)
        return _NOBODY if found is None else {found} if isinstance(found, str) else found

    def __len__(self) -> int:
        return len(self._nodes)

    def add(self, key: str, node: str) -> None:
        """Enter a node under a key."""
        found = self._nodes.setdefault(key, node)
        if isinstance(found, set):
            found.add(node)
        elif found != node:
            self._nodes[key] = {found, node}

    def discard(self, key: str, node: str) -> None:
        """Remove a node from under a key."""
        found = self._nodes.get(key)
        if found == node:
            del self._nodes[key]
        elif isinstance(found, set):
            found.discard(node)
            if len(found) == 1:
                self._nodes[key] = found.pop()


class HostNames:
    """The inventory's nodes by all of their names. A lookup costs the same however many nodes there are."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._exact = _Index()
        """By the folded name of the node."""
        self._other = _Index()
        """By any other name that a node has or had."""
        self._longer = _Index()
        """By every beginning of a node's names that ends before a dot."""
        self._serials = _Index()
        """By the number of the machine that a node's name ends with: its controller's name may begin otherwise."""
        self._sure: dict[str, Found] = {}
        """What was found for names that mean the same at any time, until a node's names change."""

    def __contains__(self, node: str) -> bool:
        """Whether facts know a node of exactly this name."""
        return node in self._known

    def put(self, node: str, row: NodeRow | None) -> set[str]:
        """Update a node from its row; None when it is forgotten. Returns the keys whose meaning may have changed."""
        new = _Known(name_changes(row), row.left_at) if row is not None and row.fact is not None else None
        old = self._known.get(node)
        if new == old:
            return set()
        self._sure.clear()
        keys: set[str] = set()
        for known, enter in ((old, False), (new, True)):
            if known is not None:
                keys |= self._enter(node, known, enter=enter)
        if new is None:
            del self._known[node]
        else:
            self._known[node] = new
        return keys

    def find(self, reported: str, at: datetime) -> Found:
        """Which node a name meant at a time."""
        if reported in self._known:
            return Found(reported)
        found = self._sure.get(reported)
        if found is None:
            found = self._find(reported, at)
            if not found.node and not found.candidates and (host := host_of_controller(folded(reported))):
                # Only where nothing is called so itself: a host may well be named after its rack's controller.
                found = replace(self._find(host, at), by_domain=False)
                if not found.node and not found.candidates and (serials := self._serials[host]):
                    found = self._one(serials, None, at)
            if not found.timed and len(self._sure) < _MAX_SURE:
                self._sure[reported] = found
        return found

    def _find(self, reported: str, at: datetime) -> Found:
        key = folded(reported)
        if key in NOBODYS:
            return Found()
        if exact := self._exact[key]:
            return self._one(exact, None, at)
        for name in (key, address_in(key)):
            if name is not None and (others := self._other[name]):
                return self._one(others, name, at)
        if len(self._longer[key]) > _MAX_CANDIDATES:  # `gpu`, of thousands of `gpu.rack.row`
            return Found(None, tuple(nsmallest(_MAX_CANDIDATES, self._longer[key])))
        fitting = set(self._longer[key])
        for parent in parents(key):
            fitting |= self._exact[parent] | self._other[parent]
        found = self._one({node for node in fitting if self._agrees(node, key)}, None, at)
        by_domain = found.node is not None and "." in key and not self._full_names(found.node, key)
        return replace(found, by_domain=by_domain)

    def keys(self, reported: str) -> set[str]:
        """Keys that the meaning of a name depends on: when `put` returns one of these, it may mean another node."""
        key = folded(reported)
        return {key, *parents(key), *filter(None, [address_in(key), host_of_controller(key)])}

    def _enter(self, node: str, known: _Known, *, enter: bool) -> set[str]:
        """Enter all names of a node, or remove them. Returns their keys."""
        own = folded(node)
        dotted = {own, *(name for name in known.names if not is_address(name))}
        longer = {parent for name in dotted for parent in parents(name)}
        serials = {serial for name in dotted if (serial := _serial(name)) is not None}
        for index, keys in (
            (self._exact, {own}),
            (self._other, known.names),
            (self._longer, longer),
            (self._serials, serials),
        ):
            for key in keys:
                (index.add if enter else index.discard)(key, node)
        return {own, *known.names, *longer, *serials}

    def _agrees(self, node: str, key: str) -> bool:
        """Whether a name may be this node's, as far as its own full names tell: another domain is another host."""
        full = self._full_names(node, key) if "." in key else []
        return any(is_within(key, name) for name in full or self._names_like(node, key))

    def _full_names(self, node: str, key: str) -> list[str]:
        """The names of a node that begin like this one and have a domain."""
        return [name for name in self._names_like(node, key) if "." in name]

    def _names_like(self, node: str, key: str) -> list[str]:
        first = key.partition(".")[0]
        names = [folded(node), *self._known[node].names]
        return [name for name in names if name.partition(".")[0] == first and not is_address(name)]

    def _one(self, nodes: Iterable[str], name: str | None, at: datetime) -> Found:
        """The one of these nodes that had the name at that time; `name` is None for a form of its own name.

        The first node also counts for all time before, and the last for all time after: facts begin at the first observation.
        """
        candidates = tuple(sorted(nodes))
        if len(candidates) <= 1:
            return Found(candidates[0]) if candidates else Found()
        spans = [span for node in candidates for span in self._spans(node, name)]
        holding = {node for since, until, node in spans if since <= at < until}
        if not holding:
            first, last = min(since for since, _, _ in spans), max(until for _, until, _ in spans)
            holding = {node for since, _, node in spans if at < first == since}
            holding |= {node for _, until, node in spans if at >= last == until}
        if len(holding) == 1:
            return Found(holding.pop(), timed=True)
        return Found(None, candidates, timed=True)

    def _spans(self, node: str, name: str | None) -> Iterable[Span]:
        """When a node had a name."""
        known = self._known[node]
        gone = known.left_at or _EVER
        for (since, names), (until, _) in pairwise((*known.spans, (gone, ()))):
            if name is None or name in names:
                yield since, max(until, since), node


def _serial(name: str) -> str | None:
    """`9359fcab5f65` of `bm-9359fcab5f65.example`; None for a name that ends with a short count, as most do."""
    before, _, last = name.partition(".")[0].rpartition("-")
    return last if before and len(last) >= 6 and any(map(str.isdigit, last)) else None
