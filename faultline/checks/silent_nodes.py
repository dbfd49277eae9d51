"""Which nodes' shippers went silent while their neighbours' go on, by the records of a bounded stretch of time. Pure.

A node without faults and a node without a shipper look alike to the detector: neither sends anything of interest. What tells
them apart is that every node says something all the time: a metric every scrape, the kubelet's lines, a shipper's own heartbeat.
So a node is measured by its own pace and its neighbours', and by what is known of it: one that is down or has just come owes
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from streams.model.hostnames import folded, short

LEAST = timedelta(minutes=5)
"""No node is silent before: a shipper that is restarted or catches up pauses, too."""

GAPS = 6
"""A node that pauses between its records may pause so many times its longest pause."""

TALKING = 0.5
"""The share of a topic's nodes that must go on. If fewer do, the topic, its broker or a relay is the trouble, not a node."""

FEWEST = 3
"""Nodes of which a topic must have heard: of two, none is a neighbourhood."""

MAX_NODES = 50_000
"""Nodes kept of each topic: about 10 MB. What comes beyond is counted, and an answer says so."""


class Standing(StrEnum):
    """What is known of a node besides its records."""

    READY = "ready"
    DOWN = "down"
    """Not ready, or taken out: another finding tells of it."""


@dataclass(frozen=True, slots=True)
class ExpectedNode:
    """A node of the inventory. `since` is when it came to stand as it does, None when that is not known.

    `names` are the other names of its host.
    """

    name: str
    standing: Standing = Standing.READY
    since: datetime | None = None
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SilentNode:
    """A node of which nothing came on `topic` since `last`, for `patience` or longer; `last` is None where nothing ever did."""

    topic: str
    node: str
    last: datetime | None
    patience: timedelta


@dataclass(frozen=True, slots=True)
class Silence:
    """The answer about one topic: how many nodes were heard, and how many go on.

    `whole` is true when so many are silent that no single node is to blame; then `nodes` is empty. `beyond` counts records of
    nodes that were not kept.
    """

    topic: str
    heard: int
    talking: int
    nodes: tuple[SilentNode, ...] = ()
    whole: bool = False
    beyond: int = 0


@dataclass(slots=True)
class _Pace:
    first: datetime
    last: datetime
    longest: timedelta = timedelta()


class NodePaces:
    """How often each node was heard on each topic.

    Args:
        since: Where the stretch begins that is read. What came before is unknown, so a node not heard in it was heard "before".
        max_nodes: Nodes kept of each topic.
    """

    def __init__(self, since: datetime, *, max_nodes: int = MAX_NODES) -> None:
        self._since = since
        self._max_nodes = max_nodes
        self._paces: dict[str, dict[str, _Pace]] = {}
        self._beyond: dict[str, int] = {}

    def heard(self, topic: str, node: str, at: datetime) -> None:
        """Note a record of a node. `at` is when Kafka got it, never the line's own time; the order does not matter."""
        paces = self._paces.setdefault(topic, {})
        name = folded(node)
        pace = paces.get(name)
        if pace is None:
            if len(paces) >= self._max_nodes:
                self._beyond[topic] = self._beyond.get(topic, 0) + 1
                return
            paces[name] = _Pace(at, at)
        elif at >= pace.last:
            pace.longest = max(pace.longest, at - pace.last)
            pace.last = at
        elif at < pace.first:
            pace.longest = max(pace.longest, pace.first - at)
            pace.first = at

    def silent(
        self, topic: str, now: datetime, expected: Mapping[str, ExpectedNode] | None = None
    ) -> Silence:
        """The nodes that went silent on a topic, the longest silence first.

        Without `expected` (None) only nodes that were heard can be missed; with it also those that never were, while one that is
        down, or that no longer exists, is not.
        """
        paces = self._paces.get(topic, {})
        patience = {name: max(LEAST, pace.longest * GAPS) for name, pace in paces.items()}
        quiet = {name for name, pace in paces.items() if now - pace.last > patience[name]}
        talking = len(paces) - len(quiet)
        beyond = self._beyond.get(topic, 0)
        if len(paces) < FEWEST:
            return Silence(topic, len(paces), talking, beyond=beyond)
        if talking < len(paces) * TALKING:
            return Silence(topic, len(paces), talking, whole=True, beyond=beyond)
        missed = [SilentNode(topic, name, paces[name].last, patience[name]) for name in quiet]
        if expected is not None:
            owing = {name: node for node in expected.values() for name in _names(node)}
            missed = [
                one for one in missed if (node := _named(one.node, owing)) and _owes(node, one.last, now)
            ]
            # A record of the node by any of its names is one of it.
            known = {node.name for name in paces if (node := _named(name, owing)) is not None}
            talks = {n.name for name in paces.keys() - quiet if (n := _named(name, owing)) is not None}
            missed = [one for one in missed if (n := _named(one.node, owing)) is None or n.name not in talks]
            if not beyond and now - self._since > LEAST:
                missed += [
                    SilentNode(topic, node.name, None, LEAST)
                    for node in expected.values()
                    if node.name not in known and _owes(node, self._since, now)
                ]
        missed.sort(key=lambda one: (one.last or self._since, one.node))
        return Silence(topic, len(paces), talking, tuple(missed), beyond=beyond)


def _names(node: ExpectedNode) -> set[str]:
    names = {folded(name) for name in (node.name, *node.names)}
    return names | {short(name) for name in names}


def _named(name: str, nodes: Mapping[str, ExpectedNode]) -> ExpectedNode | None:
    return nodes.get(name) or nodes.get(short(name))


def _owes(node: ExpectedNode, last: datetime | None, now: datetime) -> bool:
    """True when the node should have sent something: ready, and for longer than one that has just come back needs."""
    if node.standing is not Standing.READY:
        return False
    if node.since is None:
        return True
    return now - node.since > LEAST and (last is None or now - max(last, node.since) > LEAST)
