"""Unreachable storage: one fault of the target or the file system, however many nodes and jobs wait for it.

A single node that cannot reach it may have a fault of its own; two nodes have not. Processes that hang in the kernel on many
nodes at once wait for storage, even when no line names it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import accumulate

from streams.correlate.hypothesis import Hypothesis, rejected
from streams.correlate.node_rules.node_outages import outage_policy
from streams.correlate.node_rules.shared_groups import SharedFault
from streams.correlate.node_rules.storage_monitoring import (
    UNNAMED,
    monitored,
    of_monitoring,
    only_one,
    witnesses,
)
from streams.correlate.node_rules.storage_names import Outage, one_name
from streams.correlate.node_rules.storage_reports import FAMILY, StorageReports, of_servers, servers_of
from streams.correlate.policy.families import families
from streams.correlate.sightings import distinct, split_at_gaps
from streams.correlate.state.incarnations import (
    FiringInterval,
    Incarnations,
    Session,
)
from streams.correlate.state.place import SERVERS, STORAGE, is_of_storage
from streams.model.clock import span
from streams.model.entity import Entity
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily

SPARED = "others_answer"
"""A fact of a storage of which only parts are gone that others stand in for."""
_MAX_SERVERS = 16
_MAX_SHOWN = 6


def storage_faults(
    cluster: str, evidence: Sequence[tuple[str, StorageReports]], known: int, incarnations: Incarnations
) -> list[SharedFault]:
    """The faults of all storage. `known` is how many nodes the cluster has."""
    within = timedelta(seconds=families().shared.storage.within_s)
    wide: set[str] = set()
    lost: list[tuple[str, Outage]] = []
    for target in _by_target(evidence):
        kept, widely = _without_hiccups(target, known)
        wide |= widely
        lost += kept
    told = [(host, o) for host, w in evidence for o in w.own]
    names = one_name([o for _, o in lost], [o for _, o in told], within)
    by_system: dict[str, list[tuple[str, Outage]]] = defaultdict(list)
    for node, outage in lost:
        by_system[names[outage.system]].append((node, outage))
    by_monitoring: dict[str, list[Outage]] = defaultdict(list)
    for _, outage in told:
        by_monitoring[names[outage.system]].append(outage)
    for system, mine in by_system.items():
        seconded = witnesses(system, mine, by_monitoring.get(system, ()))
        kept = _with_quiet_ends(mine, known, seconded)
        by_system[system] = [*kept, *seconded] if kept else []
    found = [
        _named(
            Entity(cluster, storage=system),
            session,
            by_system[system],
            wide,
            known,
            by_monitoring.get(system, ()),
        )
        for system in sorted(by_system)
        for session in _sessions(cluster, system, [o for _, o in by_system[system]], incarnations)
        if not _is_of_monitoring_alone(session, by_system[system])
    ]
    apart = {system: outages for system, outages in by_monitoring.items() if not by_system.get(system)}
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
    hanging, named = _unnamed(cluster, loose, known, within, incarnations, apart)
    alone = [
        fault
        for system, outages in sorted(apart.items())
        if system not in named
        for fault in _told_alone(cluster, system, outages, incarnations)
    ]
    of_named = [fault for fault in hanging if fault.hypothesis.root.storage != UNNAMED]
    hanging = [fault for fault in hanging if fault.hypothesis.root.storage == UNNAMED]
    found += [*of_named, *alone]
    taken += [dict(fault.parts) for fault in (*of_named, *alone)]
    reached += [frozenset(fault.hypothesis.nodes) for fault in (*of_named, *alone)]
    gone = [(node, h) for node, w in evidence for h in w.gone]
    for i, (fault, parts) in enumerate(zip(found, taken, strict=True)):
        h = fault.hypothesis
        if len(set(parts.values())) >= families().shared.storage.nodes and SPARED in h.facts:
            facts = {name: fact for name, fact in h.facts.items() if name != SPARED}
            h = replace(h, alone=True, facts=facts)
        waiting = reached[i] | frozenset(parts.values())
        if servers := servers_of(h, evidence, known, within):
            parts |= servers
            hosts = tuple(sorted(set(servers.values())))
            why = f"{h.why}. {of_servers(evidence, servers)}"
            h = replace(h, why=why, facts={**h.facts, SERVERS: hosts[:_MAX_SERVERS]})
        with_it = list(_gone_with(h, [(n, away) for n, away in gone if n in waiting], known))
        parts |= {away.id: node for node, away, until in with_it if until is None}
        left = {away.id: until for _, away, until in with_it if until is not None}
        found[i] = replace(fault, hypothesis=h, parts=parts, left=left)
    return found + hanging


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


def _with_quiet_ends(
    outages: Sequence[tuple[str, Outage]], known: int, told: Sequence[tuple[str, Outage]]
) -> list[tuple[str, Outage]]:
    """Outages of one system, with an end for those on a few nodes of which nothing more was said.

    The line that says that it is reached again gets lost, or never comes; without an end, one line of an hour ago would still
    stand for a storage that is gone. A node's only line about it says nothing, unless monitoring says the same (`told`).
    """
    rule = families().shared.storage
    witnessed = [*outages, *told]
    together, near = _together(witnessed, rule.enough(known)), _together(witnessed, rule.nodes)
    found: list[tuple[str, Outage]] = []
    for node, o in outages:
        if o.interval.end is not None or o.first.id in together:
            found.append((node, o))
            continue
        for lines in split_at_gaps(o.interval.sightings, lambda s: s.at, rule.quiet):
            if len(lines) > 1 or lines[0].id in near or "alert" in lines[0].attributes:
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


def _is_of_monitoring_alone(session: Session, outages: Iterable[tuple[str, Outage]]) -> bool:
    """Whether no node says so that mounts the storage: what an alert adds later to an incident that is over."""
    clients = {s.id for node, o in outages if not is_of_storage(node) for s in o.interval.sightings}
    return all(s.id not in clients for s in session.sightings)


def _named(
    root: Entity,
    session: Session,
    outages: Sequence[tuple[str, Outage]],
    wide: Collection[str],
    known: int,
    told: Sequence[Outage],
) -> SharedFault:
    ids = {s.id for s in session.sightings}
    mine = [(node, o) for node, o in outages if any(s.id in ids for s in o.interval.sightings)]
    lost = [(node, o) for node, o in mine if not is_of_storage(node)]
    nodes = sorted({node for node, _ in lost})
    root = _narrowed(root, [o for _, o in lost])
    told = [o for o in told if any(o.meets(p, families().shared.storage.quiet) for _, p in lost)]
    targets = sorted({*(o.target for _, o in lost), *(o.target for o in told), *(o.system for o in told)})
    rule = families().shared.storage
    together = _together(mine, rule.enough(known))
    spared = _is_spared([o for _, o in lost])
    several = bool(together or _together(mine, rule.nodes))
    signs = families().signs(session.sightings, _MAX_SHOWN)
    why = f"{len(nodes)} nodes do not reach {root.storage}: {signs}. They are victims of it"
    if not several:
        why = f"{nodes[0]} does not reach {root.storage}: {signs}. No other node does then, so it may be the node's own fault"
    elif len(nodes) == 1:
        why = f"{nodes[0]} does not reach {root.storage}: {signs}"
    if session.flaps:
        why += f". It was lost {session.flaps + 1} times"
    if told:
        why += f". {of_monitoring(told)}"
    # What most nodes lose at one moment harms what waits for it there, however soon it is back; else it must last.
    # What single nodes lost earlier makes a hiccup that several have no longer.
    counted = [o for _, o in mine if not together or o.first.id in together]
    ready = sorted(
        min(s.seen_at for s in o.interval.sightings)
        + (min(o.lasts, rule.brief) if o.first.id in wide else o.lasts)
        for o in counted
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
            alone=(bool(together) or _goes_on(lost)) and not spared,
            stops=families()[FAMILY].stops if together and not spared else "near",
            brief_until=min(min(s.seen_at for s in o.interval.sightings) + o.lasts for o in counted),
            was_brief=all(o.is_brief for _, o in mine),
            rule="shared storage" if several else "storage of one node",
            why=why,
            causes=distinct(session.sightings),
            context=distinct(s for o in told if not o.firm for s in o.interval.sightings),
            facts={
                "nodes_hit": len(nodes),
                "storage": tuple(targets[:64]),
                **monitored(told),
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


def _narrowed(root: Entity, outages: Sequence[Outage]) -> Entity:
    """The root, more precisely: the target, where it is one, and clients name it."""
    targets = {o.target for o in outages}
    if len(targets) == 1 and any(o.is_named or o.target != o.kind for o in outages):
        return Entity(root.cluster, storage=targets.pop())
    return root


def _goes_on(outages: Sequence[tuple[str, Outage]]) -> bool:
    """Whether a single node goes on telling of it, with no moment at which it reached it again.

    What a few hosts lose for minutes and reach again, however often, is their own: where a job waits for it, that opens it.
    """
    rule = families().shared.storage
    return any(
        lines[-1].at - lines[0].at >= rule.alone
        for _, o in outages
        # Of what comes and goes for hours a row keeps both ends: what is silent for long may have been well in between.
        for lines in split_at_gaps(o.interval.sightings, lambda s: s.at, rule.alone / 3)
    )


def _covers(fault: SharedFault, hit: bool, hung: Hypothesis, within: timedelta) -> bool:
    """Whether hung tasks are the storage's: they are reported from minutes after it is gone until it is back."""
    h = fault.hypothesis
    until = h.cleared_at or max(h.last_at, hung.last_at)
    if not any(h.fault_at - within <= s.at <= until + within for s in hung.causes):
        return False
    return hit or h.certainty is not Certainty.WEAK


def _told_alone(
    cluster: str, system: str, outages: Sequence[Outage], incarnations: Incarnations
) -> list[SharedFault]:
    """What only its monitoring says of a storage: nobody is told before it has lasted, and a person has to look at it."""
    firm, rule = [o for o in outages if o.firm], families().shared.storage
    lasting = [o for o in firm if o.interval.end is None or o.interval.end - o.interval.start >= rule.lasting]
    found = []
    for session in _sessions(cluster, system, lasting, incarnations):
        ids = {s.id for s in session.sightings}
        mine = [o for o in lasting if any(s.id in ids for s in o.interval.sightings)]
        targets = sorted({o.target for o in mine})
        root = Entity(cluster, storage=targets[0] if len(targets) == 1 else system)
        hypothesis = Hypothesis(
            place=STORAGE.place,
            root=root,
            family=FAMILY,
            **session.times(),
            certainty=Certainty.WEAK,
            ready_at=min(s.seen_at for s in session.sightings) + rule.lasting,
            stops="never",
            rule="storage by its monitoring",
            why=f"{of_monitoring(mine)} for {span(rule.lasting)}, and no node says that it does not reach it",
            causes=distinct(session.sightings),
            facts={"nodes_hit": 0, "storage": tuple(targets[:64]), **monitored(mine)},
        )
        found.append(SharedFault(hypothesis, {}))
    return found


def _unnamed(
    cluster: str,
    loose: Sequence[tuple[str, Hypothesis]],
    known: int,
    within: timedelta,
    incarnations: Incarnations,
    told: Mapping[str, Sequence[Outage]],
) -> tuple[list[SharedFault], set[str]]:
    """Hung tasks on many nodes at once. Returns them, and which of the storages that monitoring reports (`told`) they wait for.

    Beside the one storage that is not reached by what its monitoring says fewer are enough.
    """
    stretches: dict[str, list[FiringInterval]] = defaultdict(list)
    members: dict[str, tuple[str, Hypothesis]] = {}
    for episode in split_at_gaps(loose, lambda p: p[1].fault_at, within):
        lines = tuple(h.causes[0] for _, h in episode)
        system, firm = only_one(told, lines[0].at, lines[-1].at)
        rule = families().shared.storage
        needed = rule.enough(known) if firm else rule.hung(known)
        if len({node for node, _ in episode}) >= needed:
            # What monitoring still calls gone is gone, though a kernel reports ten hung tasks and then none.
            ends = [o.interval.end for o in told.get(system, ()) if o.firm]
            until = (
                None
                if None in ends
                else max([lines[-1].at + rule.quiet, *(e for e in ends if e is not None)])
            )
            stretches[system].append(FiringInterval(lines[0].at, lines[-1].at, until, lines))
            members |= {h.causes[0].id: (node, h) for node, h in episode}
    faults = [
        _hanging(root, session, [members[s.id] for s in session.sightings], known, told.get(system, ()))
        for system, found in sorted(stretches.items())
        for root in (Entity(cluster, storage=system),)
        for session in incarnations.sessions(root, families()[FAMILY].domain, found)
    ]
    return faults, stretches.keys() - {UNNAMED}


def _hanging(
    root: Entity,
    session: Session,
    mine: Sequence[tuple[str, Hypothesis]],
    known: int,
    told: Sequence[Outage],
) -> SharedFault:
    nodes = sorted({node for node, _ in mine})
    rule = families().shared.storage
    ready: list[datetime] = sorted(h.ready_at for _, h in mine)
    until = max(h.fault_at for _, h in mine) + rule.quiet
    targets = sorted({o.target for o in told})
    if len(targets) == 1:
        root = Entity(root.cluster, storage=targets[0])
    firm = any(o.firm for o in told)
    what = "they wait for a storage that no line names"
    if told:
        what = f"they wait for {root.storage}, the only storage that is complained of then. {of_monitoring(told)}"
    hypothesis = Hypothesis(
        place=STORAGE.place,
        root=root,
        family=FAMILY,
        **session.times(*(s.at for _, h in mine for s in h.causes if s.at <= until)),
        certainty=Certainty.LIKELY,
        ready_at=ready[min(len(ready), rule.enough(known) if firm else rule.hung(known)) - 1],
        # A task of a busy host hangs for two minutes now and then: of some hosts that counts where a job stands still.
        alone=firm or len(nodes) >= rule.most(known),
        stops="near",
        rule="hung tasks on many nodes",
        why=f"tasks hang in the kernel on {len(nodes)} nodes within minutes: {what}",
        causes=distinct(
            (
                *(s for o in told if o.firm for s in o.interval.sightings),
                *(s for _, h in mine for s in h.causes[:2]),
            )
        ),
        context=distinct(s for o in told if not o.firm for s in o.interval.sightings),
        facts={
            "nodes_hit": len(nodes),
            **({"storage": tuple(targets[:64])} if told else {}),
            **monitored(told),
        },
        nodes=tuple(nodes),
    )
    return SharedFault(hypothesis, {h.id: node for node, h in mine})
