"""Root causes at switch ports: faults of cables between switches, and storms at ports without a host."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from streams.correlate.cause_sources.nodes import HostCauses
from streams.correlate.cause_sources.source import ByJobs, Causes, CauseSource, Round, began_by
from streams.correlate.cause_sources.switches import SwitchCauses
from streams.correlate.fabric_rules.cable_errors import CableErrors, weighed
from streams.correlate.fabric_rules.links import LinkFault, uplink
from streams.correlate.fabric_rules.pfc_storms import fabric_storm
from streams.correlate.fabric_rules.storm_propagation import Spread, are_near, spread
from streams.correlate.fabric_rules.switch_faults import LinkFaultsBySwitch, uplink_fault
from streams.correlate.hypothesis import Hypothesis
from streams.correlate.state.place import Place, PlaceKind
from streams.correlate.state.rows import DocumentRow, PortRow
from streams.inventory.leaf_names import leaf_name
from streams.model.entity import Entity
from streams.model.kinds import IncidentFamily


class CableCauses(CauseSource):
    """Faults of cables between switches. Each is evaluated once, at the port that comes first by name."""

    kind, distance = PlaceKind.PORT, 4

    def __init__(self, causes: Causes, links: LinkFaultsBySwitch, switches: SwitchCauses) -> None:
        super().__init__(causes)
        self._links, self._switches = links, switches
        self._faults: dict[str, list[Hypothesis]] = {}
        self._errors: dict[str, CableErrors] = {}
        """By cable: the errors with which it works, or worked before it broke."""
        self._unweighed: dict[str, list[tuple[LinkFault, Hypothesis]]] = {}
        """By cable: those of its faults that are compared with other cables' errors."""
        self._cabled: set[str] = set()
        """Switches at which hosts are known."""

    def evaluate(self, round_: Round) -> None:
        """Evaluate the cables at the touched ports, and touch the hosts at them."""
        touched = round_.touched
        for switch in {name.partition("/")[0] for name in touched.ports}:
            # What its other ports are follows from whether hosts are known there.
            if (cabled := self._topology.has_cabled_hosts(switch)) is not (switch in self._cabled):
                (self._cabled.add if cabled else self._cabled.discard)(switch)
                touched.ports |= self._topology.reported_ports(switch)
        touched.ports |= {self._topology.cable(name)[0] for name in touched.ports}
        names = sorted(name for name in touched.ports if not name.endswith("/"))
        before = {name: self._faults.pop(name, []) for name in names}
        errors = dict(self._errors)
        for name in names:
            touched.nodes |= self._topology.hosts_at(name)
            ends = self._topology.cable(name)
            rows = [self._state.ports.get(end, PortRow()) for end in ends]
            lost = self._lost(name, ends, rows) if ends[0] == name else []
            touched.switches |= self._links.put(Place(PlaceKind.PORT, name), lost)
            known = any(row.link is not None and row.link.peer_switch is not None for row in rows)
            # Among ports whose hosts are known, one with an unknown other end may be an uplink: jobs may tell.
            if known or ends[0].partition("/")[0] in self._cabled:
                found = [uplink_fault(f, ends, self._config, known=known) for f in lost]
                found = [self._storming(h, ends, rows) for h in found] if known else found
            else:
                found = self._guessed(ends, lost)
            if found:
                self._faults[name] = found
                self._causes.note(found)
            self._keep_errors(name, lost, found if known else [])
        # What one cable's errors amount to depends on the others'.
        for name in self._unweighed if errors != self._errors else set(self._unweighed) & set(names):
            old, new = self._faults[name], self._weighed(name)
            self._faults[name] = new
            if old != new and name not in before:
                before[name] = old
                touched.ports.add(name)
        for name, old in before.items():
            after = self._faults.get(name, [])
            if old != after and self._topology.cable(name)[0] == name:
                touched.jobs |= self._causes.troubled(*old, *after)

    def _keep_errors(self, name: str, lost: Sequence[LinkFault], found: Sequence[Hypothesis]) -> None:
        self._errors.pop(name, None)
        self._unweighed.pop(name, None)
        if found and (errors := CableErrors.of(name, lost)) is not None:
            self._errors[name] = errors
            self._unweighed[name] = list(zip(lost, found, strict=True))

    def _storming(self, h: Hypothesis, ends: Sequence[str], rows: Sequence[PortRow]) -> Hypothesis:
        """The fault of a cable; that of a pause storm meanwhile it is the source, and told as soon as the storm would be."""
        if h.alone:
            return h
        near = [
            storm
            for end, row in zip(ends, rows, strict=True)
            for storm in fabric_storm(self._cluster, end, row, self._incarnations, self._config)
            if are_near(h, storm, self._config)
        ]
        if not near:
            return h
        first = min(near, key=lambda s: (s.was_brief, s.ready_at, s.id))
        return replace(h, alone=True, brief_until=first.brief_until, was_brief=first.was_brief)

    def _weighed(self, name: str) -> list[Hypothesis]:
        others = [errors for cable, errors in self._errors.items() if cable != name]
        return [weighed(f, h, others, self._config) for f, h in self._unweighed[name]]

    def _guessed(self, ends: Sequence[str], lost: Iterable[LinkFault]) -> list[Hypothesis]:
        """Faults of a port of a switch at which nobody is known, where its name tells which rack hangs on it.

        Only of a port that makes errors: those of hosts go down all day, with their hosts.
        """
        switch = ends[0].partition("/")[0]
        named = leaf_name(switch)
        if named is None or self._topology.hosts_of(switch):
            return []
        return [
            uplink_fault(f, ends, self._config, known=False, rack=named.rack)
            for f in lost
            if any(m.part == "errors" for m in f.events)
        ]

    def _lost(self, name: str, ends: Sequence[str], rows: Sequence[PortRow]) -> list[LinkFault]:
        if any(self._topology.hosts_at(end) for end in ends):
            return []
        switch, _, port = name.partition("/")
        root = Entity(self._cluster, switch=switch, port=port)
        return uplink(name, root, rows, self._incarnations, self._config)

    def at(self, name: str) -> list[Hypothesis]:
        """Faults that neither switch explains."""
        place = Place(PlaceKind.PORT, name)
        return [h for h in self._faults.get(name, ()) if self._switches.takes(place, h) is None]

    def all(self) -> Iterable[Hypothesis]:
        """All of them, also those that a switch explains."""
        return (h for faults in self._faults.values() for h in faults)

    def offered_to(self, nodes: set[str], last: datetime | None) -> Iterable[Hypothesis]:
        """Faults of any cable: which ones a job's connections use is unknown."""
        early_enough = (h for h in self.all() if began_by(h, last))
        return (h for h in early_enough if self._switches.takes(h.place, h) is None)

    def successor_of(self, row: DocumentRow, by_jobs: ByJobs) -> Hypothesis | None:
        """The switch that took the link away."""
        mine = (h for h in self._faults.get(row.place.name, ()) if h.id == row.incident.id)
        return next((root for h in mine if (root := self._switches.takes(row.place, h)) is not None), None)

    def parts_of(self, incident: str, places: Sequence[Place]) -> Iterable[Hypothesis]:
        """Cables whose links that switch took away."""
        for place in (p for p in places if p.kind is PlaceKind.PORT):
            for h in self._faults.get(place.name, ()):
                if (root := self._switches.takes(place, h)) is not None and root.id == incident:
                    yield h


class PortStormCauses(CauseSource):
    """Storms at ports without a host, traced to their source: a host, a bad cable, or each other."""

    kind, distance = PlaceKind.PORT, 1

    def __init__(self, causes: Causes, hosts: HostCauses, cables: CableCauses) -> None:
        super().__init__(causes)
        self._hosts, self._cables = hosts, cables
        self._storms: dict[str, list[Hypothesis]] = {}
        self._spread = Spread()

    def evaluate(self, round_: Round) -> None:
        """Evaluate the touched ports and trace all storms again; whatever that changes is republished."""
        touched, before = round_.touched, self._spread
        for name in sorted(touched.ports):
            row, old = self._state.ports.get(name, PortRow()), self._storms.pop(name, [])
            if new := fabric_storm(self._cluster, name, row, self._incarnations, self._config):
                self._storms[name] = new
                self._causes.note(new)
            if old != new:
                touched.jobs |= self._causes.troubled(*old, *new)
        if not self._storms and not before.independent and not before.part_of:
            return
        self._spread = spread(
            self._storms,
            self._hosts.storms.values(),
            {port: self._cables.at(self._topology.cable(port)[0]) for port in self._storms},
            self._topology.beyond,
            self._topology.switches_of,
            self._config,
        )
        self.owners = self._spread.part_of
        if before != self._spread:
            touched.ports |= set(self._storms)
            touched.causes |= {*before.part_of.values(), *self._spread.part_of.values()}
            touched.jobs |= self._causes.troubled()

    def at(self, name: str) -> list[Hypothesis]:
        """Storms that were not traced to another root."""
        independent = self._spread.independent
        return [independent[h.id] for h in self._storms.get(name, ()) if h.id in independent]

    def all(self) -> Iterable[Hypothesis]:
        """Every storm as its port reports it."""
        return (h for storms in self._storms.values() for h in storms)

    def offered_to(self, nodes: set[str], last: datetime | None) -> Iterable[Hypothesis]:
        """Storms at any port: pause frames propagate."""
        return (h for h in (self._spread.independent.get(h.id, h) for h in self.all()) if began_by(h, last))

    def successor_of(self, row: DocumentRow, by_jobs: ByJobs) -> Hypothesis | None:
        """The storm of the host that is known to be at the port by now, or the source the storm was traced to."""
        hosts = (Place(PlaceKind.NODE, node) for node in self._topology.hosts_at(row.place.name))
        here = (h for host in hosts for h in self._causes.at(host) if h.family == IncidentFamily.PFC_STORM)
        owner = self._causes.owner_of(row.incident.id)
        return next(here, None) or (self._causes.found(owner) if owner != row.incident.id else None)

    def parts_of(self, incident: str, places: Sequence[Place]) -> Iterable[Hypothesis]:
        """All storms traced to it, at any port."""
        return (h for h in self.all() if self.owners.get(h.id) == incident)

    def built_from(self, incidents: Container[str]) -> Iterable[tuple[str, Place]]:
        """Ports that they spread to."""
        for h in self.all():
            owner = self.owners.get(h.id)
            if owner is not None and owner in incidents:
                yield owner, h.place
