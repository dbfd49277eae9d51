"""Storage that is not reached: one fault at the target or the file system, however many nodes and jobs wait for it.

A node that alone has lost its way may have a fault of its own; two that lost the same way have not. Processes that hang in the
kernel on many nodes at once wait for a storage, even when no line names it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import accumulate

from streams.correlate.hypothesis import Hypothesis, rejected
from streams.correlate.node_rules.shared_groups import SharedFault
from streams.correlate.policy.families import families, storage_system
from streams.correlate.sightings import Sighting, order
from streams.correlate.state.incarnations import Lives, Session, Spell, spells, storage_root
from streams.correlate.state.place import Place, PlaceKind
from streams.model.entity import Entity
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily, SignalKind

FAMILY = IncidentFamily.STORAGE_FAULT
UNNAMED = "not named"
_TOLD = 6


@dataclass(frozen=True, slots=True)
class Outage:
    """From a target being lost on one node until it was back there. `system` is the file system or server it is part of."""

    system: str
    target: str
    spell: Spell
    lasts: timedelta


@dataclass(frozen=True, slots=True)
class Waits:
    """What one node says about storage: targets it does not reach, and its hypotheses of nothing but hung tasks."""

    outages: tuple[Outage, ...] = ()
    hung: tuple[Hypothesis, ...] = ()


def waits(seen: Iterable[Sighting], hypotheses: Iterable[Hypothesis]) -> Waits:
    """What a node's sightings and hypotheses say about storage."""
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
        Outage(*key, spell, lasts[key])
        for key in sorted(streams)
        for spell in spells(streams[key])
        if spell.end is None or spell.end - spell.start >= lasts[key]
    )
    return Waits(outages, tuple(h for h in hypotheses if _only_hangs(h)))


def storage_faults(cluster: str, shares: Sequence[tuple[str, Waits]], lives: Lives) -> list[SharedFault]:
    """Every storage that was not reached, and when."""
    within = timedelta(seconds=families().shared.storage.within_s)
    by_system: dict[str, list[tuple[str, Outage]]] = defaultdict(list)
    for node, said in shares:
        for outage in said.outages:
            by_system[outage.system].append((node, outage))
    found = [
        _named(Entity(cluster, storage=system), session, by_system[system])
        for system in sorted(by_system)
        for session in _sessions(cluster, system, [o for _, o in by_system[system]], lives)
    ]
    loose: list[tuple[str, Hypothesis]] = []
    taken: list[dict[str, str]] = [{} for _ in found]
    reached = [frozenset(f.hypothesis.nodes) for f in found]
    for node, hung in sorted(
        ((n, h) for n, w in shares for h in w.hung), key=lambda p: (p[1].fault_at, p[1].id)
    ):
        pairs = zip(found, reached, strict=True)
        at = next((i for i, (f, nodes) in enumerate(pairs) if _covers(f, node in nodes, hung, within)), None)
        if at is None:
            loose.append((node, hung))
        else:
            taken[at][hung.id] = node
    found = [replace(f, parts=parts) if parts else f for f, parts in zip(found, taken, strict=True)]
    return found + _unnamed(cluster, loose, within, lives)


def _system(s: Sighting) -> str:
    subtype = s.text("subtype")
    if subtype == "ceph":
        return subtype
    return storage_root(storage_system(s) or subtype)


def _target(s: Sighting) -> str:
    return storage_system(s) or s.text("subtype")


def _only_hangs(h: Hypothesis) -> bool:
    return h.family == IncidentFamily.HOST_FAULT and all(s.text("subtype") == "hung_task" for s in h.causes)


def _sessions(cluster: str, system: str, outages: Sequence[Outage], lives: Lives) -> list[Session]:
    outages = _ended(outages)
    names = [Entity(cluster, storage=name) for name in sorted({system, *(o.target for o in outages)})]
    root = Entity(cluster, storage=system)
    return lives.sessions(root, families()[FAMILY].domain, [o.spell for o in outages], names)


def _ended(outages: Sequence[Outage]) -> list[Outage]:
    """Of a target that most of its nodes reach again, the line that says so was lost on the others."""
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
    """When nodes lost a target and had it back, in an order that a crowd of nodes can be looked up in."""

    def __init__(self, outages: Sequence[Outage]) -> None:
        over = sorted((o.spell.start, o.spell.end) for o in outages if o.spell.end is not None)
        self._starts = [start for start, _ in over]
        self._ends = sorted(end for _, end in over)
        self._latest = list(accumulate((end for _, end in over), max))

    def around(self, at: datetime, within: timedelta) -> tuple[int, datetime | None]:
        """How many had lost it by then, give or take, and had it back after; and when the last of them had."""
        begun = bisect_right(self._starts, at + within)
        return begun - bisect_left(self._ends, at), self._latest[begun - 1] if begun else None


def _with_end(one: Outage, mine: Sequence[Outage], ends: _Ends, within: timedelta) -> Outage:
    if one.spell.end is not None:
        return one
    back, last = ends.around(one.spell.last, within)
    return replace(one, spell=replace(one.spell, end=last)) if back * 2 > len(mine) else one


def _named(root: Entity, session: Session, outages: Sequence[tuple[str, Outage]]) -> SharedFault:
    ids = {s.id for s in session.sightings}
    mine = [(node, o) for node, o in outages if any(s.id in ids for s in o.spell.sightings)]
    nodes = sorted({node for node, _ in mine})
    targets = sorted({o.target for _, o in mine})
    if len(targets) == 1:
        root = Entity(root.cluster, storage=targets[0])
    several = len(nodes) >= families().shared.storage.nodes
    signs = ", ".join(list(dict.fromkeys(families().says(s) for s in session.sightings))[:_TOLD])
    why = f"{len(nodes)} nodes do not reach {root.storage}: {signs}. They are victims of it"
    if not several:
        why = f"{nodes[0]} does not reach {root.storage}: {signs}. No other node tells of it, so it may be the node's own fault"
    ready = sorted(min(s.seen_at for s in o.spell.sightings) + o.lasts for _, o in mine)
    return SharedFault(
        Hypothesis(
            place=Place(PlaceKind.SHARED, "storage"),
            root=root,
            family=FAMILY,
            incarnation=session.incarnation,
            certainty=Certainty.LIKELY if several else Certainty.WEAK,
            fault_at=session.start,
            first_at=session.start,
            last_at=session.last,
            ready_at=ready[0],
            rule="shared storage" if several else "storage of one node",
            why=why,
            cleared_at=session.cleared_at,
            flaps=session.flaps,
            causes=tuple(sorted({s.id: s for s in session.sightings}.values(), key=order)),
            facts={"nodes_hit": len(nodes), "storage": tuple(targets[:64])},
            candidates=tuple(
                rejected(
                    Entity(root.cluster, node=node),
                    IncidentFamily.HOST_FAULT,
                    "one node's trouble",
                    "others wait for it too",
                )
                for node in nodes[:_TOLD]
                if several
            ),
            nodes=tuple(nodes),
        )
    )


def _covers(fault: SharedFault, hit: bool, hung: Hypothesis, within: timedelta) -> bool:
    """Tasks hang minutes after the storage is gone, and are told of until it is back."""
    h = fault.hypothesis
    until = h.cleared_at or max(h.last_at, hung.fault_at)
    if not h.fault_at - within <= hung.fault_at <= until + within:
        return False
    return hit or h.certainty is not Certainty.WEAK


def _unnamed(
    cluster: str, loose: Sequence[tuple[str, Hypothesis]], within: timedelta, lives: Lives
) -> list[SharedFault]:
    """Hung tasks on many nodes at once."""
    root = Entity(cluster, storage=UNNAMED)
    stretches: list[Spell] = []
    members: dict[str, tuple[str, Hypothesis]] = {}
    episode: list[tuple[str, Hypothesis]] = []
    for one, following in zip(loose, [*loose[1:], None], strict=False):
        episode.append(one)
        if following is not None and following[1].fault_at - one[1].fault_at <= within:
            continue
        if len({node for node, _ in episode}) >= families().shared.storage.hung_nodes:
            lines = tuple(h.causes[0] for _, h in episode)
            stretches.append(Spell(lines[0].at, max(h.last_at for _, h in episode), None, lines))
            members |= {h.causes[0].id: (node, h) for node, h in episode}
        episode = []
    return [
        _hanging(root, session, [members[s.id] for s in session.sightings])
        for session in lives.sessions(root, families()[FAMILY].domain, stretches)
    ]


def _hanging(root: Entity, session: Session, mine: Sequence[tuple[str, Hypothesis]]) -> SharedFault:
    nodes = sorted({node for node, _ in mine})
    ready: list[datetime] = sorted(h.ready_at for _, h in mine)
    hypothesis = Hypothesis(
        place=Place(PlaceKind.SHARED, "storage"),
        root=root,
        family=FAMILY,
        incarnation=session.incarnation,
        certainty=Certainty.LIKELY,
        fault_at=session.start,
        first_at=session.start,
        last_at=max(h.last_at for _, h in mine),
        ready_at=ready[min(len(ready), families().shared.storage.hung_nodes) - 1],
        rule="hung tasks on many nodes",
        why=f"tasks hang in the kernel on {len(nodes)} nodes within minutes: they wait for a storage that no line names",
        cleared_at=session.cleared_at,
        flaps=session.flaps,
        causes=tuple(sorted({s.id: s for _, h in mine for s in h.causes[:2]}.values(), key=order)),
        facts={"nodes_hit": len(nodes)},
        nodes=tuple(nodes),
    )
    return SharedFault(hypothesis, {h.id: node for node, h in mine})
