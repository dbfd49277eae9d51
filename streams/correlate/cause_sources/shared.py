"""Faults that several nodes share (`SharedGroup`), and which roots on nodes were merged into them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Sequence, Set
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain

from streams.correlate.cause_sources.source import ByJobs, Causes, CauseSource, Round
from streams.correlate.hypothesis import Hypothesis
from streams.correlate.node_rules.clocks import CLOCKS, clock_faults, of_clocks
from streams.correlate.node_rules.hot_nodes import by_heat, of_cooling
from streams.correlate.node_rules.imex_peers import imex_faults, is_of_peer, of_imex
from streams.correlate.node_rules.job_output import is_hearsay, of_output, printed_faults, settled
from streams.correlate.node_rules.job_starts import of_starts, start_faults
from streams.correlate.node_rules.lost_devices import DEVICES, device_faults, of_devices
from streams.correlate.node_rules.node_outages import (
    Absence,
    Outages,
    absences_of,
    held,
    is_crowded,
    is_dead,
    is_of_host,
    outage_policy,
    outages,
    unreached,
)
from streams.correlate.node_rules.nvlink_domains import nvlink_faults, of_nvlink_domain
from streams.correlate.node_rules.part_devices import by_device, complaints_of, may_be_of_device
from streams.correlate.node_rules.part_policy import part_policy
from streams.correlate.node_rules.part_speakers import POWER, TrayReports
from streams.correlate.node_rules.power_inputs import (
    InputsLost,
    by_input,
    loses_input,
    of_inputs,
    on_one_clock,
    went_by_themselves,
)
from streams.correlate.node_rules.shared_groups import GroupIndex, SharedFault
from streams.correlate.node_rules.shared_parts import (
    Trouble,
    elected,
    followers,
    part_faults,
    told_by,
    troubles_of,
)
from streams.correlate.node_rules.software_rollouts import is_of_rollout, of_rollout, of_software, rollouts
from streams.correlate.node_rules.storage import storage_faults
from streams.correlate.node_rules.storage_reports import StorageReports, serves_storage, storage_reports
from streams.correlate.policy.families import families
from streams.correlate.sightings import Sighting, order, tray_of
from streams.correlate.state.place import NODES, STORAGE, GroupKind, Place, PlaceKind, SharedGroup, Touched
from streams.correlate.state.rows import DocumentRow, NodeRow
from streams.inventory.parts import device_kind
from streams.model.entity import Part
from streams.model.incident import Incident
from streams.model.kinds import IncidentFamily, SignalKind
from streams.model.signal import RACK

_JUDGED_EVERY = timedelta(seconds=1)
_JUDGED_AT_ONCE = 64
"""Up to so many troubles, a new one that may be told by now is compared with the others at once; else with the next second's."""
_STORAGE_KINDS = (SignalKind.NODE_STORAGE, SignalKind.NODE_KERNEL)
_CONTROL_PLANE = ("etcd", "control_plane")
"""Subtypes that only hosts of a control plane report."""
_OFFERED_ANYWHERE = (GroupKind.SOFTWARE, GroupKind.RUNTIME)
"""Groups of faults that jobs on any node may complain of."""
_TOLD_KINDS = frozenset({*_STORAGE_KINDS, SignalKind.NODE_CONDITION})
"""What is read here of a node in which nothing is found to be wrong."""


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
        self._counted = (0, 0, 0)
        """What the inventory had of all nodes (`Topology.counts`) when outages were evaluated last."""
        self._troubled: GroupIndex[tuple[Trouble, ...]] = GroupIndex()
        self._followers: dict[str, tuple[Hypothesis, ...]] = {}
        """By node: what becomes part of a fault of its parts."""
        self._elected: dict[SharedGroup, tuple[Trouble, ...]] = {}
        """By part: the troubles that are one event of it."""
        self._inputs = InputsLost()
        self._trays: dict[str, TrayReports] = {}
        """By name: what switch trays say of themselves."""
        self._devices: dict[str, tuple[Trouble, ...]] = {}
        """By name: what coolant units and power feeds say of themselves of which nobody tells whose they are."""
        self._control: dict[str, tuple[Hypothesis, ...]] = {}
        """By node of the control plane: faults of its host."""
        self._domains: GroupIndex[tuple[Hypothesis, ...]] = GroupIndex()
        self._software: GroupIndex[tuple[Hypothesis, ...]] = GroupIndex()
        self._without_gpus: GroupIndex[tuple[Hypothesis, ...]] = GroupIndex()
        self._printed: GroupIndex[tuple[Hypothesis, ...]] = GroupIndex()
        self._imex: GroupIndex[tuple[Sighting, ...]] = GroupIndex()
        self._starts: GroupIndex[tuple[Hypothesis, ...]] = GroupIndex()
        self._storage: GroupIndex[StorageReports] = GroupIndex()
        self._stored_by = 0
        """How many nodes there were when storage was evaluated last."""
        self._faults: dict[SharedGroup, list[SharedFault]] = {}
        self._by_part: dict[str, Hypothesis] = {}
        """By id of a node's hypothesis: the root that it was merged into."""
        self._telling: set[str] = set()
        """Nodes of which any evidence may be kept here."""

    def put(
        self,
        node: str,
        row: NodeRow,
        hypotheses: Sequence[Hypothesis],
        gone_alone: Sequence[Hypothesis],
        without_gpus: Sequence[Sighting] = (),
    ) -> set[SharedGroup]:
        """Keep the evidence of one node; `gone_alone` is when it was NotReady for no reason of its own, and `without_gpus`
        what its containers say that can no longer open their GPUs.

        Returns the groups to re-evaluate.
        """
        fact, kinds = row.fact, {group[0].kind for group in row.seen.values()}
        rolled = SignalKind.UNKNOWN in kinds and any(is_of_rollout(group[0]) for group in row.seen.values())
        peers = SignalKind.GPU_DRIVER in kinds and any(is_of_peer(group[0]) for group in row.seen.values())
        silent = kinds.isdisjoint(_TOLD_KINDS) and not rolled and not peers if fact is not None else not kinds
        if not hypotheses and silent and not without_gpus:
            # Of most nodes that report something nothing is wrong: nothing of what follows finds anything to keep.
            if node not in self._telling:
                return self._of_inventory() | self._reached(node)
            self._telling.discard(node)
        else:
            self._telling.add(node)
        # A node that was cordoned for this is being handled, also when it came back and went again with others.
        handled = {name for _, name in row.cordons}
        gone_alone = [h for h in gone_alone if h.id not in handled]
        parts, guessed = (fact.shared_parts, fact.guessed_parts or ()) if fact and hypotheses else ((), ())
        if fact is None and hypotheses:
            parts = tuple(sorted(self._topology.parts.at(node)))
            stated = self._topology.stated_parts(node)
            guessed = tuple(part.kind for part in parts if part not in stated)
        # What jobs print is something about jobs where it is of many nodes, whatever these share.
        witnessed = [h for h in hypotheses if not is_hearsay(h)]
        troubles = troubles_of(node, witnessed, gone_alone, parts, guessed)
        part = self._told_part(node, hypotheses) if fact is None and hypotheses else None
        if part is not None:
            troubles = told_by(node, part, hypotheses)
        elif not parts:
            troubles = tuple(filter(self._without_place(node, fact is not None), troubles))
        if len(self._known) <= _JUDGED_AT_ONCE:
            self._expect([t.hypothesis for t in troubles])
        touched = self._troubled.put(node, {NODES: troubles} if troubles else {})
        if troubles:
            # Who works on its nodes may be known only now.
            parts_ = self._elected.items()
            touched |= {group for group, mine in parts_ if any(t.node == node for t in mine)}
        if (followed := followers(hypotheses)) != self._followers.pop(node, ()) and troubles:
            touched.add(NODES)
        if followed:
            self._followers[node] = followed
        # What is no node and has NVSwitches is a tray of them, whatever it calls its trouble.
        tray = fact is None and self._topology.is_no_node(node)
        seen = [s for group in row.seen.values() for s in group] if fact is None else []
        named = fact is None and part_policy().is_tray(node)
        spoke = (
            s
            for s in seen
            if tray_of(s)
            or (tray and s.firing and _is_fatal_of_switch(s))
            or (named and s.firing and s.kind == SignalKind.NODE_POWER)
        )
        own = tuple(
            h
            for h in hypotheses
            if (tray and h.family == IncidentFamily.GPU_NVLINK) or (named and h.family == POWER)
        )
        told = TrayReports(tuple(sorted({s.id: s for s in spoke}.values(), key=order)), own)
        if told != self._trays.pop(node, TrayReports()):
            touched |= self._elected.keys()
        if told != TrayReports():
            self._trays[node] = told
        complaints = complaints_of(node, hypotheses, seen) if fact is None and part is None else ()
        if complaints != self._devices.pop(node, ()):
            touched.add(NODES)
        if complaints:
            self._devices[node] = complaints
        links = of_nvlink_domain(witnessed)
        domain = SharedGroup(GroupKind.NVLINK, fact.nvlink_domain) if fact and fact.nvlink_domain else None
        touched |= self._domains.put(node, {domain: links} if links and domain else {})
        software = of_software(row, hypotheses)
        if rolled:
            software |= of_rollout(self._cluster, node, row)
        touched |= self._software.put(node, software)
        lost = of_devices(self._cluster, node, row, without_gpus, hypotheses)
        touched |= self._without_gpus.put(node, {DEVICES: lost} if lost else {})
        touched |= self._printed.put(node, of_output(hypotheses))
        touched |= self._imex.put(node, of_imex(node, row, self._host) if peers and fact is not None else {})
        conditions = SignalKind.NODE_CONDITION in kinds
        starts = of_starts(self._cluster, node, row, hypotheses) if conditions else {}
        touched |= self._starts.put(node, starts | of_clocks(hypotheses))
        stored = [s for group in row.seen.values() if group[0].kind in _STORAGE_KINDS for s in group]
        reports = StorageReports()
        if stored or (hypotheses and fact is None):
            only = len(self._topology.ports_of(node)) == 1
            reports = storage_reports(
                node, stored, hypotheses, self._serves(node, row), gone_alone, only=only
            )
        touched |= self._storage.put(node, {STORAGE: reports} if reports != StorageReports() else {})
        control = tuple(filter(is_of_host, hypotheses)) if self._is_control_plane(node, row) else ()
        if control != self._control.pop(node, ()) and NODES in self._absent:
            touched.add(NODES)
        if control:
            self._control[node] = control
            self._expect(control)
        absences = self._absences(node, row, gone_alone)
        self._expect([a.hypothesis for a in absences])
        touched |= self._absent.put(node, {NODES: absences} if absences else {})
        return touched | self._of_inventory() | self._reached(node)

    def _reached(self, node: str) -> set[SharedGroup]:
        """The group of those who do not reach a node, if there are any: whether it was there may be known only now."""
        group = SharedGroup(GroupKind.IMEX, node)
        return {group} if group in self._imex else set()

    def _host(self, name: str, at: datetime) -> str | None:
        return self._topology.hosts.find(name, at).node

    def _of_inventory(self) -> set[SharedGroup]:
        """The groups to re-evaluate because the inventory has other nodes by now, whatever node is looked at."""
        touched = set[SharedGroup]()
        if self._stored_by != self._topology.nodes_known() and STORAGE in self._storage:
            touched.add(STORAGE)
        if self._counted != self._topology.counts():
            touched |= self.doubted()
        return touched

    def _is_control_plane(self, node: str, row: NodeRow) -> bool:
        """Whether a node is one of the control plane: by its labels; a host outside the cluster by what it runs."""
        if row.fact is not None:
            return row.fact.control_plane
        if not self._topology.is_no_node(node):
            return False
        return any(s.text("subtype") in _CONTROL_PLANE for group in row.seen.values() for s in group)

    def _without_place(self, node: str, listed: bool) -> Callable[[Trouble], bool]:
        """Which troubles count of a host of which nothing tells what it shares.

        A device's own (by its name) do not; of what is no node, a switch or a server of storage, only that it lost an input.
        """
        if listed:
            return may_be_of_device
        policy = part_policy()
        if device_kind(node) in policy.feeds or policy.is_tray(node):
            return lambda _: False
        return loses_input if self._topology.is_no_node(node) else may_be_of_device

    def _told_part(self, node: str, hypotheses: Sequence[Hypothesis]) -> Part | None:
        """The part that such a device is, by its own name, else the rack that it is said to stand in."""
        parts = self._topology.parts
        if (part := parts.named(node)) is not None:
            return part
        racks = {rack for h in hypotheses for s in h.causes if (rack := s.text(RACK))}
        return parts.named(racks.pop()) if len(racks) == 1 else None

    def _serves(self, node: str, row: NodeRow) -> frozenset[str] | None:
        """What a storage that this host serves is called; None for a host that is no node of a cluster whose nodes are known.

        A node that says itself which targets it serves is called by these as well. What says so and is no node that is known of
        may serve any: its log of a fault names the disk, and not always what is on it.
        """
        lines = [s for group in row.seen.values() if serves_storage(group[0]) for s in group]
        targets = {target for s in lines if (target := s.text("target"))}
        if row.fact is not None:
            return frozenset({node, *row.fact.addresses, *row.fact.aliases, *targets})
        if self._topology.is_no_node(node) or (lines and not self._topology.is_unlisted_node(node)):
            return None
        return frozenset(targets)

    def _absences(self, node: str, row: NodeRow, down: Sequence[Hypothesis]) -> tuple[Absence, ...]:
        """The times that a node was away: NotReady for no reason of its own, or as its agent tells (`unreached`)."""
        parts = row.fact.shared_parts if row.fact else tuple(sorted(self._topology.parts.at(node)))
        absences = tuple(
            absence
            for h in down
            if not is_dead(h) and h.facts.get("maintenance") is not True
            for absence in absences_of(node, h, row, parts)
        )
        return (*absences, *unreached(self._cluster, node, row, parts))

    def _expect(self, found: Iterable[Hypothesis]) -> None:
        """Note when the first of these may open an incident that has not been looked at yet."""
        new = [h.ready_at for h in found if h.id not in self._known]
        if new:
            self._unjudged = min([*new, *([self._unjudged] if self._unjudged else [])])

    def doubted(self) -> set[SharedGroup]:
        """The group of NotReady nodes, if there are any: something else may explain them now."""
        return {NODES} if NODES in self._absent or NODES in self._troubled else set()

    def evaluate(self, round_: Round) -> None:
        """Evaluate the touched groups. Where the result changed, their nodes and those nodes' jobs are re-evaluated."""
        touched = round_.touched
        if STORAGE in touched.shared and self._settle(STORAGE, touched):
            touched.shared |= self.doubted()  # what hangs on a storage is away for that
        if NODES in touched.shared:
            self._judge_outages(round_)
        for group in sorted(touched.shared - {STORAGE}):
            self._settle(group, touched)

    def _settle(self, group: SharedGroup, touched: Touched) -> bool:
        """Evaluate one group; where the result changed, its nodes and their jobs are touched. Returns whether it did."""
        before = self._faults.pop(group, [])
        if after := self._judge(group):
            self._faults[group] = after
            self._causes.note(self._at(group))
        if before == after:
            return False
        nodes = self._hand_over(before, after)
        touched.nodes |= nodes
        touched.jobs |= set[str]().union(*map(self._placements.jobs_near, nodes))
        touched.jobs |= self._concerned(group, nodes.union(*(f.hypothesis.nodes for f in (*before, *after))))
        return True

    def _concerned(self, group: SharedGroup, nodes: set[str]) -> set[str]:
        """Jobs with symptoms that faults of a group on these nodes may explain (`offered_to`)."""
        troubled = self._causes.troubled()
        if not troubled or group.kind in _OFFERED_ANYWHERE:
            return troubled
        near = (self._placements.jobs_near(node) | self._topology.pod_jobs.failing_on(node) for node in nodes)
        return troubled.intersection(chain.from_iterable(near))

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
        absences = [
            a
            for node, found in self._absent.of(NODES)
            for a in found
            if not self._is_cut_off(node, a.hypothesis) and not self._hangs(a.hypothesis)
        ]
        troubles = [
            t
            for node, found in self._troubled.of(NODES)
            for t in found
            if not self._is_cut_off(node, t.hypothesis) and not self._hangs(t.hypothesis)
        ]
        control = [h for found in self._control.values() for h in found]
        known = [*(a.hypothesis for a in absences), *(t.hypothesis for t in troubles), *control]
        self._known = frozenset(h.id for h in known)
        before, crowded = self._outages, self._is_crowded
        self._counted = self._topology.counts()
        troubles = on_one_clock(troubles)
        lone = went_by_themselves(troubles)
        troubles = [t for t in troubles if t.hypothesis.id not in lone]
        self._inputs = InputsLost.of(troubles)
        of_parts = elected(troubles, self._topology.parts, self._topology.nodes_known_at)
        of_parts = by_input(of_parts, troubles)
        of_parts = by_device(of_parts, troubles, self._devices, self._topology.parts)
        troubles += [t for complaints in self._devices.values() for t in complaints]
        of_parts = by_heat(of_parts, troubles, self._topology.parts, self._topology.nodes_known_at)
        self._outages = outages(
            self._cluster, absences, self._topology, of_parts, self._incarnations, control
        )
        turned = crowded is not self._is_crowded
        touched.nodes |= {
            a.node
            for a in absences
            if turned or before.for_node(a.hypothesis.id) != self._outages.for_node(a.hypothesis.id)
        }
        mine: dict[SharedGroup, list[Trouble]] = defaultdict(list)
        for t in troubles:
            if (part := of_parts.get(t.hypothesis.id)) is not None:
                mine[SharedGroup(*part)].append(t)
        touched.shared |= self._elected.keys() | mine.keys()
        self._elected = {group: tuple(found) for group, found in mine.items()}

    def _is_cut_off(self, node: str, h: Hypothesis) -> bool:
        """Whether the fault of a switch explains it."""
        switches = self._causes.of(PlaceKind.SWITCH)
        return any(s.takes(Place(PlaceKind.NODE, node), h) is not None for s in switches)

    def _hangs(self, h: Hypothesis) -> bool:
        """Whether a node is away for a storage that it hangs on."""
        return any(h.id in fault.parts for fault in self._faults.get(STORAGE, ()))

    @property
    def _is_crowded(self) -> bool:
        """Whether too many nodes are NotReady for any of them to count as alone."""
        return is_crowded(self._outages.away, self._counted[0])

    def held(self, h: Hypothesis) -> Hypothesis:
        """A node's own hypothesis as it is told: it waits for others that may go with it, and is sure only while it is alone."""
        if is_hearsay(h):
            return settled(h)
        if h.family != IncidentFamily.NODE_DOWN or is_dead(h):
            return h
        if self._is_crowded:
            h = replace(h, sure_at=None)
        if left := [f.left[h.id] for f in self._faults.get(STORAGE, ()) if h.id in f.left]:
            h = replace(
                h, ready_at=max(h.ready_at, *left), sure_at=max(h.sure_at, *left) if h.sure_at else None
            )
        return held(h, self._outages)

    def _judge(self, group: SharedGroup) -> list[SharedFault]:
        match group.kind:
            case GroupKind.NODES:
                return list(self._outages.faults)
            case GroupKind.STORAGE:
                self._stored_by = self._topology.nodes_known()
                evidence = self._storage.of(group)
                # Without an inventory those that are known are some of them: a few hosts are no share of those.
                least = 0 if self._topology.has_listed else families().shared.storage.no_small_cluster
                known = max(self._stored_by, least)
                return storage_faults(self._cluster, evidence, known, self._incarnations)
            case GroupKind.SOFTWARE:
                return rollouts(self._cluster, group, self._software.of(group), self._incarnations)
            case GroupKind.RUNTIME:
                return device_faults(self._cluster, group, self._without_gpus.of(group), self._incarnations)
            case GroupKind.STARTS if group == CLOCKS:
                return clock_faults(self._cluster, self._starts.of(group), self._incarnations)
            case GroupKind.STARTS:
                return start_faults(self._cluster, group, self._starts.of(group), self._incarnations)
            case GroupKind.OUTPUT:
                return printed_faults(self._cluster, group, self._printed.of(group), self._incarnations)
            case GroupKind.IMEX:
                row, domain = self._state.nodes.get(group.name), self._domain_of(group.name)
                known = self._topology.parts.size(domain) if domain is not None else 0
                return imex_faults(self._cluster, group, self._imex.of(group), row, known, self._incarnations)
            case GroupKind.NVLINK:
                return nvlink_faults(self._domains.of(group))
        troubles = self._held_in(group)
        found = part_faults(
            self._cluster,
            Part(group.kind, group.name),
            troubles,
            self._followers,
            self._topology.parts,
            self._incarnations,
            self._trays,
        )
        count = self._topology.nodes_known_at
        found = [of_inputs(fault, troubles, self._inputs, count) for fault in found]
        return [of_cooling(fault, troubles, count) for fault in found]

    def _domain_of(self, node: str) -> Part | None:
        kind = part_policy().nvlink.part
        return next((part for part in self._topology.parts.at(node) if part.kind == kind), None)

    def _hand_over(self, before: Sequence[SharedFault], after: Sequence[SharedFault]) -> set[str]:
        """Note whose the parts are now. Returns the nodes of those that became part of another root than before."""
        for fault in before:
            for part in fault.parts:
                if (owner := self._by_part.get(part)) is not None and owner.id == fault.hypothesis.id:
                    del self._by_part[part]
        for fault in after:
            self._by_part |= dict.fromkeys(fault.parts, fault.hypothesis)
        return {node for node, _, _ in _parts_of(before) ^ _parts_of(after)}

    def _held_in(self, part: SharedGroup) -> list[Trouble]:
        """The troubles of a part. Where nodes only went dark, others may follow; power and heat are reported at once."""
        troubles = self._elected.get(part, ())
        if any(t.hypothesis.family == POWER for t in troubles):
            return list(troubles)
        return [
            replace(t, hypothesis=held(t.hypothesis, self._outages))
            if t.hypothesis.family == IncidentFamily.NODE_DOWN
            else t
            for t in troubles
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
        """What some of these nodes share, where it can stop a job."""
        return (h for h in self.all() if h.stops != "never" and not nodes.isdisjoint(h.nodes))

    def without_power(self) -> list[Hypothesis]:
        """Parts whose nodes lack power, by what those or a feed report, not by heat nor only because they are dark."""
        return [
            h
            for h in self.all()
            if h.family == POWER and any(s.kind == SignalKind.NODE_POWER for s in h.causes)
        ]

    def storages(self) -> list[Hypothesis]:
        """Faults of storage, wherever they are felt."""
        return self._at(STORAGE)

    def rollouts(self) -> list[Hypothesis]:
        """Software that was rolled out and broke nodes."""
        groups = [group for group in self._faults if group.kind == GroupKind.SOFTWARE]
        return [h for group in sorted(groups) for h in self._at(group)]

    def lost_devices(self) -> list[Hypothesis]:
        """Faults by which containers lost their GPUs."""
        return self._at(DEVICES)

    def takes(self, place: Place, h: Hypothesis) -> Hypothesis | None:
        """The root that a node's root was merged into."""
        return self._by_part.get(h.id)

    def taker_of(self, incident: str, owner: str | None) -> Hypothesis | None:
        """The root it was merged into, else the root that is the owner."""
        return self._by_part.get(incident) or next((h for h in self.all() if h.id == owner), None)

    def successor_of(self, row: DocumentRow, by_jobs: ByJobs) -> Hypothesis | None:
        """An earlier root of the same group, else that of another part of the same nodes: it was larger than it seemed."""
        incident = row.incident
        others = (h for h in self.at(row.place.name) if h.id != incident.id)
        if (earlier := next((h for h in others if h.fault_at <= incident.fault_at), None)) is not None:
            return earlier
        nodes, part = set(incident.nodes), Part(*SharedGroup.parse(row.place.name))
        wider = [
            (len(mine), f.hypothesis.id, f.hypothesis)
            for found in self._faults.values()
            for f in found
            if f.hypothesis.id != incident.id
            and abs(f.hypothesis.fault_at - incident.fault_at) <= part_policy().power.within
            and (mine := self._shared_with(nodes, part, f.hypothesis.nodes or f.parts.values()))
        ]
        return max(wider, default=(0, "", None))[2] or self._cut_off_by(incident)

    def _cut_off_by(self, incident: Incident) -> Hypothesis | None:
        """The switch that turned out to be why most of the nodes of an incident were missed."""
        began, within = incident.fault_at, outage_policy().within
        missed = [
            (node, a)
            for node, absences in self._absent.of(NODES)
            for a in absences
            # An outage of the cluster lists no nodes.
            if (node in incident.nodes if incident.nodes else began <= a.start <= began + within)
        ]
        takers: dict[str, Hypothesis] = {}
        counts: Counter[str] = Counter()
        for node, absence in missed:
            place = Place(PlaceKind.NODE, node)
            found = (s.takes(place, absence.hypothesis) for s in self._causes.of(PlaceKind.SWITCH))
            if (root := next(filter(None, found), None)) is not None:
                takers[root.id] = root
                counts[root.id] += 1
        # Several that restarted together take some each, and any of them some of these nodes.
        if not counts or 2 * counts.total() < len(missed):
            return None
        return takers[max(counts, key=lambda name: (counts[name], name))]

    def _shared_with(self, nodes: Set[str], part: Part, others: Iterable[str]) -> set[str]:
        """Which nodes are in trouble here and there; of a part that alone reported trouble, those that it would have hit."""
        if nodes:
            return {node for node in others if node in nodes}
        return {node for node in others if part in self._topology.parts.at(node)}

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


def _is_fatal_of_switch(s: Sighting) -> bool:
    return s.kind == SignalKind.GPU_SXID and s.text("severity") == "Fatal"


def _parts_of(faults: Sequence[SharedFault]) -> set[tuple[str, str, str]]:
    """Node, part, and the root it was merged into."""
    return {(node, part, fault.hypothesis.id) for fault in faults for part, node in fault.parts.items()}
