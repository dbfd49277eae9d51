"""Faults that several nodes share (`SharedGroup`), and which roots on nodes were merged into them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from streams.correlate.cause_sources.source import ByJobs, Causes, CauseSource, Round
from streams.correlate.hypothesis import Hypothesis
from streams.correlate.node_rules.node_outages import (
    Absence,
    Outages,
    absences_of,
    held,
    is_crowded,
    is_dead,
    outages,
)
from streams.correlate.node_rules.racks import POWER, nvlink_faults, of_nvlink_domain, of_rack, rack_faults
from streams.correlate.node_rules.shared_groups import GroupIndex, SharedFault
from streams.correlate.node_rules.storage import StorageReports, storage_faults, storage_reports
from streams.correlate.state.place import NODES, STORAGE, GroupKind, Place, PlaceKind, SharedGroup
from streams.correlate.state.rows import DocumentRow, NodeRow
from streams.model.kinds import IncidentFamily, SignalKind

_JUDGED_EVERY = timedelta(seconds=1)
_STORAGE_KINDS = (SignalKind.NODE_STORAGE, SignalKind.NODE_KERNEL)


class SharedCauses(CauseSource):
    """Faults of shared groups. Evidence is updated node by node; a group is re-evaluated when its evidence changed."""

    kind, distance = PlaceKind.SHARED, 3

    def __init__(self, causes: Causes) -> None:
        super().__init__(causes)
        self._absent: GroupIndex[tuple[Absence, ...]] = GroupIndex()
        self._outages = Outages()
        self._judged_at: datetime | None = None
        self._unjudged: datetime | None = None
        """When the first outage that is not evaluated yet may open an incident."""
        self._known: frozenset[str] = frozenset()
        """Ids of the hypotheses that were evaluated."""
        self._counted = (0, 0)
        """How many nodes there were, and were NotReady by the inventory, when outages were evaluated last."""
        self._racks: GroupIndex[tuple[Hypothesis, ...]] = GroupIndex()
        self._domains: GroupIndex[tuple[Hypothesis, ...]] = GroupIndex()
        self._storage: GroupIndex[StorageReports] = GroupIndex()
        self._faults: dict[SharedGroup, list[SharedFault]] = {}
        self._by_part: dict[str, Hypothesis] = {}
        """By id of a node's hypothesis: the root that it was merged into."""

    def put(
        self, node: str, row: NodeRow, hypotheses: Sequence[Hypothesis], gone_alone: Sequence[Hypothesis]
    ) -> set[SharedGroup]:
        """Keep the evidence of one node; `gone_alone` is when it was NotReady for no reason of its own.

        Returns the groups to re-evaluate.
        """
        fact = row.fact
        # A node that was cordoned for this is being handled, also when it came back and went again with others.
        handled = {name for _, name in row.cordons}
        gone_alone = [h for h in gone_alone if h.id not in handled]
        power = of_rack(hypotheses, gone_alone)
        rack = SharedGroup(GroupKind.RACK, fact.rack) if fact and fact.rack else None
        touched = self._racks.put(node, {rack: power} if rack and power else {})
        if rack and self._racks.of(rack):
            touched.add(rack)  # how many nodes it has may have changed
        links = of_nvlink_domain(hypotheses)
        domain = SharedGroup(GroupKind.NVLINK, fact.nvlink_domain) if fact and fact.nvlink_domain else None
        touched |= self._domains.put(node, {domain: links} if links and domain else {})
        seen = [s for group in row.seen.values() if group[0].kind in _STORAGE_KINDS for s in group]
        reports = storage_reports(seen, hypotheses) if seen else StorageReports()
        touched |= self._storage.put(node, {STORAGE: reports} if reports != StorageReports() else {})
        return touched | self._put_absences(node, row, gone_alone)

    def _put_absences(self, node: str, row: NodeRow, down: Sequence[Hypothesis]) -> set[SharedGroup]:
        absences = tuple(
            absence
            for h in down
            if not is_dead(h) and h.facts.get("maintenance") is not True
            for absence in absences_of(node, h, row)
        )
        new = [a.hypothesis.ready_at for a in absences if a.hypothesis.id not in self._known]
        if new:
            self._unjudged = min([*new, *([self._unjudged] if self._unjudged else [])])
        touched = self._absent.put(node, {NODES: absences} if absences else {})
        if self._counted != self._topology.counts():
            touched |= self.doubted()
        return touched

    def doubted(self) -> set[SharedGroup]:
        """The group of NotReady nodes, if there are any: something else may explain them now."""
        return {NODES} if self._absent.of(NODES) else set()

    def evaluate(self, round_: Round) -> None:
        """Evaluate the touched groups. Where the result changed, their nodes and those nodes' jobs are re-evaluated."""
        touched = round_.touched
        if NODES in touched.shared:
            self._judge_outages(round_)
        for group in sorted(touched.shared):
            before = self._faults.pop(group, [])
            if after := self._judge(group):
                self._faults[group] = after
                self._causes.note(self._at(group))
            if before != after:
                nodes = self._hand_over(before, after)
                touched.nodes |= nodes
                touched.jobs |= self._causes.troubled().union(*map(self._placements.jobs_near, nodes))

    def _judge_outages(self, round_: Round) -> None:
        """Evaluate which nodes are NotReady together, before racks are evaluated, but not twice within a second.

        Thousands of nodes may go in as many batches, and all of them are looked at together. Nothing is lost by it: what is told
        of one node waits for a minute. What came so late that it may be told already is looked at now.
        """
        touched, now = round_.touched, round_.now
        fresh = self._unjudged is None or self._unjudged > now
        if fresh and self._judged_at is not None and now - self._judged_at < _JUDGED_EVERY:
            touched.shared.discard(NODES)
            round_.later.shared.add(NODES)
            return
        self._judged_at, self._unjudged = now, None
        switches = self._causes.of(PlaceKind.SWITCH)
        absences = [
            a
            for node, found in self._absent.of(NODES)
            for a in found
            if all(s.takes(Place(PlaceKind.NODE, node), a.hypothesis) is None for s in switches)
        ]
        powerless = {
            rack.name
            for rack in self._racks.groups()
            if any(h.family == POWER for _, found in self._racks.of(rack) for h in found)
        }
        self._known = frozenset(a.hypothesis.id for a in absences)
        before, crowded = self._outages, self._is_crowded
        self._counted = self._topology.counts()
        self._outages = outages(self._cluster, absences, self._topology, powerless, self._incarnations)
        turned = crowded is not self._is_crowded
        moved = {
            a.node
            for a in absences
            if turned or before.for_node(a.hypothesis.id) != self._outages.for_node(a.hypothesis.id)
        }
        taken = {p for f in before.faults for p in f.parts} ^ {
            p for f in self._outages.faults for p in f.parts
        }
        touched.nodes |= moved
        racks = set(self._racks.groups())
        moved_racks = {SharedGroup(GroupKind.RACK, a.rack) for a in absences if a.rack and a.node in moved}
        touched.shared |= moved_racks & racks
        # What was part of an outage may be explained by now, and no absence: its rack has it back all the same.
        touched.shared |= {
            rack for rack in racks for _, found in self._racks.of(rack) if any(h.id in taken for h in found)
        }

    @property
    def _is_crowded(self) -> bool:
        """Whether too many nodes are NotReady for any of them to count as alone."""
        return is_crowded(self._outages.away, self._counted[0])

    def held(self, h: Hypothesis) -> Hypothesis:
        """A node's own hypothesis as it is told: it waits for others that may go with it, and is sure only while it is alone."""
        if h.family != IncidentFamily.NODE_DOWN or is_dead(h):
            return h
        if self._is_crowded:
            h = replace(h, sure_at=None)
        return held(h, self._outages)

    def _judge(self, group: SharedGroup) -> list[SharedFault]:
        match group.kind:
            case GroupKind.NODES:
                return list(self._outages.faults)
            case GroupKind.STORAGE:
                return storage_faults(self._cluster, self._storage.of(group), self._incarnations)
            case GroupKind.NVLINK:
                return nvlink_faults(self._domains.of(group))
            case GroupKind.RACK:
                known = self._topology.nodes_in_rack(group.name)
                evidence = self._left_to(group)
                return rack_faults(self._cluster, group.name, evidence, known, self._incarnations)

    def _hand_over(self, before: Sequence[SharedFault], after: Sequence[SharedFault]) -> set[str]:
        """Note whose the parts are now. Returns the nodes of those that became part of another root than before."""
        for fault in before:
            for part in fault.parts:
                if (owner := self._by_part.get(part)) is not None and owner.id == fault.hypothesis.id:
                    del self._by_part[part]
        for fault in after:
            self._by_part |= dict.fromkeys(fault.parts, fault.hypothesis)
        return {node for node, _, _ in _parts_of(before) ^ _parts_of(after)}

    def _left_to(self, rack: SharedGroup) -> list[tuple[str, tuple[Hypothesis, ...]]]:
        """What the nodes of a rack say that is part of no larger outage. Power and heat are told of at once."""
        taken = {part for fault in self._outages.faults for part in fault.parts}
        evidence = self._racks.of(rack)
        if any(h.family == POWER for _, found in evidence for h in found):
            return [(node, tuple(h for h in found if h.id not in taken)) for node, found in evidence]
        return [
            (n, tuple(held(h, self._outages) for h in found if h.id not in taken)) for n, found in evidence
        ]

    def owner(self, part: str) -> Hypothesis | None:
        """The root that a node's hypothesis was merged into."""
        return self._by_part.get(part)

    def at(self, name: str) -> list[Hypothesis]:
        """Roots of the group itself; the root of an NVLink fault is its node's."""
        return self._at(SharedGroup.parse(name))

    def _at(self, group: SharedGroup) -> list[Hypothesis]:
        return [f.hypothesis for f in self._faults.get(group, ()) if f.hypothesis.place == group.place]

    def all(self) -> Iterable[Hypothesis]:
        """The roots of all groups."""
        return (h for group in list(self._faults) for h in self._at(group))

    def offered_to(self, nodes: set[str], last: datetime | None) -> Iterable[Hypothesis]:
        """Storage faults that some of these nodes report."""
        return (h for h in self._at(STORAGE) if not nodes.isdisjoint(h.nodes))

    def takes(self, place: Place, h: Hypothesis) -> Hypothesis | None:
        """The root that a node's root was merged into."""
        return self._by_part.get(h.id)

    def taker_of(self, incident: str, owner: str | None) -> Hypothesis | None:
        """The root it was merged into, else the root that is the owner."""
        return self._by_part.get(incident) or next((h for h in self.all() if h.id == owner), None)

    def successor_of(self, row: DocumentRow, by_jobs: ByJobs) -> Hypothesis | None:
        """An earlier root of the same group."""
        others = (h for h in self.at(row.place.name) if h.id != row.incident.id)
        return next((h for h in others if h.fault_at <= row.incident.fault_at), None)

    def members(self, incident: str, place: Place) -> Iterable[Place]:
        """The nodes of its parts."""
        faults = (f for found in self._faults.values() for f in found if f.hypothesis.id == incident)
        return {Place(PlaceKind.NODE, node) for fault in faults for node in fault.parts.values()}

    def built_from(self, incidents: Container[str]) -> Iterable[tuple[str, Place]]:
        """The nodes they reach, those of their parts, and those that they are counted from as well."""
        for fault in (f for found in self._faults.values() for f in found if f.hypothesis.id in incidents):
            h = fault.hypothesis
            for node in {*h.nodes, *fault.parts.values(), *fault.counted}:
                yield h.id, Place(PlaceKind.NODE, node)


def _parts_of(faults: Sequence[SharedFault]) -> set[tuple[str, str, str]]:
    """Node, part, and the root it was merged into."""
    return {(node, part, fault.hypothesis.id) for fault in faults for part, node in fault.parts.items()}
