"""Root causes on switches: lost links around them, storms of their hosts, and what jobs blame them for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime

from streams.correlate.cause_sources.felt_groups import FeltGroups
from streams.correlate.cause_sources.host_witnesses import HostWitnesses
from streams.correlate.cause_sources.nodes import HostCauses
from streams.correlate.cause_sources.shared import SharedCauses
from streams.correlate.cause_sources.source import ByJobs, Causes, CauseSource, Round, began_by
from streams.correlate.fabric_rules.ailing_switches import BEFORE, AilingSwitches
from streams.correlate.fabric_rules.links import LinkFault, broke_at
from streams.correlate.fabric_rules.lossy_switches import Loss, LossySwitches, lost_by_nic
from streams.correlate.fabric_rules.lost_hosts import RUN_ON, WENT_TOGETHER, LostHostGroups, LostHosts
from streams.correlate.fabric_rules.nic_timeline import LinkEvent
from streams.correlate.fabric_rules.pfc_storms import shared_storms
from streams.correlate.fabric_rules.resending_hosts import FeltLoss
from streams.correlate.fabric_rules.switch_faults import (
    BY_VOTES,
    LinkFaultsBySwitch,
    SwitchFault,
    explains,
    switch_faults,
)
from streams.correlate.fabric_rules.switch_orders import OrderAt, SwitchOrders
from streams.correlate.fabric_rules.went_dark import Gone
from streams.correlate.hypothesis import DROPS, ERROR_COUNTERS, FELT_ONLY, SOMEWHERE, Blame, Hypothesis
from streams.correlate.node_rules.part_policy import part_policy
from streams.correlate.node_rules.shared_parts import common_part, root_of
from streams.correlate.sightings import Sighting
from streams.correlate.state.incarnations import FiringInterval
from streams.correlate.state.nic_names import nic_names
from streams.correlate.state.place import Place, PlaceKind, Touched, of_whole
from streams.correlate.state.rows import DocumentRow, NodeRow, PortRow
from streams.model.entity import WENT_WITH, Entity
from streams.model.kinds import IncidentFamily, SignalKind


def _lasts(switch: Hypothesis, at: datetime) -> bool:
    """Whether what began then is part of it for as long as it lasts.

    Counters tell once that packets are lost, and once that it is over. Hosts that went dark, or are cut off, are missed when
    their time is up.
    """
    lasts = switch.rule in (FELT_ONLY, WENT_TOGETHER) or switch.facts.get(RUN_ON) is True
    return lasts and (switch.cleared_at is None or at <= switch.cleared_at)


def _changed(before: Mapping[str, object], after: Mapping[str, object]) -> set[str]:
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def _is_went_together(root: Entity) -> bool:
    return root.part is not None and root.part.kind == WENT_WITH


_OWN = (IncidentFamily.HOST_FAULT, IncidentFamily.POWER_COOLING)
"""What a switch may report of its own disk, power or heat."""


class SwitchCauses(CauseSource):
    """Switches; links whose switch is unknown are under the name `SOMEWHERE`."""

    kind, distance = PlaceKind.SWITCH, 2

    def __init__(
        self, causes: Causes, links: LinkFaultsBySwitch, hosts: HostCauses, shared: SharedCauses
    ) -> None:
        super().__init__(causes)
        self._links, self._hosts, self._shared = links, hosts, shared
        self._alone: dict[str, list[SwitchFault]] = {}
        """By switch: its faults, each looked at by itself."""
        self._with_missed: dict[str, list[SwitchFault]] = {}
        """By switch: the same with the links of hosts that are missed themselves, where there are any."""
        self._faults: dict[str, list[SwitchFault]] = {}
        """By switch: its faults, without what is one of several switches' hosts (`_lost`)."""
        self._lost: dict[str, dict[str, LostHosts]] = {}
        """By switch: its faults by incident that are hosts which went dark."""
        self._groups = LostHostGroups(self._config)
        self._restarted: dict[str, dict[str, LostHosts]] = {}
        """By switch: its faults by incident that look like such hosts, who are known to run on."""
        self._standing: dict[str, SwitchFault] = {}
        """By the first of the switches that lost them: hosts that went dark, of which nobody knows what they share."""
        self._blamed: dict[str, dict[str, list[Blame]]] = defaultdict(dict)
        """By switch and job: failing connections that meet there."""
        self._orders = SwitchOrders()
        self._ailing = AilingSwitches()
        self._lossy = LossySwitches()
        self._felt: dict[str, tuple[FeltLoss, ...]] = {}
        """By switch, or at `SOMEWHERE`: what its hosts alone show of packets that it loses."""
        self._dark: dict[str, dict[str, Hypothesis]] = {}
        """By switch: its faults by incident, each with the lack of power of the nodes whose links it lost."""
        self._felt_groups = FeltGroups(causes, links, hosts)
        self._without_power: list[Hypothesis] = []
        """Parts whose nodes lack power, as they were compared with switches last."""
        self._joined: dict[Place, dict[str, datetime]] = {}
        """Places that lost a link to an unknown switch when just one known switch lost many: by that switch, when they did."""

    def evaluate(self, round_: Round) -> None:
        """Evaluate the touched switches, and touch the places whose links they took away."""
        for name in sorted(round_.touched.ports):
            switch, _, port = name.partition("/")
            row = self._state.ports.get(name, PortRow())
            if port:
                if self._lossy.put(name, row.seen):
                    # Whether it is the only one, others are compared with it for.
                    round_.touched.switches |= {switch, *self._lossy.wide(self._config)}
                continue
            if self._orders.put(switch, row):
                round_.touched.switches.add(switch)
            if self._ailing.put(switch, row) and self._links.around(SOMEWHERE):
                round_.touched.switches.add(SOMEWHERE)
        for node in round_.touched.nodes:
            # What ran there may be known only now.
            round_.touched.switches |= self._links.lost_at(Place(PlaceKind.NODE, node))
            if self._lossy:
                round_.touched.switches |= {s for s in self._topology.switches_of(node) if s in self._lossy}
        self._compare_hosts(round_.touched)
        self._judge(sorted(round_.touched.switches), round_)

    def _compare_hosts(self, touched: Touched) -> None:
        """Compare what the NICs of all hosts show, and touch the switches and the jobs for which that changes anything."""
        if not self._felt_groups.update(touched):
            return
        touched.switches |= self._lossy.wide(self._config)
        before, self._felt = self._felt, self._felt_groups.losses()
        for name in before.keys() | self._felt.keys():
            if (old := before.get(name, ())) == (new := self._felt.get(name, ())):
                continue
            touched.switches.add(name)
            for host in {host for loss in (*old, *new) for host in (*loss.hosts, *loss.peers)}:
                touched.jobs |= self._placements.jobs_near(host)

    def reconsider(self, round_: Round) -> None:
        """Evaluate those again that jobs blame, or blame no more. A job whose own explanation that renumbers is asked again."""
        if (dark := self._shared.without_power()) != self._without_power:
            self._without_power = dark
            round_.later.switches |= self._faults.keys() | self._dark.keys()
        blamed = set[str]()
        for job, before, after in round_.judged:
            blamed |= {blame.switch for blame in (*before.blames, *after.blames)}
            for blame in before.blames:
                self._blamed[blame.switch].pop(job, None)
            for blame in after.blames:
                self._blamed[blame.switch].setdefault(job, []).append(blame)
        if not blamed:
            return
        links = self._by_links()
        self._judge(sorted(blamed), round_)
        round_.touched.switches |= blamed
        round_.later.shared |= self._shared.doubted()
        if links != self._by_links():
            round_.later.jobs |= self._causes.troubled()

    def _judge(self, names: Iterable[str], round_: Round) -> None:
        touched = round_.touched
        # Last, links of which it is not known where they end: they may be those of a switch that is known to fail.
        named = sorted(set(names) - {SOMEWHERE})
        for name in named:
            self._put_alone(name, self._evaluated(name, self._links.around(name)))
            self._put_with_missed(name, self._links.all_around(name))
        changed = self._gather(touched, round_.now)
        touched.switches |= changed
        for name in sorted({*named, *changed}):
            self._put(name, self._of_switch(name), touched)
        if named or SOMEWHERE in names:
            around = self._without_joined(self._links.around(SOMEWHERE), touched)
            self._put(SOMEWHERE, self._evaluated(SOMEWHERE, around), touched)

    def _evaluated(self, name: str, around: Iterable[LinkFault]) -> list[SwitchFault]:
        """The faults of one switch as it looks by itself, by the link faults around it."""
        after = self._lit(name, self._by_lines(name, around))
        if storms := self._hosts.storms_under(name):
            after += shared_storms(self._cluster, name, storms, self._incarnations, self._config)
        return after

    def _by_lines(self, name: str, around: Iterable[LinkFault]) -> list[SwitchFault]:
        """The faults of one switch by the link faults around it, by jobs, and by what it drops."""
        if by_job := self._blamed.pop(name, {}):
            self._blamed[name] = by_job
        blames = [blame for job in sorted(by_job) for blame in by_job[job]]
        around, losses, felt = list(around), self._losses(name), self._felt.get(name, ())
        after = list[SwitchFault]()
        if around or blames or losses or felt:
            after = switch_faults(
                self._cluster,
                name,
                around,
                blames,
                self._topology.neighbours(name),
                self._incarnations,
                self._config,
                self._shared_by,
                self._ailing_at,
                self._ordered(name),
                self._is_idle,
                losses,
                felt,
            )
        return after

    def _put_with_missed(self, name: str, around: Sequence[LinkFault]) -> None:
        self._with_missed.pop(name, None)
        if any(fault.gone for fault in around):
            found = self._by_lines(name, around)
            self._with_missed[name] = [
                f for f in found if not any(self._goes_with(name, f, h) for h in self._without_power)
            ]

    def _put_alone(self, name: str, faults: list[SwitchFault]) -> None:
        if faults:
            self._alone[name] = faults
        else:
            self._alone.pop(name, None)

    def _gather(self, touched: Touched, now: datetime) -> set[str]:
        """Find the hosts that several switches lost at once. Returns the switches for which that changes anything."""
        lost_before, restarted_before, standing_before = self._lost, self._restarted, self._standing
        self._lost, self._restarted, self._standing = {}, {}, {}
        witnesses, alone = HostWitnesses(self._causes, now), self._alone
        moved = {job for job, _ in touched.moves} | touched.placed
        hosts = {p.node for job in moved for p in self._placements.placements_of(job)} if alone else set()
        self._groups.begin(touched.nodes | hosts, {port.partition("/")[0] for port in touched.ports})
        if self._with_missed:
            # Hosts that are missed with their links are gone, unless something shows that it was their switches, or the only one.
            for lost in self._groups.find(alone | self._with_missed, witnesses, now, least=1):
                if lost.finding.gone is Gone.SWITCHES and any(n in self._with_missed for n, _ in lost.faults):
                    self._enter(self._restarted, lost)
            alone = {
                name: [f for f in faults if f.hypothesis.id not in self._restarted.get(name, ())]
                for name, faults in alone.items()
            }
        for lost in self._groups.find(alone, witnesses, now):
            if lost.finding.gone is Gone.SWITCHES:
                self._enter(self._restarted, lost)
                continue
            self._enter(self._lost, lost)
            if self._shared_by(lost.hosts) is None:
                self._standing[lost.faults[0][0]] = lost.fault(self._cluster, self._config)
        return (
            _changed(lost_before, self._lost)
            | _changed(restarted_before, self._restarted)
            # What the hosts share may be known, or known no more, while what was lost is the same.
            | _changed(standing_before, self._standing)
        )

    def _enter(self, of_switch: dict[str, dict[str, LostHosts]], lost: LostHosts) -> None:
        for name, fault in lost.faults:
            of_switch.setdefault(name, {})[fault.hypothesis.id] = lost

    def _of_switch(self, name: str) -> list[SwitchFault]:
        """Its faults, without what is hosts that went dark; with those, where it is the first of the switches that lost them."""
        lost, restarted = self._lost.get(name, {}), self._restarted.get(name, {})
        found = {
            fault.hypothesis.id: fault
            for fault in self._alone.get(name, ())
            if fault.hypothesis.id not in lost
        }
        for incident, group in restarted.items():
            fault = next(f for switch, f in group.faults if switch == name and f.hypothesis.id == incident)
            found[incident] = group.restarted(name, fault)
        return [*found.values(), *([self._standing[name]] if name in self._standing else [])]

    def _put(self, name: str, after: list[SwitchFault], touched: Touched) -> None:
        """Keep the faults of one switch, and touch all for which they are new."""
        before = self._faults.pop(name, [])
        if after:
            self._faults[name] = after
            self._causes.note(fault.hypothesis for fault in after)
        if before != after:
            for place in {place for fault in (*before, *after) for place in fault.members}:
                touched.add(place)
            if name in self._state.nodes:
                touched.nodes.add(name)  # what it reports of itself
            touched.shared |= self._shared.doubted()
            touched.jobs |= self._causes.troubled(*(fault.hypothesis for fault in (*before, *after)))

    def _lit(self, name: str, faults: Iterable[SwitchFault]) -> list[SwitchFault]:
        """The faults of a switch without those that are the lack of power of its nodes, or its own with theirs."""
        for incident in self._dark.pop(name, {}):
            self.owners.pop(incident, None)
        if name == SOMEWHERE or not self._without_power:
            return list(faults)
        dark, rest = dict[str, Hypothesis](), list[SwitchFault]()
        for fault in faults:
            part = next((h for h in self._without_power if self._goes_with(name, fault, h)), None)
            if part is None:
                rest.append(fault)
            else:
                dark[fault.hypothesis.id] = part
        if dark:
            self._dark[name] = dark
            self.owners |= {incident: part.id for incident, part in dark.items()}
        return rest

    def _goes_with(self, name: str, fault: SwitchFault, part: Hypothesis) -> bool:
        """Whether all links that a switch lost are those of nodes that lack power.

        Where nobody knows the other end of any, they are as many as these nodes can have; a switch that other switches miss
        stands among them by its name.
        """
        at, within = fault.hypothesis.fault_at, part_policy().power.within
        told = any(s.kind == SignalKind.NODE_POWER and abs(s.at - at) <= within for s in part.causes)
        over = part.cleared_at is not None and part.cleared_at < at
        if over or not told or not fault.members:
            return False
        if hosts := {place.name for place in fault.members if place.kind is PlaceKind.NODE}:
            return hosts <= set(part.nodes)
        if any(self._topology.beyond(place.name) for place in fault.members):
            named = {p.name for p in self._topology.parts.named_in(name)}
            return (part.root.rack or (part.root.part.name if part.root.part else "")) in named
        return len(fault.members) <= self._config.ports_a_host * len(part.nodes)

    def _without_joined(self, around: Iterable[LinkFault], touched: Touched) -> list[LinkFault]:
        """These faults of links without those that fell together with the links of one known switch: not all cables are known."""
        known = [
            (name, [s.at for s in f.hypothesis.causes])
            for name, faults in self._faults.items()
            for f in faults
            if name != SOMEWHERE
            and f.hypothesis.rule != FELT_ONLY
            and len(f.members) >= self._config.leaf_neighbours
            and f.hypothesis.alone
        ]
        before, self._joined = self._joined, {}
        window, rest = self._config.leaf_window, list[LinkFault]()
        for fault in around:
            alone = list[LinkEvent]()
            for event in fault.events:
                beside = {n for n, times in known if any(abs(event.at - at) <= window for at in times)}
                if len(beside) != 1:
                    alone.append(event)
                    continue
                mine = self._joined.setdefault(fault.place, {})
                mine |= {name: min(event.at, mine.get(name, event.at)) for name in beside}
            if alone:
                rest.append(replace(fault, events=tuple(alone)))
        for place in before.keys() ^ self._joined.keys():
            touched.add(place)
        return rest

    def _members(self, fault: SwitchFault) -> Mapping[Place, datetime]:
        """The places whose links a switch took away, with those whose cable is not known."""
        switch = fault.hypothesis.root.switch
        if not switch or not self._joined:
            return fault.members
        joined = {place: by[switch] for place, by in self._joined.items() if switch in by}
        # A host's kernel and its counters call one port differently, and the counters are read a minute later.
        both = {p: min(at, joined[p]) for p, at in fault.members.items() if p in joined}
        return {**joined, **fault.members, **both}

    def _losses(self, name: str) -> list[Loss]:
        """When a switch dropped what is sent to most of its hosts."""
        if name == SOMEWHERE or name not in self._lossy:
            return []

        def ends_at(port: str) -> Iterable[tuple[str, str | None]]:
            link = self._state.ports.get(port, PortRow()).link
            return ((host, link.nic if link else None) for host in self._topology.hosts_at(port))

        known = len(self._topology.hosts_of(name))
        if known < self._config.leaf_neighbours:
            losses = self._lossy.uncabled(
                name, len(self._topology.ports_at(name)), self._resending(name), self._config
            )
            ordered = self._ordered(name)
            return [loss for loss in losses if ordered(loss.interval.start, None) is None]
        return self._lossy.of(
            name,
            known,
            ends_at,
            lambda node: self._state.nodes.get(node, NodeRow()),
            self._config,
        )

    def _resending(self, switch: str) -> dict[str, dict[str, list[FiringInterval]]]:
        """By host and NIC: when packets were lost, as far as the NIC is not known to hang on another switch."""
        found: dict[str, dict[str, list[FiringInterval]]] = {}
        for host in self._felt_groups.showing:
            row = self._state.nodes.get(host, NodeRow())
            names, others = nic_names(row.nics), self._topology.switches_of(host) - {switch}
            ends = {end for other in others for end in self._topology.nics_at(host, other)}
            mine = {
                nic: stretches
                for nic, stretches in lost_by_nic(row.seen).items()
                if not ends or names.relation(ends, (nic,), stretches[0].start) != "same"
            }
            if mine:
                found[host] = mine
        return found

    def _shared_by(self, nodes: Set[str]) -> Entity | None:
        """What these hosts share besides a switch."""
        part = common_part(nodes, self._topology.parts, self._topology.nodes_known())
        return root_of(self._cluster, part) if part is not None and part.kind != "leaf" else None

    def _ailing_at(self, at: datetime, hosts: Set[str]) -> Sighting | None:
        """What the one switch said that may have taken links of these hosts away at that time, which nobody knows where they end.

        One on which somebody ordered work is expected to go, and one whose hosts are known is judged by them: by links that a
        host calls otherwise than its cables are known by, most of them lost one.
        """

        def may_be(switch: str) -> bool:
            if self._is_node(switch) or self._topology.is_unlisted_node(switch):
                return False
            known = self._topology.hosts_of(switch)
            well = len(known - hosts) > (1 - self._config.leaf_share_up) * len(known)
            return (
                not well
                and not self._faults.get(switch)
                and self._orders.of(switch, self._config)(at, None) is None
            )

        return self._ailing.only(at, may_be)

    def _ordered(self, name: str) -> OrderAt:
        """What was ordered for a switch; for any that may be the one, where it is not known which it is."""
        if name != SOMEWHERE:
            return self._orders.of(name, self._config)
        return self._orders.anywhere(self._topology.hosts_of, self._is_node, self._config)

    def _is_node(self, name: str) -> bool:
        row = self._state.nodes.get(name)
        return row is not None and row.fact is not None

    def _is_idle(self, nodes: Set[str], at: datetime) -> bool:
        """Whether it is known that nothing held GPUs of these nodes then. Of what Slurm runs not all is known."""
        return all(
            self._is_node(node)
            and not self._placements.on_node(node, at, at)
            and not self._placements.stood_beside(node, at, at)
            for node in nodes
        )

    def _by_links(self) -> list[str]:
        return [h.id for h in self.all() if h.rule != BY_VOTES]

    def at(self, name: str) -> list[Hypothesis]:
        """Its faults."""
        return [fault.hypothesis for fault in self._faults.get(name, ())]

    def all(self) -> Iterable[Hypothesis]:
        """The faults of all switches."""
        return (fault.hypothesis for faults in self._faults.values() for fault in faults)

    def offered_to(self, nodes: set[str], last: datetime | None) -> Iterable[Hypothesis]:
        """What switches tell themselves, or their hosts: what jobs blame them for explains no job."""
        for h in self.all():
            reaches = h.rule not in (BY_VOTES, FELT_ONLY) and began_by(h, last)
            if h.rule in (DROPS, FELT_ONLY):
                # It slows jobs as well, and of these no rank reports anything.
                reaches = reaches or not nodes.isdisjoint(h.fact_texts("hosts"))
            if reaches:
                yield h

    def takes(self, place: Place, h: Hypothesis) -> Hypothesis | None:
        """The fault of a switch that took this place's links away, if there is one: that with the most neighbours."""
        before, after, broke = self._config.skew, self._config.before, broke_at(h)
        found = [
            fault.hypothesis
            for faults in self._faults.values()
            for fault in faults
            if (at := self._since(fault, place, h)) is not None
            and at - before <= broke
            and (broke <= fault.hypothesis.last_at + after or _lasts(fault.hypothesis, broke))
        ]
        return max(found, key=lambda f: (len(set(self.members(f.id, f.place))), f.id), default=None)

    def _since(self, fault: SwitchFault, place: Place, h: Hypothesis) -> datetime | None:
        """From when on what a place tells belongs to a switch's fault: its lost link, or what the switch reports of itself."""
        if fault.hypothesis.rule == FELT_ONLY:
            # A host that is gone, or a link that is down, has another reason than packets that are lost.
            return fault.members.get(place) if h.facts.get("link") == ERROR_COUNTERS else None
        if explains(fault.hypothesis, h):
            return self._members(fault).get(place)
        own = place == Place(PlaceKind.NODE, fault.hypothesis.root.switch or SOMEWHERE)
        return fault.hypothesis.fault_at - BEFORE if own and h.family in _OWN else None

    def taker_of(self, incident: str, owner: str | None) -> Hypothesis | None:
        """The fault that is the owner."""
        return next((h for h in self.all() if h.id == owner), None)

    def suspected_at(self, name: str) -> str | None:
        """The latest fault that jobs blame it for."""
        return next((h.id for h in reversed(self.at(name)) if h.jobs), None)

    def successor_of(self, row: DocumentRow, by_jobs: ByJobs) -> Hypothesis | None:
        """The switch that turned out to be the one whose links were lost, else what its jobs suffer from now."""
        if (part := self._dark.get(row.place.name, {}).get(row.incident.id)) is not None:
            return part
        if (lost := self._lost.get(row.place.name, {}).get(row.incident.id)) is not None:
            return self._of_lost(lost)
        window, began = self._config.leaf_window, row.incident.fault_at
        together = _is_went_together(row.incident.root)
        if together:
            groups = self._lost.get(row.place.name, {}).values()
            near = (g for g in groups if abs(g.faults[0][1].hypothesis.fault_at - began) <= window)
            if (group := next(near, None)) is not None and (root := self._of_lost(group)) is not None:
                return root
        # Of a switch that is known only hosts that were thought to be gone turn out to be its fault.
        is_thought = row.place.name == SOMEWHERE or together
        others = (h for h in self.at(row.place.name) if is_thought and h.id != row.incident.id)
        return (
            next((h for h in others if h.fault_at - window <= began <= h.last_at + window), None) or by_jobs()
        )

    def _of_lost(self, lost: LostHosts) -> Hypothesis | None:
        """The fault that hosts are of which several switches lost: of what they share, else that they went together."""
        if (standing := self._standing.get(lost.faults[0][0])) is not None:
            return standing.hypothesis
        began = lost.faults[0][1].hypothesis.fault_at
        of_parts = (h for h in self._shared.all() if abs(h.fault_at - began) <= part_policy().power.within)
        return next((h for h in of_parts if lost.hosts <= set(h.nodes)), None)

    def members(self, incident: str, place: Place) -> Iterable[Place]:
        """The places whose links a switch took away."""
        faults = self._faults.get(place.name, ()) if place.kind is PlaceKind.SWITCH else ()
        return (
            member for fault in faults if fault.hypothesis.id == incident for member in self._members(fault)
        )

    def built_from(self, incidents: Container[str]) -> Iterable[tuple[str, Place]]:
        """With its members, what was said of the switches by which it was judged whether their hosts went dark."""
        yield from super().built_from(incidents)
        for of_switch in (self._lost, self._restarted):
            for name, groups in of_switch.items():
                for incident, lost in groups.items():
                    standing = self._standing.get(lost.faults[0][0]) if of_switch is self._lost else None
                    mine = standing.hypothesis.id if standing is not None else incident
                    if mine in incidents:
                        for port in (of_whole(name), *lost.finding.ports):
                            yield mine, Place(PlaceKind.PORT, port)
