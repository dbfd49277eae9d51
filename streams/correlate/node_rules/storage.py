"""Unreachable storage: one fault of the target or the file system, however many nodes and jobs wait for it.

A single node that cannot reach it may have a fault of its own; two nodes have not. Processes that hang in the kernel on many
nodes at once wait for storage, even when no line names it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import accumulate

from streams.correlate.hypothesis import Hypothesis, rejected
from streams.correlate.node_rules.shared_groups import SharedFault
from streams.correlate.policy.families import families, storage_system
from streams.correlate.sightings import Sighting, distinct, split_at_gaps
from streams.correlate.state.incarnations import (
    FiringInterval,
    Incarnations,
    Session,
    firing_intervals,
    storage_root,
)
from streams.correlate.state.place import STORAGE
from streams.model.entity import Entity
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily, SignalKind

FAMILY = IncidentFamily.STORAGE_FAULT
UNNAMED = "not named"
_MAX_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Outage:
    """From a target being lost on one node until it was back there. `system` is the file system or server it is part of."""

    system: str
    target: str
    interval: FiringInterval
    lasts: timedelta

    @property
    def is_brief(self) -> bool:
        """Whether it was over before it counted for the node by itself."""
        return self.interval.end is not None and self.interval.end - self.interval.start < self.lasts


@dataclass(frozen=True, slots=True)
class StorageReports:
    """One node's evidence: targets it cannot reach, and its hypotheses of nothing but hung tasks."""

    outages: tuple[Outage, ...] = ()
    hung: tuple[Hypothesis, ...] = ()


def storage_reports(seen: Iterable[Sighting], hypotheses: Iterable[Hypothesis]) -> StorageReports:
    """The evidence about storage in a node's sightings and hypotheses."""
    streams: dict[tuple[str, str], list[Sighting]] = defaultdict(list)
    lasts: dict[tuple[str, str], timedelta] = {}
    for s in seen:
        rule = families().rule(s) if s.kind == SignalKind.NODE_STORAGE else None
        if rule is None or rule.family != FAMILY or rule.role != "cause":
            continue
        key = (_system(s), _target(s))
        streams[key].append(s)
        lasts[key] = max(lasts.get(key, timedelta()), timedelta(seconds=rule.lasts_s))
    outages = tuple(
        Outage(*key, i, lasts[key])
        for key in sorted(streams)
        for i in firing_intervals(streams[key])
        if i.end is None or i.end - i.start >= min(lasts[key], families().shared.storage.brief)
    )
    return StorageReports(outages, tuple(h for h in hypotheses if _only_hangs(h)))


def storage_faults(
    cluster: str, evidence: Sequence[tuple[str, StorageReports]], known: int, incarnations: Incarnations
) -> list[SharedFault]:
    """The faults of all storage. `known` is how many nodes the cluster has."""
    within = timedelta(seconds=families().shared.storage.within_s)
    by_system: dict[str, list[tuple[str, Outage]]] = defaultdict(list)
    wide: set[str] = set()
    for target in _by_target(evidence):
        kept, widely = _without_hiccups(target, known)
        wide |= widely
        for node, outage in kept:
            by_system[outage.system].append((node, outage))
    found = [
        _named(Entity(cluster, storage=system), session, by_system[system], wide)
        for system in sorted(by_system)
        for session in _sessions(cluster, system, [o for _, o in by_system[system]], incarnations)
    ]
    loose: list[tuple[str, Hypothesis]] = []
    taken: list[dict[str, str]] = [{} for _ in found]
    reached = [frozenset(f.hypothesis.nodes) for f in found]
    for node, hung in sorted(
        ((n, h) for n, w in evidence for h in w.hung), key=lambda p: (p[1].fault_at, p[1].id)
    ):
        pairs = zip(found, reached, strict=True)
        at = next((i for i, (f, nodes) in enumerate(pairs) if _covers(f, node in nodes, hung, within)), None)
        if at is None:
            loose.append((node, hung))
        else:
            taken[at][hung.id] = node
    found = [replace(f, parts=parts) if parts else f for f, parts in zip(found, taken, strict=True)]
    return found + _unnamed(cluster, loose, within, incarnations)


def _by_target(evidence: Iterable[tuple[str, StorageReports]]) -> list[list[tuple[str, Outage]]]:
    by_target: dict[str, list[tuple[str, Outage]]] = defaultdict(list)
    for node, reports in evidence:
        for outage in reports.outages:
            by_target[outage.target].append((node, outage))
    return [by_target[target] for target in sorted(by_target)]


def _without_hiccups(
    outages: Iterable[tuple[str, Outage]], known: int
) -> tuple[list[tuple[str, Outage]], set[str]]:
    """Outages of one target without those that were soon over on a few nodes; and the first lines of those on most nodes."""
    rule = families().shared.storage
    ordered = sorted(outages, key=lambda p: (p[1].interval.start, p[0]))
    kept, wide = list[tuple[str, Outage]](), set[str]()
    for episode in split_at_gaps(ordered, lambda p: p[1].interval.start, rule.brief):
        if len({node for node, _ in episode}) >= max(rule.most_nodes, rule.most_share * known):
            kept += episode
            wide |= {o.interval.sightings[0].id for _, o in episode}
        else:
            kept += [(node, o) for node, o in episode if not o.is_brief]
    return kept, wide


def _system(s: Sighting) -> str:
    subtype = s.text("subtype")
    if subtype == "ceph":
        return subtype
    return storage_root(storage_system(s) or subtype)


def _target(s: Sighting) -> str:
    return storage_system(s) or s.text("subtype")


def _only_hangs(h: Hypothesis) -> bool:
    return h.family == IncidentFamily.HOST_FAULT and all(s.text("subtype") == "hung_task" for s in h.causes)


def _sessions(
    cluster: str, system: str, outages: Sequence[Outage], incarnations: Incarnations
) -> list[Session]:
    outages = _ended(outages)
    names = [Entity(cluster, storage=name) for name in sorted({system, *(o.target for o in outages)})]
    root = Entity(cluster, storage=system)
    return incarnations.sessions(root, families()[FAMILY].domain, [o.interval for o in outages], names)


def _ended(outages: Sequence[Outage]) -> list[Outage]:
    """Ends for the nodes whose end was lost: most nodes of the same target reach it again."""
    within = timedelta(seconds=families().shared.storage.within_s)
    by_target: dict[str, list[Outage]] = defaultdict(list)
    for outage in outages:
        by_target[outage.target].append(outage)
    return [
        _with_end(o, mine, ends, within)
        for mine in by_target.values()
        for ends in (_Ends(mine),)
        for o in mine
    ]


class _Ends:
    """When nodes lost a target and reached it again, sorted for fast lookups with thousands of nodes."""

    def __init__(self, outages: Sequence[Outage]) -> None:
        over = sorted((o.interval.start, o.interval.end) for o in outages if o.interval.end is not None)
        self._starts = [start for start, _ in over]
        self._ends = sorted(end for _, end in over)
        self._latest = list(accumulate((end for _, end in over), max))

    def around(self, at: datetime, within: timedelta) -> tuple[int, datetime | None]:
        """How many nodes lost it by then (± `within`) and reached it again later, and when the last one did."""
        begun = bisect_right(self._starts, at + within)
        return begun - bisect_left(self._ends, at), self._latest[begun - 1] if begun else None


def _with_end(one: Outage, mine: Sequence[Outage], ends: _Ends, within: timedelta) -> Outage:
    if one.interval.end is not None:
        return one
    back, last = ends.around(one.interval.last, within)
    return replace(one, interval=replace(one.interval, end=last)) if back * 2 > len(mine) else one


def _named(
    root: Entity, session: Session, outages: Sequence[tuple[str, Outage]], wide: Collection[str]
) -> SharedFault:
    ids = {s.id for s in session.sightings}
    mine = [(node, o) for node, o in outages if any(s.id in ids for s in o.interval.sightings)]
    nodes = sorted({node for node, _ in mine})
    targets = sorted({o.target for _, o in mine})
    if len(targets) == 1:
        root = Entity(root.cluster, storage=targets[0])
    several = len(nodes) >= families().shared.storage.nodes
    signs = families().signs(session.sightings, _MAX_SHOWN)
    why = f"{len(nodes)} nodes do not reach {root.storage}: {signs}. They are victims of it"
    if not several:
        why = f"{nodes[0]} does not reach {root.storage}: {signs}. No other node tells of it, so it may be the node's own fault"
    # What most nodes lose at one moment harms what waits for it there, however soon it is back; else it must last.
    brief = families().shared.storage.brief
    ready = sorted(
        min(s.seen_at for s in o.interval.sightings)
        + (min(o.lasts, brief) if o.interval.sightings[0].id in wide else o.lasts)
        for _, o in mine
    )
    return SharedFault(
        Hypothesis(
            place=STORAGE.place,
            root=root,
            family=FAMILY,
            **session.times(),
            certainty=Certainty.LIKELY if several else Certainty.WEAK,
            ready_at=ready[0],
            brief_until=min(min(s.seen_at for s in o.interval.sightings) + o.lasts for _, o in mine),
            was_brief=all(o.is_brief for _, o in mine),
            rule="shared storage" if several else "storage of one node",
            why=why,
            causes=distinct(session.sightings),
            facts={"nodes_hit": len(nodes), "storage": tuple(targets[:64])},
            candidates=tuple(
                rejected(
                    Entity(root.cluster, node=node),
                    IncidentFamily.HOST_FAULT,
                    "one node's trouble",
                    "others wait for it too",
                )
                for node in nodes[:_MAX_SHOWN]
                if several
            ),
            nodes=tuple(nodes),
        )
    )


def _covers(fault: SharedFault, hit: bool, hung: Hypothesis, within: timedelta) -> bool:
    """Whether hung tasks are the storage's: they are reported from minutes after it is gone until it is back."""
    h = fault.hypothesis
    until = h.cleared_at or max(h.last_at, hung.fault_at)
    if not h.fault_at - within <= hung.fault_at <= until + within:
        return False
    return hit or h.certainty is not Certainty.WEAK


def _unnamed(
    cluster: str, loose: Sequence[tuple[str, Hypothesis]], within: timedelta, incarnations: Incarnations
) -> list[SharedFault]:
    """Hung tasks on many nodes at once."""
    root = Entity(cluster, storage=UNNAMED)
    stretches: list[FiringInterval] = []
    members: dict[str, tuple[str, Hypothesis]] = {}
    for episode in split_at_gaps(loose, lambda p: p[1].fault_at, within):
        if len({node for node, _ in episode}) >= families().shared.storage.hung_nodes:
            lines = tuple(h.causes[0] for _, h in episode)
            stretches.append(FiringInterval(lines[0].at, max(h.last_at for _, h in episode), None, lines))
            members |= {h.causes[0].id: (node, h) for node, h in episode}
    return [
        _hanging(root, session, [members[s.id] for s in session.sightings])
        for session in incarnations.sessions(root, families()[FAMILY].domain, stretches)
    ]


def _hanging(root: Entity, session: Session, mine: Sequence[tuple[str, Hypothesis]]) -> SharedFault:
    nodes = sorted({node for node, _ in mine})
    ready: list[datetime] = sorted(h.ready_at for _, h in mine)
    hypothesis = Hypothesis(
        place=STORAGE.place,
        root=root,
        family=FAMILY,
        **session.times(*(h.last_at for _, h in mine)),
        certainty=Certainty.LIKELY,
        ready_at=ready[min(len(ready), families().shared.storage.hung_nodes) - 1],
        rule="hung tasks on many nodes",
        why=f"tasks hang in the kernel on {len(nodes)} nodes within minutes: they wait for a storage that no line names",
        causes=distinct(s for _, h in mine for s in h.causes[:2]),
        facts={"nodes_hit": len(nodes)},
        nodes=tuple(nodes),
    )
    return SharedFault(hypothesis, {h.id: node for node, h in mine})
