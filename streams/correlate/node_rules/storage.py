"""Unreachable storage: one fault of the target or the file system, however many nodes and jobs wait for it.

A single node that cannot reach it may have a fault of its own; two nodes have not. Processes that hang in the kernel on many
nodes at once wait for storage, even when no line names it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import accumulate

from streams.correlate.hypothesis import Hypothesis, rejected
from streams.correlate.node_rules.node_death import death_policy
from streams.correlate.node_rules.node_outages import outage_policy
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
from streams.correlate.state.place import SERVERS, STORAGE
from streams.model.clock import span
from streams.model.entity import Entity
from streams.model.hostnames import short
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily, SignalKind

FAMILY = IncidentFamily.STORAGE_FAULT
UNNAMED = "not named"
SPARED = "others_answer"
"""A fact of a storage of which only parts are gone that others stand in for."""
_MAX_SERVERS = 16
_MAX_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Outage:
    """From a target being lost on one node until it was back there. `system` is the file system or server it is part of."""

    system: str
    target: str
    interval: FiringInterval
    lasts: timedelta
    replicated: bool = False
    """Whether others answer in the place of this target."""

    @property
    def first(self) -> Sighting:
        """The line that told of it first."""
        return self.interval.sightings[0]

    @property
    def is_brief(self) -> bool:
        """Whether it was over before it counted for the node by itself."""
        return self.interval.end is not None and self.interval.end - self.interval.start < self.lasts


@dataclass(frozen=True, slots=True)
class StorageReports:
    """One node's evidence: targets it cannot reach, and its hypotheses of nothing but hung tasks."""

    outages: tuple[Outage, ...] = ()
    hung: tuple[Hypothesis, ...] = ()
    disks: tuple[Hypothesis, ...] = ()
    """Faults of its own disks, and that it is down, where it may be what serves a storage."""
    names: frozenset[str] | None = None
    """What a storage that it serves is called; None for a host that is no node of the cluster, and may serve any."""
    gone: tuple[Hypothesis, ...] = ()
    """That it is NotReady for no reason of its own, as far as nothing else says that it is dead."""


def serves_storage(s: Sighting) -> bool:
    """Whether a host says that it serves a storage, or a target of one (`target`)."""
    return s.kind == SignalKind.NODE_STORAGE and s.text("subtype") == "storage_server"


def storage_reports(
    seen: Iterable[Sighting],
    hypotheses: Sequence[Hypothesis],
    names: frozenset[str] | None = frozenset(),
    gone_alone: Sequence[Hypothesis] = (),
) -> StorageReports:
    """The evidence about storage in a node's sightings and hypotheses. `names` are those of `StorageReports`.

    `gone_alone` is when it was NotReady for no reason of its own.
    """
    streams: dict[tuple[str, str], list[Sighting]] = defaultdict(list)
    lasts: dict[tuple[str, str], timedelta] = {}
    replicated: dict[tuple[str, str], bool] = {}
    for s in seen:
        rule = families().rule(s) if s.kind == SignalKind.NODE_STORAGE else None
        if rule is None or rule.family != FAMILY or rule.role != "cause":
            continue
        key = (_system(s), _target(s))
        streams[key].append(s)
        lasts[key] = max(lasts.get(key, timedelta()), timedelta(seconds=rule.lasts_s))
        replicated[key] = replicated.get(key, True) and rule.replicated
    outages = tuple(
        Outage(*key, i, lasts[key], replicated[key])
        for key in sorted(streams)
        for i in firing_intervals(streams[key])
        if i.end is None or i.end - i.start >= min(lasts[key], families().shared.storage.brief)
    )
    hung = tuple(h for h in hypotheses if _only_hangs(h))
    disks = tuple(h for h in hypotheses if _is_of_server(h)) if names is None or names else ()
    gone = tuple(h for h in gone_alone if _may_only_hang(h)) if outages or hung else ()
    return StorageReports(outages, hung, disks, names if disks else None, gone)


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
    by_system = {system: _with_quiet_ends(found, known) for system, found in by_system.items()}
    found = [
        _named(Entity(cluster, storage=system), session, by_system[system], wide, known)
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
    gone = [(node, h) for node, w in evidence for h in w.gone]
    for i, (fault, parts) in enumerate(zip(found, taken, strict=True)):
        hanging = reached[i] | frozenset(parts.values())
        if len(set(parts.values())) >= families().shared.storage.nodes and SPARED in fault.hypothesis.facts:
            facts = {name: fact for name, fact in fault.hypothesis.facts.items() if name != SPARED}
            found[i] = fault = replace(fault, hypothesis=replace(fault.hypothesis, alone=True, facts=facts))
        servers = _servers(fault.hypothesis, evidence, known, within)
        parts |= servers
        if servers:
            names = tuple(sorted(set(servers.values())))
            why = f"{fault.hypothesis.why}. {_of_servers(evidence, servers)}"
            facts = {**fault.hypothesis.facts, SERVERS: names[:_MAX_SERVERS]}
            h = replace(fault.hypothesis, why=why, facts=facts)
            found[i] = replace(fault, hypothesis=h)
        with_it = list(_gone_with(fault.hypothesis, [(n, h) for n, h in gone if n in hanging], known))
        parts |= {h.id: node for node, h, until in with_it if until is None}
        left = {h.id: until for _, h, until in with_it if until is not None}
        found[i] = replace(found[i], parts=parts, left=left)
    return found + _unnamed(cluster, loose, known, within, incarnations)


def _gone_with(
    storage: Hypothesis, gone: Iterable[tuple[str, Hypothesis]], known: int
) -> Iterator[tuple[str, Hypothesis, datetime | None]]:
    """The nodes that hang on a storage and went NotReady with it: a kubelet that asks its mounts hangs as well.

    One that is still away once the storage is back is a node of its own, told after the moment given here.
    """
    if len(storage.nodes) < families().shared.storage.enough(known):
        return
    settle = outage_policy().settle
    for node, h in gone:
        back = storage.cleared_at
        if h.fault_at < storage.fault_at or (back is not None and h.fault_at > back):
            continue
        stays = back is not None and (h.cleared_at is None or h.cleared_at > back + settle)
        yield node, h, back + settle if stays and back is not None else None


def _may_only_hang(h: Hypothesis) -> bool:
    """Whether a node that is NotReady may be alive: no last words of it, and no sign from outside that it is dead."""
    signs = death_policy().signs
    return h.certainty is not Certainty.DECISIVE and h.sure not in (signs.alert.says, signs.ports.says)


def _servers(
    storage: Hypothesis, evidence: Iterable[tuple[str, StorageReports]], known: int, within: timedelta
) -> dict[str, str]:
    """The faults of disks that are why a storage is gone, each with its host: from minutes before it was lost."""
    if storage.root.storage is None or len(storage.nodes) < families().shared.storage.enough(known):
        return {}
    called = {storage.root.storage, *storage.fact_texts("storage")}
    return {
        h.id: node
        for node, reports in evidence
        for h in reports.disks
        if node not in storage.nodes
        and _serves(node, h, reports, called)
        and storage.fault_at - within <= h.fault_at
        and (storage.cleared_at is None or h.fault_at <= storage.cleared_at)
    }


def _of_servers(evidence: Iterable[tuple[str, StorageReports]], servers: Mapping[str, str]) -> str:
    """What the hosts that serve a storage tell of themselves."""
    mine = [h for _, reports in evidence for h in reports.disks if h.id in servers]
    shown = [f"{servers[h.id]} ({families().signs(h.causes, _MAX_SHOWN)})" for h in mine[:_MAX_SHOWN]]
    return f"What serves it is at fault: {', '.join(shown)}"


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
        if len({node for node, _ in episode}) >= rule.most(known):
            kept += episode
            wide |= {o.first.id for _, o in episode}
        else:
            kept += [(node, o) for node, o in episode if not o.is_brief]
    return kept, wide


def _with_quiet_ends(outages: Sequence[tuple[str, Outage]], known: int) -> list[tuple[str, Outage]]:
    """Outages of one system, with an end for those on a few nodes of which nothing more was said.

    The line that says that it is reached again gets lost, or never comes; without an end, one line of an hour ago would still
    stand for a storage that is gone. A node's only line about it says nothing.
    """
    rule = families().shared.storage
    together, near = _together(outages, rule.enough(known)), _together(outages, rule.nodes)
    found: list[tuple[str, Outage]] = []
    for node, o in outages:
        if o.interval.end is not None or o.first.id in together:
            found.append((node, o))
            continue
        for lines in split_at_gaps(o.interval.sightings, lambda s: s.at, rule.quiet):
            if len(lines) > 1 or lines[0].id in near:
                last = lines[-1].at
                interval = FiringInterval(lines[0].at, last, last + rule.quiet, tuple(lines))
                found.append((node, replace(o, interval=interval)))
    return found


def _together(outages: Iterable[tuple[str, Outage]], enough: int) -> set[str]:
    """The outages, by their first lines, that so many nodes had at one moment."""
    within = families().shared.storage.together
    ordered = sorted(outages, key=lambda p: (p[1].interval.start, p[0]))
    begin, found = 0, set[str]()
    for end, (_, outage) in enumerate(ordered, start=1):
        while outage.interval.start - ordered[begin][1].interval.start > within:
            begin += 1
        if len({node for node, _ in ordered[begin:end]}) >= enough:
            found.update(o.first.id for _, o in ordered[begin:end])
    return found


def _system(s: Sighting) -> str:
    subtype = s.text("subtype")
    if subtype == "ceph":
        return subtype
    return storage_root(storage_system(s) or subtype)


def _target(s: Sighting) -> str:
    return storage_system(s) or s.text("subtype")


def _serves(node: str, h: Hypothesis, reports: StorageReports, called: Collection[str]) -> bool:
    """Whether a host with such a fault may be what serves a storage of these names: any with bad disks, else by its own name."""
    if short(node) in {short(name) for name in called} or (reports.names or frozenset()) & set(called):
        return True
    return reports.names is None and _is_of_disks(h)


def _is_of_server(h: Hypothesis) -> bool:
    return _is_of_disks(h) or h.family == IncidentFamily.NODE_DOWN


def _is_of_disks(h: Hypothesis) -> bool:
    return h.family == IncidentFamily.HOST_FAULT and any(s.kind == SignalKind.NODE_STORAGE for s in h.causes)


def _only_hangs(h: Hypothesis) -> bool:
    return h.family == IncidentFamily.HOST_FAULT and all(s.text("subtype") == "hung_task" for s in h.causes)


def _sessions(
    cluster: str, system: str, outages: Sequence[Outage], incarnations: Incarnations
) -> list[Session]:
    outages = _ended(outages)
    names = [Entity(cluster, storage=name) for name in sorted({system, *(o.target for o in outages)})]
    root = Entity(cluster, storage=system)
    again = families().shared.storage.again
    return incarnations.sessions(
        root, families()[FAMILY].domain, [o.interval for o in outages], names, again=again
    )


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
    root: Entity, session: Session, outages: Sequence[tuple[str, Outage]], wide: Collection[str], known: int
) -> SharedFault:
    ids = {s.id for s in session.sightings}
    mine = [(node, o) for node, o in outages if any(s.id in ids for s in o.interval.sightings)]
    nodes = sorted({node for node, _ in mine})
    targets = sorted({o.target for _, o in mine})
    if len(targets) == 1:
        root = Entity(root.cluster, storage=targets[0])
    rule = families().shared.storage
    together = _together(mine, rule.enough(known))
    spared = _is_spared([o for _, o in mine])
    several = bool(together or _together(mine, rule.nodes))
    signs = families().signs(session.sightings, _MAX_SHOWN)
    why = f"{len(nodes)} nodes do not reach {root.storage}: {signs}. They are victims of it"
    if not several:
        why = f"{nodes[0]} does not reach {root.storage}: {signs}. No other node does then, so it may be the node's own fault"
    if session.flaps:
        why += f". It was lost {session.flaps + 1} times"
    # What most nodes lose at one moment harms what waits for it there, however soon it is back; else it must last.
    ready = sorted(
        min(s.seen_at for s in o.interval.sightings)
        + (min(o.lasts, rule.brief) if o.first.id in wide else o.lasts)
        for _, o in mine
    )
    times = session.times()
    if together:
        # What single nodes had before is no part of it.
        times["fault_at"] = min(o.interval.start for _, o in mine if o.first.id in together)
    return SharedFault(
        Hypothesis(
            place=STORAGE.place,
            root=root,
            family=FAMILY,
            **times,
            certainty=Certainty.LIKELY if several else Certainty.WEAK,
            ready_at=ready[min(len(ready), rule.enough(known)) - 1 if together else 0],
            alone=(bool(together) or _goes_on(mine)) and not spared,
            stops=families()[FAMILY].stops if together and not spared else "near",
            brief_until=min(min(s.seen_at for s in o.interval.sightings) + o.lasts for _, o in mine),
            was_brief=all(o.is_brief for _, o in mine),
            rule="shared storage" if several else "storage of one node",
            why=why,
            causes=distinct(session.sightings),
            facts={
                "nodes_hit": len(nodes),
                "storage": tuple(targets[:64]),
                **({SPARED: True} if spared else {}),
            },
            candidates=tuple(
                rejected(
                    Entity(root.cluster, node=node),
                    IncidentFamily.HOST_FAULT,
                    "one node's trouble",
                    "others wait for it too",
                    f"fewer than {rule.nodes} nodes that lose it within {span(rule.together)}; {len(nodes)} did",
                )
                for node in nodes[:_MAX_SHOWN]
                if several
            ),
            nodes=tuple(nodes),
        )
    )


def _is_spared(outages: Sequence[Outage]) -> bool:
    """Whether all that is gone has others that answer in its place, as far as the addresses of its hosts tell."""
    hosts = {_host(s.text("peer")) for o in outages for s in o.interval.sightings} - {""}
    return all(o.replicated for o in outages) and len(hosts) < families().shared.storage.replicas


def _host(peer: str) -> str:
    """The address in what the kernel calls a peer: `(1)10.0.8.61:6805`."""
    return peer.rpartition(")")[2].rpartition(":")[0]


def _goes_on(outages: Sequence[tuple[str, Outage]]) -> bool:
    """Whether a single node goes on telling of it, or loses it again and again."""
    rule, times = families().shared.storage, Counter(node for node, _ in outages)
    return max(times.values()) >= families().recurring.times or any(
        lines[-1].at - lines[0].at >= rule.lasting
        for _, o in outages
        for lines in split_at_gaps(o.interval.sightings, lambda s: s.at, rule.quiet)
    )


def _covers(fault: SharedFault, hit: bool, hung: Hypothesis, within: timedelta) -> bool:
    """Whether hung tasks are the storage's: they are reported from minutes after it is gone until it is back."""
    h = fault.hypothesis
    until = h.cleared_at or max(h.last_at, hung.last_at)
    if not any(h.fault_at - within <= s.at <= until + within for s in hung.causes):
        return False
    return hit or h.certainty is not Certainty.WEAK


def _unnamed(
    cluster: str,
    loose: Sequence[tuple[str, Hypothesis]],
    known: int,
    within: timedelta,
    incarnations: Incarnations,
) -> list[SharedFault]:
    """Hung tasks on many nodes at once."""
    root = Entity(cluster, storage=UNNAMED)
    stretches: list[FiringInterval] = []
    members: dict[str, tuple[str, Hypothesis]] = {}
    for episode in split_at_gaps(loose, lambda p: p[1].fault_at, within):
        if len({node for node, _ in episode}) >= families().shared.storage.hung(known):
            lines = tuple(h.causes[0] for _, h in episode)
            until = lines[-1].at + families().shared.storage.quiet
            stretches.append(FiringInterval(lines[0].at, lines[-1].at, until, lines))
            members |= {h.causes[0].id: (node, h) for node, h in episode}
    return [
        _hanging(root, session, [members[s.id] for s in session.sightings], known)
        for session in incarnations.sessions(root, families()[FAMILY].domain, stretches)
    ]


def _hanging(
    root: Entity, session: Session, mine: Sequence[tuple[str, Hypothesis]], known: int
) -> SharedFault:
    nodes = sorted({node for node, _ in mine})
    rule = families().shared.storage
    ready: list[datetime] = sorted(h.ready_at for _, h in mine)
    until = max(h.fault_at for _, h in mine) + rule.quiet
    hypothesis = Hypothesis(
        place=STORAGE.place,
        root=root,
        family=FAMILY,
        **session.times(*(s.at for _, h in mine for s in h.causes if s.at <= until)),
        certainty=Certainty.LIKELY,
        ready_at=ready[min(len(ready), rule.hung(known)) - 1],
        # A task of a busy host hangs for two minutes now and then: of some hosts that counts where a job stands still.
        alone=len(nodes) >= rule.most(known),
        stops="near",
        rule="hung tasks on many nodes",
        why=f"tasks hang in the kernel on {len(nodes)} nodes within minutes: they wait for a storage that no line names",
        causes=distinct(s for _, h in mine for s in h.causes[:2]),
        facts={"nodes_hit": len(nodes)},
        nodes=tuple(nodes),
    )
    return SharedFault(hypothesis, {h.id: node for node, h in mine})
