"""The wait-for graph of a hang: who waits in which collective, for whom, and who waits for nobody.

A waiting rank points at its collective, a collective at the members that have not come to it. What has no way out (a strongly
connected component without an outgoing edge) is where the hang comes from; everybody on the way there is a victim, also one
that is behind in one group because it waits in another.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from streams.correlate.job_rules.process_groups import BEFORE_ALL, UNNAMED, Group
from streams.correlate.job_rules.rank_reports import Rank


class Collective(NamedTuple):
    """One collective of one group in which somebody waits. In a point-to-point group all waits count as one."""

    group: str
    seq: int


@dataclass(slots=True)
class Missing:
    """A rank that others wait for and that itself waits for nobody: since when, in which group, and what is known of it."""

    rank: Rank
    collective: Collective
    is_known_absent: bool
    """Whether its own counters, or a report about it, say that it did not come; else it only said nothing of the group."""


@dataclass(slots=True)
class Ends:
    """Where the waiting ends."""

    missing: list[Missing] = field(default_factory=list)
    stuck: list[Collective] = field(default_factory=list)
    """Collectives that everybody known to belong to them has joined, and that do not end all the same."""
    circles: list[frozenset[Rank]] = field(default_factory=list)
    """Ranks that wait for each other in different groups."""
    victims: dict[Rank, tuple[str, str]] = field(default_factory=dict)
    """Ranks that are missing in one group while they wait in another: both names."""


_Node = Rank | Collective


def ends(groups: Mapping[str, Group]) -> Ends:
    """Follow everybody's waiting to its end."""
    edges: dict[_Node, list[_Node]] = defaultdict(list)
    missing_in: dict[Rank, Missing] = {}
    for name, group in groups.items():
        if name == UNNAMED:
            continue
        _join(edges, missing_in, name, group)
    found = Ends()
    for component in _sinks(edges):
        _classify(component, missing_in, found)
    for rank, gap in sorted(missing_in.items(), key=lambda item: str(item[0])):
        waits = [c.group for c in edges.get(rank, ()) if isinstance(c, Collective)]
        if others := [name for name in waits if name != gap.collective.group]:
            found.victims[rank] = (gap.collective.group, others[0])
    return found


def _join(edges: dict[_Node, list[_Node]], missing_in: dict[Rank, Missing], name: str, group: Group) -> None:
    """Edges of one group. Each collective points at the next lower one in which somebody waits, and only at those who fell
    behind in between: so there are no more edges than members."""
    flat = group.point_to_point
    waits = {r: 0 if flat else w.seq for r, w in group.waiters.items() if w.seq is not None}
    if not waits:
        return
    seqs = sorted(set(waits.values()))
    nodes = [Collective(name, seq) for seq in seqs]
    by_seq = dict(zip(seqs, nodes, strict=True))
    for rank, seq in waits.items():
        edges[rank].append(by_seq[seq])
    for lower, node in pairwise(nodes):
        edges[node].append(lower)
    edges[nodes[0]]  # a collective that waits for nobody is an end as well
    for rank in group.members:
        if rank in waits:
            continue
        level = group.level(rank)
        # A counter cannot be compared between ranks of a point-to-point group: who does not wait in it is missing.
        at = 0 if flat else bisect_left(seqs, level + 1)
        if at < len(nodes):
            edges[nodes[at]].append(rank)
            edges[rank]
            is_known_absent = level != BEFORE_ALL and not flat
            known = missing_in.get(rank)
            if known is None or (is_known_absent and not known.is_known_absent):
                missing_in[rank] = Missing(rank, nodes[at], is_known_absent)


def _classify(component: list[_Node], missing_in: Mapping[Rank, Missing], found: Ends) -> None:
    ranks = [n for n in component if not isinstance(n, Collective)]
    if len(component) > 1:
        found.circles.append(frozenset(ranks))
    elif ranks:
        found.missing.append(missing_in[ranks[0]])
    else:
        found.stuck += [n for n in component if isinstance(n, Collective)]


def _sinks(edges: Mapping[_Node, Sequence[_Node]]) -> list[list[_Node]]:
    """The strongly connected components that nothing leads out of (Tarjan 1972, without recursion).

    What nothing leads to is part of no circle, so with a way out it is no end: thousands of ranks that just wait are passed by.
    """
    targets = {other for others in edges.values() for other in others}
    index: dict[_Node, int] = {}
    low: dict[_Node, int] = {}
    component: dict[_Node, int] = {}
    stack: list[_Node] = []
    components: list[list[_Node]] = []
    for start in (
        node
        for first, others in edges.items()
        for node in ([first] if first in targets or not others else others)
    ):
        if start in index:
            continue
        index[start] = low[start] = len(index)
        stack.append(start)
        path = [(start, iter(edges[start]))]
        while path:
            node, further = path[-1]
            for other in further:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    path.append((other, iter(edges[other])))
                    break
                if other not in component:
                    low[node] = min(low[node], index[other])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[node])
                if low[node] == index[node]:
                    members: list[_Node] = []
                    while not members or members[-1] != node:
                        members.append(stack.pop())
                        component[members[-1]] = len(components)
                    components.append(members)
    out = {component[n] for n in component for o in edges[n] if component[o] != component[n]}
    return [members for number, members in enumerate(components) if number not in out]
