"""A node whose IMEX service its NVLink domain does not reach: no memory is shared with it, whatever it reports of itself.

Programs that import memory of other nodes fail there with an error of their own. The node in question is often content: its port
is closed to the others (a firewall, another network) and its service runs. So each of the others names it, by its address. One
that names many is itself what cannot connect. While a node is away, or worked on, nobody reaches it for that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from math import ceil

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.node_rules.node_series import shown
from streams.correlate.node_rules.part_policy import part_policy
from streams.correlate.node_rules.shared_groups import SharedFault
from streams.correlate.node_rules.shared_parts import peak
from streams.correlate.policy.families import families
from streams.correlate.sightings import Sighting, latest_end, order, split_at_gaps
from streams.correlate.state.incarnations import FiringInterval, Incarnations, firing_intervals
from streams.correlate.state.node_work import work_at
from streams.correlate.state.place import GroupKind, SharedGroup
from streams.correlate.state.rows import NodeRow
from streams.model.entity import Entity, Part
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily, SignalKind

FAMILY = IncidentFamily.PLATFORM_FAULT


def is_of_peer(s: Sighting) -> bool:
    """Whether a node's IMEX service reports that it does not reach another one, or does again."""
    return s.kind == SignalKind.GPU_DRIVER and s.text("subtype") == "imex" and not s.text("peer").isdigit()


def is_restarted(s: Sighting) -> bool:
    """Whether the node's IMEX service could not start just now: it is started again until it can."""
    return s.kind == SignalKind.GPU_DRIVER and s.text("subtype") == "imex_start"


def is_own_service(s: Sighting) -> bool:
    """Whether it tells that the node's own IMEX service does not run: trouble only where the node shares memory with others."""
    stopped = s.kind == SignalKind.GPU_DRIVER and s.text("subtype") == "service_failed"
    return is_restarted(s) or (stopped and "imex" in s.text("service").lower())


def of_imex(
    node: str, row: NodeRow, host: Callable[[str, datetime], str | None]
) -> dict[SharedGroup, tuple[Sighting, ...]]:
    """What a node reports of its connections, by the node that it does not reach; nothing where these are many.

    Args:
        node: The node.
        row: What is known of it.
        host: Which node had a name or an address at a time.
    """
    found: dict[SharedGroup, list[Sighting]] = {}
    for s in (s for group in row.seen.values() if is_of_peer(group[0]) for s in group if s.text("peer")):
        peer = host(s.text("peer"), s.at)
        if peer is not None and peer != node:
            found.setdefault(SharedGroup(GroupKind.IMEX, peer), []).append(s)
    if sum(any(s.firing for s in lines) for lines in found.values()) > part_policy().imex.peers:
        return {}
    return {group: tuple(sorted(lines, key=order)) for group, lines in found.items()}


def imex_faults(
    cluster: str,
    group: SharedGroup,
    evidence: Sequence[tuple[str, Sequence[Sighting]]],
    row: NodeRow | None,
    known: int,
    incarnations: Incarnations,
) -> list[SharedFault]:
    """The times when enough of its domain did not reach a node's IMEX service. `known` is how many nodes the domain has."""
    rule = part_policy().imex
    away = _away(row) if row is not None else []
    found = [
        (node, interval)
        for node, lines in evidence
        for interval in firing_intervals(s for s in lines if not s.firing or not _explained(s, row, away))
        if interval.end is None or interval.end - interval.start >= rule.lasts
    ]
    found.sort(key=lambda f: (f[1].start, f[0]))
    needed = max(rule.nodes, ceil(rule.share * (known - 1)))
    root, counted_as = Entity(cluster, node=group.name), Entity(cluster, part=Part(*group))
    nodes: dict[str, list[str]] = {}
    ready: dict[str, datetime] = {}
    stretches = []
    for episode in split_at_gaps(found, lambda f: f[1].start, rule.within):
        if peak((i.start, i.end, node) for node, i in episode) < needed:
            continue
        first = dict(reversed(episode))
        lines = tuple(i.sightings[0] for i in sorted(first.values(), key=lambda i: i.start))
        nodes[lines[0].id], ready[lines[0].id] = sorted(first), lines[needed - 1].at + rule.lasts
        ended = latest_end(i.end for _, i in episode)
        stretches.append(FiringInterval(lines[0].at, max(i.last for _, i in episode), ended, lines))
    faults = []
    for session in incarnations.sessions(counted_as, families()[FAMILY].domain, stretches):
        mine = sorted({node for s in session.sightings for node in nodes.get(s.id, ())})
        share = f"{len(mine)} of {known - 1} nodes" if known > len(mine) else f"{len(mine)} nodes"
        hypothesis = Hypothesis(
            place=group.place,
            root=root,
            family=FAMILY,
            **session.times(),
            certainty=Certainty.LIKELY,
            ready_at=min(ready[s.id] for s in session.sightings if s.id in ready),
            rule="shared by a part",
            why=f"{share} of its NVLink domain do not reach the IMEX service of {root} ({shown(mine)}): no memory is shared with "
            "it, and programs that import it fail. Look there at the service and at what filters its port",
            causes=tuple(session.sightings),
            facts={"nodes_hit": len(mine)},
            stops="near",
            nodes=(group.name,),
        )
        faults.append(SharedFault(replace(hypothesis, counted_as=counted_as), counted=frozenset(mine)))
    return faults


def _away(row: NodeRow) -> list[FiringInterval]:
    """When the node was NotReady."""
    lines = (s for group in row.seen.values() if group[0].kind == SignalKind.NODE_NOT_READY for s in group)
    return firing_intervals(lines)


def _explained(s: Sighting, row: NodeRow | None, away: Sequence[FiringInterval]) -> bool:
    """Whether the node was not there for another one to reach."""
    if row is not None and work_at(row, s.at) is not None:
        return True
    grace = part_policy().sudden.within
    return any(i.start - grace <= s.at and (i.end is None or s.at <= i.end) for i in away)
