"""Root causes on nodes: first those in a host's own signals, then those that jobs suspect it of, ranked together.

The second step comes after the jobs, because their ranks may suspect nodes whose own signals show nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain

from streams.correlate.cause_sources.shared import SharedCauses
from streams.correlate.cause_sources.source import ByJobs, Causes, CauseSource, Round, began_by
from streams.correlate.fabric_rules.links import GONE, LinkFault, excuses, host_links, nic_link
from streams.correlate.fabric_rules.pfc_storms import host_storms, weigh
from streams.correlate.fabric_rules.switch_faults import LinkFaultsBySwitch
from streams.correlate.hypothesis import SOMEWHERE, Hypothesis
from streams.correlate.job_rules.device_reports import DeviceReports
from streams.correlate.job_rules.early_ends import ended_early
from streams.correlate.job_rules.gpu_errors import GpuErrors
from streams.correlate.job_rules.job_evidence_cache import JobEvidenceCache
from streams.correlate.job_rules.silent_nodes import silent_roots
from streams.correlate.job_rules.slow_nodes import SlowNodes
from streams.correlate.job_rules.slow_ranks import SlowRanks
from streams.correlate.job_rules.verdict import Suspicion
from streams.correlate.node_rules.gpus import gpu_faults
from streams.correlate.node_rules.host_signals import host_faults, until_missed
from streams.correlate.node_rules.imex_peers import is_own_service
from streams.correlate.node_rules.job_output import unless_printed
from streams.correlate.node_rules.lost_devices import Holder, had_gpus
from streams.correlate.node_rules.node_death import LivenessWindow, liveness_window, weighed
from streams.correlate.node_rules.node_readiness import down_intervals, node_down, taken_away
from streams.correlate.node_rules.notices import put_ahead
from streams.correlate.node_rules.pod_starts import Start, of_the_node
from streams.correlate.node_rules.software_rollouts import since_given_back
from streams.correlate.policy.policy import policy
from streams.correlate.rank_node_causes import NodeRoots, stands_alone, weighed_roots
from streams.correlate.sightings import Sighting, is_of_clock
from streams.correlate.state.device_access import is_of_access
from streams.correlate.state.job_progress import ProgressReports
from streams.correlate.state.nic_names import nic_names
from streams.correlate.state.node_work import (
    HABIT,
    GivenBack,
    Work,
    given_back,
    usual_time,
    with_absences,
    work_over_at,
)
from streams.correlate.state.place import Place, PlaceKind, Touched
from streams.correlate.state.placement import stays_of
from streams.correlate.state.rows import DocumentRow, NodeRow, WorkHabitRow, of_kind
from streams.model.entity import Entity, Part
from streams.model.facts import NodeFact
from streams.model.incident import NO_NODE, Certainty
from streams.model.kinds import IncidentFamily, SignalKind
from streams.model.planned_work import BY
from streams.model.signal import REACHED, SINCE


class HostCauses(CauseSource):
    """Root causes in each host's own signals. Storms of several hosts are compared with each other."""

    kind, distance = PlaceKind.NODE, 0

    def __init__(
        self,
        causes: Causes,
        evidence_cache: JobEvidenceCache,
        links: LinkFaultsBySwitch,
        shared: SharedCauses,
    ) -> None:
        super().__init__(causes)
        self._evidence_cache, self._links, self._shared = evidence_cache, links, shared
        self._progress = ProgressReports(self._state, self._placements, self._config.slack)
        self._slow_ranks = SlowRanks(evidence_cache, self._placements, self._config)
        self._gpu_errors = GpuErrors(evidence_cache, self._placements, self._config)
        self._device_reports = DeviceReports(evidence_cache, self._placements, self._config)
        self._slow_nodes = SlowNodes(self._state, self._placements)
        self._undecided: dict[str, list[LivenessWindow]] = {}
        """Nodes that are or were NotReady and may be proven alive by progress of their jobs."""
        self._found: dict[str, list[Hypothesis]] = {}
        self.storms: dict[str, Hypothesis] = {}
        """Storms after comparison with each other, by incident id."""
        self._storms_at: dict[str, Set[str]] = {}
        """The switches that a storm's host is attached to."""
        self._storming: set[str] = set()
        """Nodes that have or had a storm."""

    def evaluate(self, round_: Round) -> None:
        """Evaluate the touched nodes and pass what they show on to switches and shared groups."""
        touched, stormy = round_.touched, False
        touched.nodes |= self._undecided_under(touched)
        for reports in (self._slow_ranks, self._gpu_errors, self._device_reports):
            touched.nodes |= reports.learn(touched.jobs | touched.placed)
        touched.nodes |= self._slow_nodes.learn(touched.nodes, touched.placed)
        self._progress.forget()
        for node in list(touched.nodes):
            row = self._state.nodes.get(node, NodeRow())
            before = self._found.pop(node, [])
            after, lost = self._judge(node, row, round_.now)
            touched.switches |= self._links.put(Place(PlaceKind.NODE, node), lost)
            if after:
                self._found[node] = after
                self._causes.note(after)
            touched.shared |= self._shared.put(
                node, row, after, self._gone_alone(node, after), self._without_gpus(node, row)
            )
            near = self._placements.jobs_near(node) | self._topology.pod_jobs.failing_on(node)
            touched.jobs |= near
            if {h.id for h in before} - {h.id for h in after}:
                touched.pressing |= near
            if any(h.family == IncidentFamily.PFC_STORM for h in (*before, *after)):
                self._storming.add(node)
                stormy = True
        if stormy:
            self._weigh_storms(touched)

    def _judge(self, node: str, row: NodeRow, now: datetime) -> tuple[list[Hypothesis], list[LinkFault]]:
        """The roots on a node, and its lost links that nothing excuses but that the node is missed itself."""
        names, config = self._topology.ports_of(node), self._config
        if row.work:
            self._learn_absences(node, row)
        called_slow = self._slow_ranks.on(node)
        quiet = self._evidence_cache.is_quiet(node) and not called_slow
        if quiet and self._state.ports.reporting.isdisjoint(names):
            return [], []
        ports = {name: self._state.ports[name] for name in names}
        links_seen = [
            s
            for kind in (SignalKind.FABRIC_LINK, SignalKind.NODE_MAINTENANCE)
            for s in of_kind(row.seen, kind)
        ]
        lost = host_links(self._cluster, node, links_seen, ports, row, self._incarnations, config)
        links = [(fault, excuses(fault, row, config)) for fault in lost]
        root, seen = Entity(self._cluster, node=node), list(chain.from_iterable(row.seen.values()))
        seen = of_the_node(seen, self._holder, partial(self._starts, node))
        if row.fact is None and not self._topology.is_unlisted_node(node):
            # The controller's own clock, or that of one of the nodes that speak to it: nobody knows which.
            seen = [s for s in seen if not is_of_clock(s)]
        if row.fact is not None and not self._shares_memory(row.fact):
            seen = [s for s in seen if not is_own_service(s)]
        ended = given_back(row, *self._closed_by_us(row))
        cuts = [g.seen_until for g in ended if g.booted]
        nics = nic_names(row.nics)
        found = [
            *gpu_faults(node, seen, self._incarnations, config, cuts, self._gpu_errors.on(node)),
            *host_storms(self._cluster, node, seen, ports, nics, self._incarnations, config),
            *node_down(root, row, seen, self._incarnations, self._usual, config),
            *host_faults(
                root,
                [
                    *map(nics.named, seen),
                    *called_slow,
                    *self._slow_nodes.on(node, now),
                    *ended_early(row, self._state.jobs),
                ],
                self._incarnations,
                cuts,
            ),
        ]
        found = [since_given_back(_left_to_workers(unless_printed(h), ended), row) for h in found]
        watched_by_slurm = row.fact is None and self._placements.is_of_slurm(node)
        missed_after = config.missed_late if watched_by_slurm else config.doubt_settle
        found += [nic_link(fault, row, ports, excused, config, missed_after) for fault, excused in links]
        if (left := row.left_at) is not None:
            stood = self._placements.on_node
            found = [
                h if h.expected is None and stood(node, h.fault_at, left) else taken_away(h, left)
                for h in found
            ]
        if row.fact is None and found and self._topology.is_no_node(node):
            found = [replace(h, facts={**h.facts, NO_NODE: True}) for h in found]
        if watched_by_slurm:
            found = [until_missed(h, config) for h in found]
        for i, h in enumerate(found):
            if h.family == IncidentFamily.NODE_DOWN:
                found[i] = weighed(h, row, ports, self._progress.on(node, h.fault_at), config)
            elif h.family == IncidentFamily.PREEMPTION:
                # Nothing takes a notice back. Pods that come to the node afterwards have nothing to do with it.
                over = h.cleared_at or work_over_at(row, h.last_at)
                found[i] = put_ahead(replace(h, cleared_at=over), now, config.notice_lead)
        # What a host took along that is missed is its own, unless its switches turn out to be why it is missed.
        return found, [
            replace(fault, gone=bool(excused)) for fault, excused in links if set(excused) <= {GONE}
        ]

    def _holder(self, pod: str, at: datetime) -> str | None:
        """The job for which a pod was to have GPUs then, whatever it is for; its own name where it is of none."""
        row = self._state.pods.get(pod)
        stays = (s for s in stays_of(row) if s.start <= at) if row is not None else ()
        fact = next((stay.fact for stay in sorted(stays, key=lambda s: s.start, reverse=True)), None)
        if fact is None or not fact.gpus:
            return None
        return fact.job.key if fact.job is not None else pod

    def _without_gpus(self, node: str, row: NodeRow) -> list[Sighting]:
        """What containers on a node say that had GPUs there and can no longer open them."""
        own = (group for group in row.seen.values() if is_of_access(group[0]))
        told = [*(s for group in own for s in group), *self._device_reports.on(node)]
        return had_gpus(told, partial(self._container, node)) if told else []

    def _container(self, node: str, pod: str, at: datetime) -> Holder | None:
        """The pod with GPUs that bore the name on that node then."""
        row = self._state.pods.get(pod)
        stays = stays_of(row) if row is not None else ()
        stay = next((s for s in reversed(stays) if s.node == node and s.start <= at and s.fact.gpus), None)
        if stay is None or stay.fact.job is None:
            return None
        return Holder(stay.fact.uid, stay.fact.job, stay.start, stay.fact.started_at, trains=stay.fact.trains)

    def _shares_memory(self, fact: NodeFact) -> bool:
        """Whether a node has others in its NVLink domain: a single box may run the service, and needs it for nothing."""
        domain = Part("nvlink-domain", fact.nvlink_domain or "")
        return fact.nvlink_domain is not None and self._topology.parts.size(domain) > 1

    def _starts(self, node: str) -> list[Start]:
        """The pods with GPUs that started on a node, whatever they are for."""
        rows = (self._state.pods.get(pod) for pod in self._placements.pods_on(node))
        stays = (stay for row in rows if row is not None for stay in stays_of(row))
        return [
            Start(stay.start, at)
            for stay in stays
            if stay.node == node and stay.fact.gpus and (at := stay.fact.started_at) is not None
        ]

    def _closed_by_us(self, row: NodeRow) -> tuple[list[Work], list[Work]]:
        """When Faultline kept a node closed: by request of somebody who works on it, and for faults."""
        asked: list[Work] = []
        handled: list[Work] = []
        for since, name in row.cordons:
            if (document := self._state.documents.get(name)) is None:
                continue
            incident = document.incident
            closed_at = self._incarnations.runs(name).closed_at or incident.closed_at
            work = Work(str(incident.facts.get(BY, "")), "back", since, closed_at)
            (asked if incident.family == IncidentFamily.PLANNED_WORK else handled).append(work)
        return asked, handled

    def _usual(self, went_at: datetime) -> timedelta:
        """How long a node that went then may be away when somebody works on it."""
        return usual_time(self._state.habits.get(HABIT), went_at)

    def _learn_absences(self, node: str, row: NodeRow) -> None:
        """Remember how long work on the node took, for others that are worked on later."""
        known = self._state.habits.get(HABIT, WorkHabitRow())
        self._state.habits.put(
            HABIT,
            with_absences(known, node, row, down_intervals(of_kind(row.seen, SignalKind.NODE_NOT_READY))),
        )

    def _gone_alone(self, node: str, found: Sequence[Hypothesis]) -> list[Hypothesis]:
        """The NotReady hypotheses that no other fault of the node explains."""
        down = [h for h in found if h.family == IncidentFamily.NODE_DOWN]
        if windows := [u for h in down if (u := liveness_window(h)) is not None]:
            self._undecided[node] = windows
        else:
            self._undecided.pop(node, None)
        return [h for h in down if stands_alone(h, found, self._incarnations, self._config)]

    def _undecided_under(self, touched: Touched) -> set[str]:
        """NotReady nodes whose jobs reported progress or changed placement, which may prove the nodes alive."""
        if not self._undecided:
            return set()
        moves = [(job, at) for job, at in touched.moves] + [(job, None) for job in touched.placed]
        return {
            p.node
            for job, at in moves
            for p in self._placements.placements_of(job)
            if any(at is None or since.covers(at) for since in self._undecided.get(p.node, ()))
        }

    def _weigh_storms(self, touched: Touched) -> None:
        """Compare all storms again; those whose result changed are republished and their switches re-evaluated."""
        found = (h for node in sorted(self._storming) for h in self._found.get(node, ()))
        storms = [h for h in found if h.family == IncidentFamily.PFC_STORM]
        self._storming = {h.root.node for h in storms if h.root.node}
        before, self.storms = self.storms, {h.id: h for h in weigh(storms, self._config)}
        names = before.keys() | self.storms.keys()
        changed = {name for name in names if before.get(name) != self.storms.get(name)}
        where = {name: self._switches_of(h) for name, h in self.storms.items()}
        for name in changed | {n for n in where if where[n] != self._storms_at.get(n)}:
            touched.switches |= where.get(name, set()) | self._storms_at.get(name, set())
        self._storms_at = where
        both = {n: [h for h in (before.get(n), self.storms.get(n)) if h] for n in changed}
        touched.nodes |= {h.root.node for found in both.values() for h in found if h.root.node}
        closed = self._incarnations.closed(self.storms)
        old, new = ({n: _as_cause(found.get(n), closed) for n in changed} for found in (before, self.storms))
        if news := [h for n in changed if old[n] != new[n] for h in both[n]]:
            near = (self._placements.jobs_near(h.root.node) for h in news if h.root.node)
            touched.jobs |= self._causes.troubled(*news).union(*near)

    def _switches_of(self, storm: Hypothesis) -> Set[str]:
        """The switches that a storming host is attached to; `SOMEWHERE` if unknown."""
        if storm.root.switch:
            return {storm.root.switch}
        return self._topology.switches_of(storm.root.node or "") or {SOMEWHERE}

    def storms_under(self, switch: str) -> list[Hypothesis]:
        """Storms of the hosts that are attached to a switch."""
        return [h for h in self.storms.values() if switch in self._storms_at[h.id]]

    def on(self, node: str) -> list[Hypothesis]:
        """Roots of a host, its storms after comparison with others."""
        return [self.storms.get(h.id, h) for h in self._found.get(node, ())]

    def all(self) -> Iterable[Hypothesis]:
        """Roots of every host."""
        return (h for found in self._found.values() for h in found)

    def offered_to(self, nodes: set[str], last: datetime | None) -> Iterable[Hypothesis]:
        """Roots of these nodes, and storms of any host: pause frames propagate."""
        found = (h for node in sorted(nodes) for h in self._found.get(node, ()))
        yield from (h for h in found if h.family != IncidentFamily.PFC_STORM)
        yield from (h for h in self.storms.values() if h.root.node in nodes or began_by(h, last))


def _lasts(s: Sighting) -> bool:
    """Whether its end would have been reported: a measurement past its threshold, an alert. A line is about a moment."""
    return "alert" in s.attributes or (SINCE in s.attributes and REACHED not in s.attributes)


def _left_to_workers(h: Hypothesis, ended: Iterable[GivenBack]) -> Hypothesis:
    """A fault of a node's hardware as it stands after its node was given back: over, or no longer beyond doubt."""
    mine = (
        [g for g in ended if h.last_at <= g.seen_until] if h.family in policy().maintenance.given_back else []
    )
    if not mine:
        return h
    back = min(mine, key=lambda g: (not g.booted, g.seen_until, g.at))
    if back.booted and h.cleared_at is None and any(map(_lasts, h.causes)):
        back = replace(back, booted=False)
    if back.booted:
        over = min(back.seen_until, h.cleared_at or back.seen_until)
        return replace(h, given_back=back, cleared_at=over)
    if h.certainty is not Certainty.DECISIVE:
        return h
    return replace(h, given_back=back, certainty=Certainty.LIKELY)


class NodeCauses(CauseSource):
    """Nodes: roots of their hosts and suspicions of jobs, each merged into the root that explains it."""

    kind = PlaceKind.NODE

    def __init__(self, causes: Causes, hosts: HostCauses, shared: SharedCauses) -> None:
        super().__init__(causes)
        self._hosts, self._shared = hosts, shared
        self._roots: dict[str, NodeRoots] = {}
        self._accused: dict[str, dict[str, list[Suspicion]]] = defaultdict(dict)
        """By node and job: the suspicions of the job's ranks."""

    def reconsider(self, round_: Round) -> None:
        """Rank the touched nodes' roots, now with the results of jobs and switches."""
        for job, before, after in round_.judged:
            for suspicion in before.suspicions:
                self._accused[suspicion.node].pop(job, None)
            for suspicion in after.suspicions:
                self._accused[suspicion.node].setdefault(job, []).append(suspicion)
        for node in round_.touched.nodes:
            self._assemble(node)

    def _assemble(self, node: str) -> None:
        hard, by_job = self._hosts.on(node), self._accused.get(node, {})
        accused = [s for job in sorted(by_job) for s in by_job[job]]
        if (before := self._roots.pop(node, None)) is not None:
            for merged in before.merged:
                self.owners.pop(merged, None)
        if not accused:
            self._accused.pop(node, None)
            if not hard:
                return  # as of most nodes that report something: only the clean-up of killed processes
        silent = (
            silent_roots(Entity(self._cluster, node=node), accused, self._incarnations) if accused else []
        )
        row = self._state.nodes.get(node, NodeRow())
        closed = self._incarnations.closed(h.id for h in (*hard, *silent))
        missed = not any(self._shared.owner(h.id) for h in hard if h.family == IncidentFamily.NODE_DOWN)
        roots = weighed_roots(hard, silent, row, closed, self._config, missed_alone=missed)
        # A fault of its switch, or of what it shares with other nodes, is not the node's own.
        for h in list(roots.independent):
            if (owner := self._causes.taker(Place(PlaceKind.NODE, node), h)) is not None:
                roots.hand_over(h, owner.id)
        roots.independent = [self._shared.held(h) for h in roots.independent]
        self.owners |= roots.merged
        if roots.independent or roots.merged:
            self._roots[node] = roots

    def at(self, name: str) -> list[Hypothesis]:
        """Roots of the node's own."""
        return self._roots[name].independent if name in self._roots else []

    def suspect(self, node: str) -> Hypothesis | None:
        """The root of a suspected node that explains the suspicion."""
        roots = self._roots.get(node, NodeRoots())
        owners = roots.merged.values()
        return next(
            (h for h in roots.independent if h.family == IncidentFamily.SILENT_NODE or h.id in owners), None
        )

    def suspected_at(self, name: str) -> str | None:
        """The silent-node incident, or the one it was merged into."""
        roots = self._roots.get(name, NodeRoots())
        silent = [roots.merged[h.id] for h in roots.parts if h.family == IncidentFamily.SILENT_NODE]
        silent += [h.id for h in roots.independent if h.family == IncidentFamily.SILENT_NODE]
        return silent[-1] if silent else None

    def successor_of(self, row: DocumentRow, by_jobs: ByJobs) -> Hypothesis | None:
        """The root it was merged into, else what explains its jobs' symptoms now, else another root of the node."""
        node, incident = row.place.name, row.incident
        if (meant := self._topology.names.meant(node, incident.fault_at)) != node:
            # The incident was opened under a host name that is known by now to mean another node.
            mine = self.at(meant)
            return next((h for h in mine if h.family == incident.family), next(iter(mine), None))
        roots = self._roots.get(node)
        if roots is None:
            return by_jobs()
        owner = roots.merged.get(incident.id)
        if (root := next((h for h in roots.independent if h.id == owner), None)) is not None:
            return root
        takers = (
            taker for s in self._causes.sources if (taker := s.taker_of(incident.id, owner)) is not None
        )
        if (taker := next(takers, None)) is not None:
            return self._causes.found(self._causes.owner_of(taker.id))
        return by_jobs() or next((h for h in roots.independent if h.id != incident.id), None)

    def built_from(self, incidents: Container[str]) -> Iterable[tuple[str, Place]]:
        """Nodes with roots that became part of an incident elsewhere: at the far end of an NVLink, of a switch."""
        for node, roots in self._roots.items():
            for owner in set(roots.merged.values()):
                if owner in incidents:
                    yield owner, Place(PlaceKind.NODE, node)

    def parts_of(self, incident: str, places: Sequence[Place]) -> Iterable[Hypothesis]:
        """Roots of these nodes that became part of it."""
        for roots in (self._roots.get(p.name) for p in places if p.kind is PlaceKind.NODE):
            if roots is not None:
                yield from (part for part in roots.parts if roots.merged[part.id] == incident)


def _as_cause(storm: Hypothesis | None, closed: Mapping[str, datetime]) -> tuple[object, ...]:
    """What of a storm matters to jobs elsewhere. While it lasts, one more report changes nothing for them."""
    if storm is None:
        return ()
    until = storm.last_at if storm.cleared_at or storm.id in closed else None
    return (storm.root, storm.certainty, storm.fault_at, storm.rule, storm.lag, storm.cleared_at, until)
