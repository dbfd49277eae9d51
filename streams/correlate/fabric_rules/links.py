"""Link faults: what a host and its switch report about one cable, combined into one fault.

Links of one host that fail together fail of one cause. A link that came back at once is a bounce: it may explain a job's error,
and is no incident by itself. The third time it flaps (gpud, ib flap: three times down).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from streams.correlate.fabric_rules.nic_timeline import (
    LinkEvent,
    counted_since,
    how_many,
    link_events,
    of_port,
)
from streams.correlate.hypothesis import ERROR_COUNTERS, LINK_FLAPS, Hypothesis
from streams.correlate.policy.config import Config
from streams.correlate.policy.families import families
from streams.correlate.policy.link_parts import BROKEN, first_break, parts
from streams.correlate.sightings import Sighting, latest_end
from streams.correlate.state.incarnations import Incarnations, firing_intervals
from streams.correlate.state.nic_names import NO_NAMES, NicNames, nic_names
from streams.correlate.state.node_work import work_at
from streams.correlate.state.place import Place, PlaceKind
from streams.correlate.state.rows import NodeRow, PortRow
from streams.model.entity import Entity
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily, SignalKind
from streams.model.signal import MANAGER, Attribute

FAMILY = IncidentFamily.NIC_LINK
MAINTENANCE = "planned maintenance"
GONE = "the host itself is gone"


@dataclass(frozen=True, slots=True)
class LinkFault:
    """A cable's or NIC's trouble from its first moment on; several NICs of one host when they failed together."""

    place: Place
    """Where it is evaluated: a node, or the port of a cable between switches."""
    root: Entity
    incarnation: int
    events: tuple[LinkEvent, ...]
    context: tuple[Sighting, ...] = ()
    switches: frozenset[str] = frozenset()
    """The switches it is attached to, as far as known; labels of leaves count."""
    gone: bool = False
    """Whether the host is missed as well, and says nothing of its links: it may have taken them along."""

    @property
    def start(self) -> datetime:
        """When the first trouble was seen; of errors that a counter shows, the sample that they began after."""
        first = self.events[0]
        return (counted_since(first.sighting) if first.part == "errors" else None) or first.at

    @property
    def last(self) -> datetime:
        """When the latest was."""
        return max(m.at for m in self.events)

    def neighbour_of(self, switch: str) -> str:
        """The neighbour of a switch that lost the link: a host, or the switch at the other end; the port where nobody knows."""
        if self.root.node:
            return self.root.node
        others = self.switches - {switch, ""}
        return min(others) if len(others) == 1 and switch in self.switches else self.root.key

    @property
    def names_neighbour(self) -> bool:
        """Whether the other end of its cable is known. Ports whose ends are not may be one host's."""
        return self.place.kind is PlaceKind.NODE or len(self.switches - {""}) > 1

    @property
    def by_host(self) -> bool:
        """Whether the host itself reports that its link is down: then it has not lost power."""
        return any(m.by_host and m.part == "down" for m in self.events)

    def downs(self, skew: timedelta) -> list[datetime]:
        """Every time a link of it went down: host, switch and the counters that are read afterwards counted once."""
        falls = [m for m in self.events if m.part in ("down", "bounced")]
        # One fall that is reported under several names is one: of each, what the first to report it says counts.
        first = {(m.nic, m.start, m.name.switch): m.name.nic for m in reversed(falls)}
        falls = [m for m in falls if first[m.nic, m.start, m.name.switch] == m.name.nic]
        seen = [m.at for m in falls if counted_since(m.sighting) is None]
        found: list[datetime] = []
        for m in falls:
            since = counted_since(m.sighting)
            if since is not None and any(since - skew <= at <= m.at + skew for at in seen):
                continue
            if not found or m.at - found[-1] > skew:
                found.append(m.at)
        return found


@dataclass(frozen=True, slots=True)
class LinkVerdict:
    """How far the evidence of one fault goes. `alone` is False for what is no incident unless a job suffers from it."""

    rule: str
    certainty: Certainty
    ready_at: datetime
    says: str
    alone: bool = True
    cleared_at: datetime | None = None
    flaps: int = 0
    lasting: bool = False
    brief_until: datetime | None = None
    """It may be over by itself until then: told before only when a job suffers from it."""
    was_brief: bool = False
    """It was."""


def host_links(
    cluster: str,
    node: str,
    seen: Sequence[Sighting],
    ports: Mapping[str, PortRow],
    row: NodeRow,
    incarnations: Incarnations,
    config: Config,
) -> list[LinkFault]:
    """The link faults of a host, sorted by when they began. `ports` are the switch ports with this node at their end."""
    fact, names = row.fact, nic_names(row.nics)
    # What another device says of a node by name may be meant of a switch, where unknown such a node.
    reports = [
        (s, Entity(cluster, node=node, nic=s.entity.nic))
        for s in seen
        if s.kind == SignalKind.FABRIC_LINK and (fact is not None or s.entity.nic or not s.text("node"))
    ]
    reports += [
        (s, Entity(cluster, node=node)) for row in ports.values() if row.link is None for s in of_port(row)
    ]
    reports += [
        (s, Entity(cluster, node=node, nic=row.link.nic, switch=row.link.switch, port=row.link.port))
        for row in ports.values()
        if row.link is not None
        for s in of_port(row)
    ]
    if not reports:
        return []
    cabled: dict[str | None, str] = {row.link.nic: row.link.switch for row in ports.values() if row.link}
    for rail, switch in fact.rails.items() if fact else ():
        cabled.setdefault(rail, switch)
    leaf = fact.leaf if fact else None
    shut = [
        s.at
        for s in seen
        if s.firing and s.kind == SignalKind.NODE_MAINTENANCE and s.text("subtype") in _GOES
    ]
    back = max((s.at for s in seen if not s.firing and s.kind == SignalKind.FABRIC_LINK), default=None)
    events = [m for m in link_events(reports, names, config) if not _went_with_host(m, shut, back, config)]
    faults = _grouped(Place(PlaceKind.NODE, node), "link", events, incarnations, config)
    return [replace(fault, switches=_switches(fault, names, cabled, leaf)) for fault in faults]


_GOES = ("shutdown", "reboot")


def _went_with_host(m: LinkEvent, shut: Iterable[datetime], back: datetime | None, config: Config) -> bool:
    """Whether a link went down because its host shut down in order; one that stays down when others are back did not."""
    if m.part != "down" or (m.end is None and m.by_host and back is not None and back > m.at):
        return False
    return any(-config.skew <= m.at - at <= config.before for at in shut)


def uplink(
    name: str, root: Entity, ends: Sequence[PortRow], incarnations: Incarnations, config: Config
) -> list[LinkFault]:
    """The faults of a cable between two switches, or of a port with an unknown end. `ends` are its ports' rows."""
    reports = [(s, root) for row in ends for s in of_port(row)]
    switches = {row.link.switch for row in ends if row.link} | {
        row.link.peer_switch for row in ends if row.link and row.link.peer_switch
    }
    faults = _grouped(
        Place(PlaceKind.PORT, name), "fabric", link_events(reports, NO_NAMES, config), incarnations, config
    )
    return [replace(f, switches=frozenset(switches | {root.switch or ""})) for f in faults]


def verdict(fault: LinkFault, config: Config) -> LinkVerdict:
    """What the evidence of the fault amounts to by itself."""
    downs = fault.downs(config.skew)
    down = [m for m in fault.events if m.part == "down"]
    flapping = len(downs) >= config.flaps
    # Of a link that flaps, the latest fall will most likely end like those before: it would be hard and soft in turns.
    lasting = [
        m for m in down if (m.end is None and not flapping) or (m.end or m.at) - m.start >= config.link_settle
    ]
    device = [m for m in fault.events if m.part == "device"]
    cleared_at = _cleared_at(fault, flapping, config)
    flaps = max(len(downs) - 1, 0)

    def context(
        rule: str, certainty: Certainty, ready_at: datetime, says: str, alone: bool = True
    ) -> LinkVerdict:
        return LinkVerdict(rule, certainty, ready_at, says, alone, cleared_at, flaps, bool(lasting))

    if flapping:
        third = min(m.sighting.seen_at for m in fault.events if m.at >= downs[config.flaps - 1])
        return context(LINK_FLAPS, Certainty.LIKELY, third, f"its link went down {len(downs)} times")
    if lasting:
        seen_at = min(m.sighting.seen_at for m in lasting)
        found = context("link down", Certainty.LIKELY, seen_at + config.link_settle, "its link is down")
        # Between switches there are other ways, and cables there are moved all the time.
        between = fault.place.kind is PlaceKind.PORT and fault.names_neighbour
        patience = config.spine_alone if between else config.link_alone
        over = all(m.end is not None and m.end - m.start < patience for m in lasting)
        return replace(found, brief_until=seen_at + patience, was_brief=over)
    if device:
        # Firmware that asserts pauses the port, or loses the link, within seconds, which is told under another name.
        ready_at = min(m.sighting.seen_at for m in device) + config.link_settle
        if all(m.end is not None and m.end - m.start < config.link_settle for m in device):
            return context(
                "device reset", Certainty.LIKELY, ready_at, "the device was reset and works", False
            )
        return context("device failed", Certainty.LIKELY, ready_at, "the device reports that it failed")
    ready_at = min(m.sighting.seen_at for m in fault.events)
    settled = ready_at + config.link_settle
    if (both := _errs_at_both_ends(fault)) and _loses_packets(fault):
        began = max(end[0].start for end in both)
        # Whoever seats its optic anew takes it down at last.
        if not downs or downs[0] - began >= config.spine_alone:
            says = "both of its ends count errors and its NIC loses packets"
            found = context(ERROR_COUNTERS, Certainty.LIKELY, settled, says)
            lasts = (any(m.end is None or m.end - m.start >= config.spine_alone for m in end) for end in both)
            second = max(end[0].sighting.seen_at for end in both)
            return replace(found, brief_until=second + config.spine_alone, was_brief=not all(lasts))
    if downs:
        return context("link bounced", Certainty.LIKELY, ready_at, "its link went down and came back", False)
    # Failing optics take their link down within seconds, and the link down is reported under another name. A link that works
    # with errors costs nobody anything until a job suffers from it: between switches, see `cable_errors.py`.
    narrow = any(m.sighting.text("subtype") in parts().degraded for m in fault.events)
    alone = fault.place.kind is not PlaceKind.NODE and narrow
    return context(ERROR_COUNTERS, Certainty.WEAK, settled, "its link works with errors", alone)


def _errs_at_both_ends(fault: LinkFault) -> tuple[list[LinkEvent], list[LinkEvent]] | None:
    """What counters of the host, and of the switch, show of errors of its only link; None where just one of them does.

    A bad optic, a dirty connector or a bent cable shows at both; a receiver or a counter that is off, at its own.
    """
    errors = [m for m in fault.events if m.part == "errors" and counted_since(m.sighting) is not None]
    by_host, by_switch = [m for m in errors if m.by_host], [m for m in errors if not m.by_host]
    return (by_host, by_switch) if by_host and by_switch and len({m.nic for m in errors}) == 1 else None


def _loses_packets(fault: LinkFault) -> bool:
    """Whether queue pairs of its NIC run out of time meanwhile, or send again what was lost."""
    table = parts()
    told = table.lost | table.timed_out
    return any(s.firing and table.is_counted_way(s) and s.text("subtype") in told for s in fault.context)


def excuses(fault: LinkFault, row: NodeRow, config: Config) -> list[str]:
    """Reasons for which links of a host go down without being at fault."""
    since, until = fault.start - config.before, fault.last + config.before
    near = [s for group in row.seen.values() for s in group if s.firing and since <= s.at <= until]
    found = []
    if work_at(row, fault.start) is not None:
        found.append(MAINTENANCE)
    if any(s.kind == SignalKind.NODE_CONDITION and s.text("subtype") == "rebooted" for s in near):
        found.append("the host was rebooted")
    if not fault.by_host and any(s.kind == SignalKind.NODE_NOT_READY for s in near):
        found.append(GONE)
    return found


def nic_link(
    fault: LinkFault,
    row: NodeRow,
    ports: Mapping[str, PortRow],
    excused: Sequence[str],
    config: Config,
    missed_after: timedelta,
) -> Hypothesis:
    """The fault as a root of its own. `missed_after` is how long it takes until a host that is gone is missed.

    Its evidence is `hard` when one NIC of a host that lives is down and nothing excuses it; only then can it close the node.
    """
    found = verdict(fault, config)
    down = how_many(m for m in fault.events if m.part in ("down", "bounced"))
    names = nic_names(row.nics)
    mine = {(m.name.switch, m.name.port) for m in fault.events}
    others = [p for p in ports.values() if p.link and (p.link.switch, p.link.port) not in mine]
    alive = fault.by_host or any(not _is_down(p) for p in others)
    bonded = any(m.sighting.text("bond") for m in fault.events)
    hard = found.lasting and alive and down == 1 and not bonded and not excused
    facts: dict[str, Attribute] = {
        "hard": hard,
        "nics": tuple(sorted({n for m in fault.events if m.name.nic for n in names.of(m.name.nic, m.at)}))[
            :16
        ],
        "links_failed": max(down, 1),
        "link": found.rule,
        "maintenance": MAINTENANCE in excused,
    }
    if fault.switches - {""}:
        facts["switches"] = tuple(sorted(fault.switches - {""}))
    says = found.says if down < 2 else f"{found.says}, and {down - 1} more of that host's with it"
    why = f"{fault.root}: {says}" + (f" ({', '.join(excused)})" if excused else "")
    hypothesis = link_hypothesis(fault, found, FAMILY, why, facts, config)
    if down > 1 and not fault.by_host:
        # Several links of a host that says nothing of it: the host may be gone.
        hypothesis = replace(hypothesis, ready_at=found.ready_at + missed_after)
    return replace(hypothesis, alone=found.alone and set(excused) <= {MAINTENANCE})


_SAMPLES = 3
"""After so many scrapes a rate of errors is noticed: it began as much before. A counter says itself how long it took."""


def link_hypothesis(
    fault: LinkFault,
    found: LinkVerdict,
    family: str,
    why: str,
    facts: Mapping[str, Attribute],
    config: Config,
) -> Hypothesis:
    """What is found of a link, as a root of `family`."""
    return Hypothesis(
        place=fault.place,
        root=fault.root,
        family=family,
        incarnation=fault.incarnation,
        certainty=found.certainty,
        fault_at=fault.start,
        last_at=fault.last,
        ready_at=found.ready_at,
        rule=found.rule,
        lag=max(_SAMPLES * config.scrape, fault.events[0].at - fault.start)
        if found.rule == ERROR_COUNTERS
        else config.scrape,
        stops=families()[family].stops,
        why=why,
        alone=found.alone,
        brief_until=found.brief_until,
        was_brief=found.was_brief,
        cleared_at=found.cleared_at,
        flaps=found.flaps,
        causes=tuple(m.sighting for m in fault.events),
        context=fault.context,
        facts=facts,
    )


def _is_down(row: PortRow) -> bool:
    stream = [s for s in of_port(row) if parts().of(s) == "down"]
    return any(i.end is None for i in firing_intervals(stream))


def _cleared_at(fault: LinkFault, flapping: bool, config: Config) -> datetime | None:
    """When the last trouble ended. A flapping link is well only when it stays up for a while."""
    last = latest_end(m.end for m in fault.events)
    return last + config.link_quiet if flapping and last is not None else last


def broke_at(h: Hypothesis) -> datetime:
    """When a link's fault first took it down, whatever errors it had before; when any other fault began."""
    return first_break(h.causes) or h.fault_at


def by_host(h: Hypothesis) -> bool:
    """Whether the host itself reports anything of a link's fault, and therefore is alive."""
    return any(s.entity.switch is None and MANAGER not in s.attributes for s in h.causes)


# Which events are one fault.


@dataclass(slots=True)
class _Group:
    incarnation: int
    leader: Entity
    events: list[LinkEvent]
    nics: set[str] = field(default_factory=set)
    kinds: set[str] = field(default_factory=set)
    """Kinds of the names that its NICs go by."""
    lasts: bool = False
    """Something in it is not over."""
    over_at: datetime | None = None
    """When the rest of it was over."""

    def take(self, m: LinkEvent) -> None:
        """One more moment of it."""
        self.events.append(m)
        self.nics.add(m.nic)
        self.kinds |= m.kinds
        self.lasts |= m.end is None
        ends = [at for at in (self.over_at, m.end, m.until) if at is not None]
        self.over_at = max(ends, default=None)

    def is_over(self, at: datetime) -> bool:
        """Whether it had nothing but errors, the last before this moment. But for a counter nobody says when errors are over: a
        link that breaks long after them breaks for something else."""
        if any(e.part in BROKEN for e in self.events) or self.events[-1].at >= at:
            return False
        counted = (e for e in self.events if counted_since(e.sighting) is not None)
        return all(e.end is not None and e.end < at for e in counted)


def _grouped(
    place: Place, domain: str, events: Sequence[LinkEvent], incarnations: Incarnations, config: Config
) -> list[LinkFault]:
    groups: list[_Group] = []
    counts: dict[str, int] = {}
    for m in events:
        if m.part == "context":
            continue
        open_ = [g for g in groups if _is_open(g, domain, m, incarnations, config)]
        # A NIC goes on with what it began, whatever else began meanwhile.
        own = [g for g in open_ if m.nic in g.nics]
        candidates = (*(g for g in open_ if g not in own), *own)
        group = next((g for g in reversed(candidates) if _belongs(g, m, events, config)), None)
        if group is not None:
            group.take(m)
            continue
        leader = _shown(m, events, config)
        base = incarnations.base(leader, domain)
        if base and m.at <= base.until + config.linger:
            continue
        after = counts.get(leader.key, base.count if base else 0)
        number = counts[leader.key] = incarnations.next_number((leader,), domain, after, m.at)
        groups.append(_Group(number, leader, []))
        groups[-1].take(m)
    context = [m for m in events if m.part == "context"]
    return [_fault(place, group, context, config) for group in groups]


def _is_open(group: _Group, domain: str, m: LinkEvent, incarnations: Incarnations, config: Config) -> bool:
    closed = incarnations.closing(group.leader, domain, group.incarnation)
    return closed is None or m.at <= closed + config.linger


def _belongs(group: _Group, m: LinkEvent, events: Sequence[LinkEvent], config: Config) -> bool:
    if m.part in BROKEN and group.is_over(m.at - config.link_quiet):
        return False
    if m.nic in group.nics:
        quiet = config.link_again if len(group.events) >= config.flaps else config.link_quiet
        return group.lasts or group.over_at is None or m.at <= group.over_at + quiet
    return _together(group.events[0], m, group.kinds, config) or _falls_with(group, m, events, config)


def _falls_with(group: _Group, m: LinkEvent, events: Sequence[LinkEvent], config: Config) -> bool:
    """Whether a link goes down as that of the group does, under another kind of name: the switch's, of a NIC that had errors."""
    if m.part not in ("down", "bounced") or not m.kinds.isdisjoint(group.kinds):
        return False
    downs = (e for e in events if e.part == "down" and e.nic in group.nics)
    return any(abs(e.at - m.at) <= config.board for e in downs)


def _together(first: LinkEvent, m: LinkEvent, kinds: Set[str], config: Config) -> bool:
    """Whether two NICs of a host that are in trouble at the same time are one fault: both broke, or both are one NIC.

    A name of another kind than all those known may be the same NIC: an address, an interface, an RDMA device, a switch port.
    """
    if m.at - first.at > config.board:
        return False
    broke = m.part in BROKEN and first.part in BROKEN
    return broke or m.kinds.isdisjoint(kinds)


def _shown(first: LinkEvent, events: Sequence[LinkEvent], config: Config) -> Entity:
    """The NIC under its best name: the host's own, else the cabling's, else an address, else the port.

    All NICs that failed with it are considered, so that clock skew does not matter.
    """
    near = [
        m
        for m in events
        if m.at >= first.at
        and m.part != "context"
        and (
            (m.at - first.at <= config.board and m.nic == first.nic)
            or _together(first, m, first.kinds, config)
        )
    ]
    best = min(near, key=lambda m: (_rank(m.name), m.name.nic or "", m.name.switch or "", m.nic))
    mine = [m.name for m in near if m.nic == best.nic] or [m.name for m in near]
    cables = {(name.switch, name.port) for name in mine if name.switch} or {
        (m.name.switch, m.name.port) for m in near if m.name.switch
    }
    switch, port = cables.pop() if len(cables) == 1 else (best.name.switch, best.name.port)
    return replace(best.name, switch=switch, port=port)


def _rank(name: Entity) -> int:
    if name.nic is None:
        return 3
    if ":" in name.nic:
        return 2
    return 0 if name.switch is None else 1


def _fault(place: Place, group: _Group, context: Sequence[LinkEvent], config: Config) -> LinkFault:
    since = group.events[0].at - config.before
    until = group.events[-1].at + config.before
    near = tuple(m.sighting for m in context if m.nic in group.nics and since <= m.at <= until)
    return LinkFault(place, group.leader, group.incarnation, tuple(group.events), near)


def _switches(
    fault: LinkFault, names: NicNames, cabled: Mapping[str | None, str], leaf: str | None
) -> frozenset[str]:
    """The switches of the fault: by reporting ports, else the named NICs' cables, else the only cable, else the leaf label."""
    broken = [m for m in fault.events if m.part in BROKEN] or list(fault.events)
    found = {m.name.switch for m in broken if m.name.switch}
    found |= {
        cabled[nic] for m in broken if m.name.nic for nic in names.of(m.name.nic, m.at) if nic in cabled
    }
    if not found and len(set(cabled.values())) == 1:
        found = set(cabled.values())
    if not found and leaf:
        found = {leaf}
    return frozenset(switch for switch in found if switch) or frozenset({""})
