"""Faults of a switch: hosts and switches around it that lose their links to it within a minute.

One host's link is a NIC or a cable; three neighbours' links are the switch between them, and none of the hosts is at fault. Where
nobody knows which switch a host is attached to, many hosts at once are still one fault of the fabric, somewhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import groupby, pairwise

from streams.correlate.fabric_rules.links import LinkFault, LinkVerdict, link_hypothesis, verdict
from streams.correlate.fabric_rules.lossy_switches import READ_LATE, Loss
from streams.correlate.fabric_rules.nic_timeline import LinkEvent
from streams.correlate.fabric_rules.resending_hosts import FeltLoss, felt_hypothesis, felt_members
from streams.correlate.fabric_rules.switch_orders import OrderAt, held_back, no_orders, unfelt
from streams.correlate.hypothesis import (
    BY_JOBS,
    DROPS,
    ERROR_COUNTERS,
    FAR_END_UNKNOWN,
    LEAF_GUESSED,
    SOLE,
    SOMEWHERE,
    UNCABLED,
    Blame,
    Hypothesis,
    rejected,
)
from streams.correlate.policy.config import Config
from streams.correlate.policy.families import families
from streams.correlate.sightings import Sighting, distinct, latest_end, order
from streams.correlate.state.incarnations import FiringInterval, Incarnations, Session
from streams.correlate.state.place import Place, PlaceKind
from streams.model.clock import span
from streams.model.entity import WENT_WITH, Entity
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily
from streams.model.signal import Attribute

FAMILY = IncidentFamily.FABRIC_FAULT
BY_VOTES = "failing leaf"
_LEAST_PAIRS = 3
"""So many pairs of a job's nodes must fail before it points at the network between them."""


@dataclass(frozen=True, slots=True)
class SwitchFault:
    """A root, and the link faults that follow from it."""

    hypothesis: Hypothesis
    members: Mapping[Place, datetime]
    """When the first link was lost at each place."""
    by_hosts: bool = False
    """Whether a host reports itself that it lost its link: it runs on."""
    ordered: bool = False
    """Whether somebody ordered work that takes (nearly all of) its links away."""
    links: Mapping[Place, LinkFault] = field(default_factory=dict, compare=False)
    """What was lost at each place; what of it matters to others is in the rest."""


@dataclass(slots=True)
class LinkFaultsBySwitch:
    """Which link faults there are around each switch; kept up to date place by place."""

    _of: dict[Place, tuple[LinkFault, ...]] = field(default_factory=dict)
    _around: dict[str, dict[Place, tuple[LinkFault, ...]]] = field(default_factory=lambda: defaultdict(dict))

    def put(self, place: Place, faults: Sequence[LinkFault]) -> set[str]:
        """Replace the faults of one place. Returns the switches around which something changed."""
        before, after = self._of.pop(place, ()), tuple(faults)
        if before == after:
            if after:
                self._of[place] = after
            return set()
        touched = {switch for fault in (*before, *after) for switch in fault.switches}
        for switch in touched:
            mine = tuple(f for f in after if switch in f.switches)
            if mine:
                self._around[switch][place] = mine
            else:
                self._around[switch].pop(place, None)
                if not self._around[switch]:
                    del self._around[switch]
        if after:
            self._of[place] = after
        return touched

    def all_of_hosts(self) -> Iterable[tuple[str, LinkFault]]:
        """All faults of links of hosts that are not missed themselves, each with its host."""
        return (
            (p.name, fault)
            for p, faults in self._of.items()
            if p.kind is PlaceKind.NODE
            for fault in faults
            if not fault.gone
        )

    def lost_at(self, place: Place) -> set[str]:
        """The switches to which links of one place are at fault."""
        return {switch for fault in self._of.get(place, ()) for switch in fault.switches}

    def around(self, switch: str) -> list[LinkFault]:
        """The faults of links to one switch, in the order of their places, without those of hosts that are missed themselves."""
        return [fault for fault in self.all_around(switch) if not fault.gone]

    def all_around(self, switch: str) -> list[LinkFault]:
        """The same with those of hosts that are missed."""
        places = self._around.get(switch, {})
        return [fault for place in sorted(places) for fault in places[place]]


def switch_faults(
    cluster: str,
    switch: str,
    around: Sequence[LinkFault],
    blames: Sequence[Blame],
    known: int,
    incarnations: Incarnations,
    config: Config,
    shared: Callable[[Set[str]], Entity | None] = lambda nodes: None,
    ailing: Callable[[datetime, Set[str]], Sighting | None] = lambda at, hosts: None,
    ordered: OrderAt = no_orders,
    idle: Callable[[Set[str], datetime], bool] = lambda nodes, at: False,
    losses: Sequence[Loss] = (),
    felt: Sequence[FeltLoss] = (),
) -> list[SwitchFault]:
    """The times when a switch was at fault: by the links that were lost around it, by what jobs blame it for, by its drops, or by
    what its hosts alone show of them (`felt`).

    `known` is how many neighbours it has as far as known, 0 for unknown. Where the switch is not known, the one that reports
    trouble as these hosts lost their links (`ailing`) is named, else what they share otherwise (`shared`: a block, a row).
    Where somebody `ordered` that a known switch goes down, any link to it that is lost is part of that. `idle` tells whether it
    is known that nothing ran on these hosts at a time.
    """
    least = config.leaf_neighbours if switch else config.somewhere_neighbours
    falls = sorted(
        ((m, fault) for fault in around for m in _falls(fault, switch, config)),
        key=lambda p: order(p[0].sighting),
    )
    blames = blames if switch else _of_several_jobs(blames, config)
    lost = [(m, fault) for m, fault in falls if switch or not _is_brief(m, config)]
    # Somewhere in a large cluster links bounce all the time: those that do so at one moment have a reason in common. A link
    # that has trouble of its own besides keeps it.
    bounced = (
        [] if switch else [p for p in falls if _is_brief(p[0], config) and not verdict(p[1], config).alone]
    )
    taken = [p for p in lost if switch and ordered(p[0].at, p[1].root.node) is not None]
    unasked = [p for p in lost if p not in taken] if taken else lost
    root = Entity(cluster, switch=switch) if switch else Entity(cluster)
    by_root: dict[Entity, list[FiringInterval]] = defaultdict(list)
    members: dict[str, tuple[LinkEvent, LinkFault]] = {}
    for episode in (
        *_episodes(switch, taken, 1, config.leaf_window, config),
        *_episodes(switch, unasked, least, config.leaf_window, config),
        *_episodes(switch, bounced, least, config.together, config),
    ):
        first: dict[Place, tuple[LinkEvent, LinkFault]] = {}
        for m, fault in episode:
            first.setdefault(fault.place, (m, fault))
        lines = tuple(m.sighting for m, _ in first.values())
        end = mostly_over([_end(fault, switch) for _, fault in first.values()], config)
        hosts = {fault.root.node for _, fault in first.values() if fault.root.node}
        said = None if switch else ailing(lines[0].at, hosts)
        where = (
            replace(root, switch=said.entity.switch) if said else root if switch else shared(hosts) or root
        )
        by_root[where].append(FiringInterval(lines[0].at, episode[-1][0].at, end, lines))
        members |= {m.sighting.id: (m, fault) for m, fault in first.values()}
    blamed = {blame.lines[0].id: blame for blame in blames}
    by_root[root] += [FiringInterval(b.start, b.lines[0].at, None, b.lines[:1]) for b in blames]
    by_root[root] += [loss.interval for loss in losses]
    for one in felt:
        by_root[one.root].append(one.interval)
    began = {one.interval.start for one in felt}
    lossy = {s.id: loss for loss in losses for s in loss.interval.sightings}
    found = []
    sessions = [
        (where, session)
        for where in sorted(by_root, key=lambda r: r.key)
        # One that comes back and goes again within the hour is the same one.
        # What its hosts feel is told apart from links that it loses: after a restart it may be up again, without its settings.
        for session in incarnations.sessions(
            where, "fabric", by_root[where], again=config.link_again, meant=began.__contains__
        )
    ]
    for where, session in sessions:
        mine = [members[s.id] for s in session.sightings if s.id in members]
        voters = [blamed[s.id] for s in session.sightings if s.id in blamed]
        here = {s.id for s in session.sightings}
        if mine_felt := [
            f for f in felt if f.root == where and not here.isdisjoint(s.id for s in f.interval.sightings)
        ]:
            found.append(
                SwitchFault(felt_hypothesis(where, session, mine_felt, config), felt_members(mine_felt))
            )
            continue
        if not mine and not voters:
            found.append(SwitchFault(_drops(where, session, lossy, config), {}))
            continue
        if not mine:
            found.append(SwitchFault(_voted(where, session, voters, config), {}))
            continue
        hypothesis = _lost(switch, where, session, [fault for _, fault in mine], voters, known, config)
        hosts = {fault.root.node for _, fault in mine if fault.root.node}
        if (said := ailing(session.start, hosts) if where.switch and not switch else None) is not None:
            hypothesis = _by_its_words(hypothesis, said)
        if not switch and all(_is_brief(m, config) for m, _ in mine):
            hypothesis = replace(hypothesis, alone=False)
        if hosts and not voters and idle(hosts, session.start):
            hypothesis = unfelt(hypothesis, session.start + config.spine_alone)
        is_ordered = False
        if not voters:
            hosts_lost_at = [(m.at, fault.root.node) for m, fault in mine]
            held = held_back(hypothesis, hosts_lost_at, ordered, config)
            is_ordered = held is not hypothesis
            if is_ordered and switch and not any(fault.names_neighbour for _, fault in mine):
                # Nobody but the switch misses what hung there: its hosts may be off for the same work.
                held = replace(held, alone=False)
            hypothesis = held
        by_hosts = any(fault.by_host for _, fault in mine)
        lost_at = {fault.place: m.at for m, fault in reversed(mine)}
        links = {fault.place: fault for _, fault in reversed(mine)}
        found.append(SwitchFault(hypothesis, lost_at, by_hosts, is_ordered, links))
    return found


def _by_its_words(h: Hypothesis, said: Sighting) -> Hypothesis:
    """The fault of a switch that nobody is known to be attached to: which one it is, it tells itself, or its manager."""
    return replace(
        h,
        certainty=Certainty.LIKELY,
        why=f"{h.why}. {h.root} alone was told to fail in these minutes, so it is taken for the one",
        context=(*h.context, said),
    )


def _lost(
    switch: str,
    root: Entity,
    session: Session,
    faults: Sequence[LinkFault],
    voters: Sequence[Blame],
    known: int,
    config: Config,
) -> Hypothesis:
    """A switch whose neighbours lost their links to it; `switch` is empty where their cables do not tell which it is."""
    neighbours = {fault.neighbour_of(switch) for fault in faults}
    hosts = sorted({fault.root.node for fault in faults if fault.root.node})
    named = {fault.neighbour_of(switch) for fault in faults if fault.names_neighbour}
    # What is not known by name is counted in ports, and those it is compared with are hosts and switches.
    most = bool(switch) and known > 0 and 2 * len(named) >= known
    where = f"switch {switch}" if switch else "one switch, which one is not known"
    if root.switch is None and root.kind != "cluster":
        where = f"one switch of {root}"
    # Neighbours that only ports of other switches tell are not among those known.
    share = f" of {known}" if most and known >= len(neighbours) else ""
    # A switch whose hosts lost their power tells the same until their kubelets are missed.
    wait = config.storm_settle if any(fault.by_host for fault in faults) else config.node_settle * 2
    if not switch:
        wait = max(wait, config.link_settle)
    # Between switches there are other ways: one that restarts without harm to a host or a job is its operators' business,
    # however certain it is that all of its links are gone.
    spine = switch and not hosts and not voters
    alone = session.start + config.spine_alone if spine and all(f.names_neighbour for f in faults) else None
    facts: dict[str, Attribute] = {
        "source": str(root) if root.kind != "cluster" else "the fabric",
        "hosts": tuple(hosts[:64]),
        "links_lost": len(faults),
        "neighbours": len(neighbours),
    }
    found = Hypothesis(
        place=Place(PlaceKind.SWITCH, switch),
        root=root,
        family=FAMILY,
        **session.times(),
        certainty=Certainty.DECISIVE if most else Certainty.LIKELY,
        ready_at=min(s.seen_at for s in session.sightings) + wait,
        rule="many links of one switch",
        lag=config.scrape,
        stops=families()[FAMILY].stops,
        why=f"{len(neighbours)}{share} neighbours of {where} lost their links to it within a minute: "
        "no host is at fault, so none is closed",
        causes=session.sightings,
        jobs=tuple(sorted({b.job for b in voters}, key=lambda j: j.key)),
        facts=facts,
        candidates=tuple(
            rejected(
                fault.root,
                IncidentFamily.NIC_LINK,
                "one host's link",
                "its neighbours failed with it",
                f"fewer than {config.leaf_neighbours if switch else config.somewhere_neighbours} neighbours that lose "
                f"their links to one switch within {span(config.leaf_window)}; {len(neighbours)} did",
            )
            for fault in faults[:6]
        ),
    )
    return unfelt(found, alone) if alone is not None else found


def _voted(root: Entity, session: Session, voters: Sequence[Blame], config: Config) -> Hypothesis:
    """A switch that jobs blame and that says nothing itself: packets are lost, no link is. Where nobody knows which, several
    jobs say so at once.
    """
    jobs = sorted({b.job for b in voters}, key=lambda j: j.key)
    first = min(voters, key=lambda b: (b.start, b.job.key))
    many = f"; {len(jobs) - 1} more job(s) say the same" if len(jobs) > 1 else ""
    if root.switch is None:
        many += ": something between their nodes is at fault, which switch is not known"
    return Hypothesis(
        place=Place(PlaceKind.SWITCH, root.switch or SOMEWHERE),
        root=root,
        family=FAMILY,
        incarnation=session.incarnation,
        certainty=Certainty.LIKELY,
        fault_at=min(b.start for b in voters),
        last_at=max(b.last for b in voters),
        ready_at=min(b.ready_at for b in voters),
        rule=BY_VOTES if root.switch else BY_JOBS,
        lag=config.scrape,
        stops=families()[FAMILY].stops,
        why=f"{first.job}: {first.why}{many}; no host is at fault, so none is closed",
        cleared_at=session.cleared_at,
        flaps=session.flaps,
        causes=distinct(s for b in voters for s in b.lines),
        jobs=tuple(jobs),
        facts={"source": str(root), "failing_pairs": sum(b.pairs for b in voters)},
    )


def _drops(root: Entity, session: Session, lossy: Mapping[str, Loss], config: Config) -> Hypothesis:
    """A switch whose links all work, and that drops packets for most of its hosts. Only what a job fails of it makes it a fault.

    Where nobody made the fabric lossless it drops all day, and jobs go on.
    """
    losses = list(
        {id(loss): loss for s in session.sightings if (loss := lossy.get(s.id)) is not None}.values()
    )
    hosts = sorted({host for loss in losses for host in loss.hosts})
    nics = sorted({nic for loss in losses for nic in loss.nics})
    known = max(loss.known for loss in losses)
    why = f"{root} drops what is sent to {len(hosts)} of its {known} hosts, and {', '.join(nics[:4])} of theirs send again"
    facts: dict[str, Attribute] = {
        "source": str(root),
        "hosts": tuple(hosts[:64]),
        "link": DROPS,
        "nics": tuple(nics),
        "neighbours": known,
    }
    if all(loss.sole for loss in losses):
        facts[SOLE] = True
    if not known:
        ports = max(loss.ports for loss in losses)
        felt = f", and {', '.join(nics[:4])} of {len(hosts)} hosts send again" if hosts else ""
        why = f"{root} drops at {ports} of its ports, and no other switch at half as many{felt}"
        why += ". Which hosts hang on it is not known"
        facts |= {UNCABLED: True, "ports": ports}
    return Hypothesis(
        place=Place(PlaceKind.SWITCH, root.switch or SOMEWHERE),
        root=root,
        family=FAMILY,
        **session.times(),
        certainty=Certainty.LIKELY,
        ready_at=min(s.seen_at for s in session.sightings) + config.storm_settle,
        rule=DROPS,
        lag=READ_LATE,
        stops=families()[FAMILY].stops,
        alone=False,
        why=f"{why}: its queues or their configuration (PFC, buffers); no host is at fault, so none is closed",
        causes=session.sightings,
        context=distinct(s for loss in losses for s in loss.retransmits),
        facts=facts,
    )


def _of_several_jobs(blames: Sequence[Blame], config: Config) -> list[Blame]:
    """Those that meet nowhere which began with another job's, and what follows soon after: a job alone may have two ill nodes."""
    ordered = sorted(blames, key=lambda b: (b.start, b.job.key))
    wide = (b for b in ordered if b.pairs >= _LEAST_PAIRS)
    # Of blames in order of time that of another job which is nearest is beside the stretch of its own job's.
    stretches = [list(mine) for _, mine in groupby(wide, key=lambda b: b.job)]
    together: set[int] = set()
    for one, other in pairwise(stretches):
        together.update(id(b) for b in one if other[0].start - b.start <= config.leaf_window)
        together.update(id(b) for b in other if b.start - one[-1].start <= config.leaf_window)
    found: list[Blame] = []
    until: datetime | None = None
    for blame in ordered:
        if id(blame) in together or (until is not None and blame.start <= until):
            found.append(blame)
            ends = blame.last + config.link_quiet
            until = ends if until is None else max(until, ends)
    return found


def explains(switch: Hypothesis, other: Hypothesis) -> bool:
    """Whether what one place shows follows from what is wrong with its switch, or from what its hosts share that went dark."""
    if switch.root.part is not None and switch.root.part.kind == WENT_WITH:
        return other.family in (
            IncidentFamily.NIC_LINK,
            IncidentFamily.NODE_DOWN,
            IncidentFamily.POWER_COOLING,
            FAMILY,
        )
    if switch.family != FAMILY:
        return other.family == switch.family
    return other.family in families()[FAMILY].explains or other.family == FAMILY


def uplink_fault(
    fault: LinkFault,
    ends: Sequence[str],
    config: Config,
    *,
    known: bool = True,
    rack: int | None = None,
) -> Hypothesis:
    """A cable between two switches as a root. `ends` are its ports by name, the root's first. It closes no host.

    Where the other end is not `known`, it is no incident by itself, for hosts come and go there. `rack` is the number of the rack
    of which its switch is the leaf, where only its name tells what hangs on it.
    """
    found = verdict(fault, config)
    cable = f"the cable between {' and '.join(ends)}" if known else f"{ends[0]}, whose other end is not known"
    says = found.says if rack is None else _with_errors(fault, found)
    why = f"{cable}: {says}; it belongs to no host{'' if known else ' that is known'}, so none is closed"
    if rack is not None:
        switch = fault.root.switch
        why += f". That rack {rack} hangs on {switch} is a guess from its name: look whether the port is an uplink"
    facts: dict[str, Attribute] = {
        "source": str(fault.root),
        "uplink": True,
        "link": found.rule,
        "ends": tuple(ends),
    }
    if not known:
        facts[FAR_END_UNKNOWN] = True
    if rack is not None:
        facts[LEAF_GUESSED] = True
    hypothesis = link_hypothesis(fault, found, FAMILY, why, facts, config)
    return replace(hypothesis, rule=f"uplink: {found.rule}", alone=hypothesis.alone and known)


def _with_errors(fault: LinkFault, found: LinkVerdict) -> str:
    """What is found of a link that makes errors, with the counters that show them."""
    errors = [m.sighting for m in fault.events if m.part == "errors"]
    counters = sorted({counter for s in errors if (counter := s.text("counter"))})
    named = f" ({', '.join(counters[:4])})" if counters else ""
    return f"{found.says}{'' if found.rule == ERROR_COUNTERS else ', and it makes errors'}{named}"


def falls_at(fault: LinkFault, switch: str) -> Iterable[LinkEvent]:
    """Every report that a link of it went down, without those of its host's links to other switches."""
    for m in fault.events:
        if m.part not in ("down", "bounced"):
            continue
        # A cable between two switches goes by the name of one of them.
        elsewhere = fault.place.kind is PlaceKind.NODE and m.name.switch not in (None, switch)
        if not (switch and elsewhere):
            yield m


def _falls(fault: LinkFault, switch: str, config: Config) -> Iterable[LinkEvent]:
    """Every time a link of it to the switch went down."""
    last: datetime | None = None
    for m in falls_at(fault, switch):
        if last is None or m.at - last > config.skew:
            last = m.at
            yield m


def _is_brief(m: LinkEvent, config: Config) -> bool:
    """Whether a link came back too soon to have been down."""
    return m.end is not None and m.end - m.start < config.link_settle


def _episodes(
    switch: str, lost: Sequence[tuple[LinkEvent, LinkFault]], least: int, window: timedelta, config: Config
) -> list[list[tuple[LinkEvent, LinkFault]]]:
    """Stretches in which enough neighbours lost their links within the window; overlapping ones are one."""
    found: list[list[tuple[LinkEvent, LinkFault]]] = []
    until: datetime | None = None
    counts: dict[tuple[bool, str], int] = defaultdict(int)
    begin = 0
    taken = 0
    for number, (m, fault) in enumerate(lost):
        counts[fault.names_neighbour, fault.neighbour_of(switch)] += 1
        while m.at - lost[begin][0].at > window:
            gone = (lost[begin][1].names_neighbour, lost[begin][1].neighbour_of(switch))
            counts[gone] -= 1
            if not counts[gone]:
                del counts[gone]
            begin += 1
        if len(counts) < least or _hosts(sum(named for named, _ in counts), len(counts), config) < least:
            continue
        start = max(begin, taken)
        if found and until is not None and lost[begin][0].at <= until:
            found[-1] += lost[start : number + 1]
        else:
            found.append(list(lost[start : number + 1]))
        taken, until = number + 1, m.at
    return found


def _hosts(named: int, ends: int, config: Config) -> int:
    """How many neighbours so many ends are at least, of which so many are known by name."""
    return named - (named - ends) // config.ports_a_host


def mostly_over(ends: Sequence[datetime | None], config: Config) -> datetime | None:
    """When a switch or a host is well again: all but a few of its links are up. Of many lines that say so some are lost."""
    known = sorted(end for end in ends if end is not None)
    return known[-1] if len(known) >= config.leaf_share_up * len(ends) else None


def _end(fault: LinkFault, switch: str) -> datetime | None:
    return latest_end(m.end for m in falls_at(fault, switch))
