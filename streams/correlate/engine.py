"""One cluster's correlation: what came in is kept, what it touches is judged anew, what is news is published.

The order is always the same: ports, nodes, the jobs on them, the nodes those jobs accuse; then documents. Only what a batch
touched is looked at, so the cost of a signal does not depend on the size of the cluster.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from streams.correlate.changes import Changes
from streams.correlate.fabric_rules.links import LinkFault, excuses, host_links, nic_link, uplink
from streams.correlate.fabric_rules.pfc_storms import fabric_storm, shared_storms, victims, weigh
from streams.correlate.fabric_rules.storm_propagation import Spread, spread
from streams.correlate.fabric_rules.switch_faults import (
    BY_VOTES,
    SOMEWHERE,
    Neighbourhood,
    SwitchFault,
    explains,
    switch_faults,
    uplink_fault,
)
from streams.correlate.hypothesis import Blame, Hypothesis
from streams.correlate.job_rules.job_evidence import Evidence
from streams.correlate.job_rules.job_evidence_cache import Testimony
from streams.correlate.job_rules.job_verdict import Judgement, Suspicion, judge
from streams.correlate.job_rules.silent_nodes import silent_roots
from streams.correlate.node_causes import hard_roots
from streams.correlate.node_rules.node_death import Unheard, unheard_of, weighed
from streams.correlate.node_rules.node_outages import Census
from streams.correlate.node_rules.node_readiness import taken_away
from streams.correlate.node_rules.shared_faults import CommonFaults
from streams.correlate.policy.config import Config
from streams.correlate.policy.kinds import LINK
from streams.correlate.publish.publisher import Publisher
from streams.correlate.rank_node_causes import NodeRoots, stands_alone, weighed_roots
from streams.correlate.sightings import Sighting
from streams.correlate.state.incarnations import Lives
from streams.correlate.state.ingest import Ingest
from streams.correlate.state.job_progress import Pulses
from streams.correlate.state.placement import Placements
from streams.correlate.state.pod_jobs import job_ref
from streams.correlate.state.rows import JobRow, NodeRow, PortRow
from streams.correlate.state.stale_reports import Latecomers
from streams.correlate.state.store import Rows, State
from streams.correlate.state.topology import Topology
from streams.correlate.state.touched import Touched
from streams.model.entity import Entity, JobRef
from streams.model.facts import Fact
from streams.model.signal import Signal

_STEPS = 4
"""A root may be part of another of its node, that of one at the far end of a link or of what many hosts share, and so a storm
of its host's: no chain is longer."""


class Core:
    """The correlation of one cluster without Kafka: signals, facts and time in, incidents out. No I/O, no clock of its own.

    `rows` keeps the state: only changed rows are written, once per call. A new core on the same rows goes on where the old
    one stopped. The same signals and facts in any order, split and repeated at will, end in the same incidents.
    """

    def __init__(self, cluster: str, rows: Rows, config: Config | None = None) -> None:
        self.name = cluster
        self._config = config or Config()
        self._state = State(rows, cluster)
        self._lives = Lives(self._state, self._config.linger)
        self._placements = Placements(self._state, self._config.slack)
        self._topology = Topology(self._state, self._placements)
        self._ingest = Ingest(self._state, self._topology)
        self._publisher = Publisher(
            self._state, self._placements, self._lives, self._config, self._topology.names.candidates
        )
        self._hard: dict[str, list[Hypothesis]] = {}
        self._fabric: dict[str, list[Hypothesis]] = {}
        self._uplinks: dict[str, list[Hypothesis]] = {}
        self._links = Neighbourhood()
        self._switches: dict[str, list[SwitchFault]] = {}
        self._blamed: dict[str, dict[str, list[Blame]]] = defaultdict(dict)
        """By switch and job: failing connections that meet there."""
        census = Census(
            self._topology.nodes_known, self._topology.nodes_in_rack, self._topology.nodes_at_leaf
        )
        self._common = CommonFaults(cluster, self._lives, census)
        self._pulses = Pulses(self._state, self._placements, self._config.slack)
        self._unheard: dict[str, list[Unheard]] = {}
        """Nodes of which progress of their jobs may tell that they live although they are, or were, NotReady."""
        self._roots: dict[str, NodeRoots] = {}
        self._hosts: dict[str, str] = {}
        """Of a root that became part of another: whose."""
        self._home: dict[str, str] = {}
        """Of a root: the scope it is judged in."""
        self._latecomers = Latecomers(cluster, self._config.retention)
        self._testimony = Testimony(self._state, self._topology, self._config.slack)
        self._judgements: dict[str, Judgement] = {}
        self._weights: dict[str, int] = {}
        """How many sightings a job was judged by."""
        self._late: set[str] = set()
        """Jobs that wait for the next tick to be judged."""
        self._complaining: dict[str, datetime] = {}
        """Jobs whose ranks complain, and when they last did."""
        self._claimed: dict[str, set[str]] = defaultdict(set)
        """Of a cause: the jobs whose symptoms follow from it."""
        self._accused: dict[str, dict[str, list[Suspicion]]] = defaultdict(dict)
        self._storms: dict[str, Hypothesis] = {}
        self._spread = Spread()
        self._storms_at: dict[str, set[str]] = {}
        """Switches of a host's storm."""
        self._storming: set[str] = set()
        """Nodes that have, or had, a storm of their own."""
        self._wakes: list[tuple[datetime, str]] = []
        self._now: datetime | None = None
        self._pruned_at: datetime | None = None
        self._touched = self._ingest.everything()

    def on_signals(self, signals: Sequence[Signal], now: datetime | None) -> Changes:
        """Take in signals of this cluster.

        `now` is when they were read, in Kafka's time. It is None while what else came before them may be unread: they are
        kept then, and open nothing that was not open at the last time told.
        """
        for signal in signals:
            self._latecomers.note(signal)
            self._ingest.signal(signal, self._touched)
        return self._settle_if_timed(now or self._now, len(signals))

    def on_fact(self, key: str, fact: Fact | None, at: datetime) -> Changes:
        """Take in one inventory record: its key `<cluster>/<kind>/<name>`, its fact (None for a tombstone) and its time."""
        return self.on_facts([(key, fact, at)])

    def on_facts(self, facts: Sequence[tuple[str, Fact | None, datetime]]) -> Changes:
        """Take in several inventory records in order, and judge what they touch once.

        Facts let no time pass: they may be read up to the present while the signals of hours are not, and whatever waits to
        be contradicted would open.
        """
        for key, fact, at in facts:
            self._touched |= self._ingest.fact(key, fact, at)
        return self._settle_if_timed(self._now, len(facts))

    def _settle_if_timed(self, now: datetime | None, records: int) -> Changes:
        """Judge what so many records touched; before any time was told it is only kept."""
        if now is None:
            self._state.flush()
            return Changes()
        return self._settle(now, self._config.judged_per_signal * records)

    def on_tick(self, now: datetime) -> Changes:
        """Let time pass: what was waited for is decided, what is over is forgotten."""
        while self._wakes and self._wakes[0][0] <= now:
            self._touched.scope(heapq.heappop(self._wakes)[1])
        self._touched.jobs |= self._late
        if self._pruned_at is None or now - self._pruned_at >= self._config.prune_every:
            self._pruned_at = now
            self._forget(now)
            self._home = {h.id: h.scope for h in self._all()}
            self._testimony.forget()
        return self._settle(now) + Changes(timeline=self._latecomers.told(now))

    def _forget(self, now: datetime) -> None:
        """Forget incidents first, then the evidence that was kept for them, and judge anew without either."""
        for row in self._publisher.prune(now):
            self._touched.scope(row.scope)
            for part in self._parts_of(row.incident.id, row.scope):
                until = max(row.last_at, part.last_at)
                self._lives.forget(part.root, part.family, part.incarnation, until)
                self._touched.scope(part.scope)
        self._touched |= self._ingest.prune(
            now, self._config, self._publisher.open_jobs(), self._places_of_switches()
        )

    def _parts_of(self, incident: str, scope: str) -> Iterable[Hypothesis]:
        """What became part of an incident: roots of its node, or of the places around its switch, and a storm's spreading."""
        faults = self._switches.get(scope.removeprefix("switch/"), ()) if scope.startswith("switch/") else ()
        around = {place for fault in faults if fault.hypothesis.id == incident for place in fault.members}
        around |= {f"node/{node}" for node in self._common.parts(incident).values()}
        for kind, _, name in (place.partition("/") for place in (scope, *sorted(around))):
            if kind == "node" and name in self._roots:
                roots = self._roots[name]
                yield from (part for part in roots.parts if roots.merged[part.id] == incident)
            elif kind == "port":
                found = ((h, self._switch_behind(f"port/{name}", h)) for h in self._uplinks.get(name, ()))
                yield from (h for h, behind in found if behind is not None and behind.id == incident)
        storms = (h for found in self._fabric.values() for h in found)
        yield from (h for h in storms if self._spread.part_of.get(h.id) == incident)

    def _settle(self, now: datetime, purse: int | None = None) -> Changes:
        """Judge what is touched and publish what is news. `purse` is how many sightings of jobs may be judged at least;
        None for as many as there are.
        """
        self._now = now = max(now, self._now or now)
        touched, self._touched = self._touched, Touched()
        touched.jobs |= self._publisher.waiting_for_progress(touched.causes)
        touched.nodes |= self._unheard_under(touched)
        self._evaluate_ports(touched)
        self._evaluate_nodes(touched)
        self._evaluate_switches(touched, touched.switches)
        self._follow_storms(touched)
        self._evaluate_common(touched, now)
        self._put_off(touched, purse)
        self._evaluate_jobs(touched)
        for node in touched.nodes:
            self._assemble(node)
        changes = self._publish(touched, now)
        self._state.flush()
        return changes

    # What is seen without asking jobs.

    def _evaluate_ports(self, touched: Touched) -> None:
        touched.ports |= {self._topology.cable(name)[0] for name in touched.ports}
        for name in sorted(touched.ports):
            row = self._state.ports.get(name, PortRow())
            before = self._fabric.pop(name, [])
            after = fabric_storm(self.name, name, row, self._lives, self._config)
            if after:
                self._fabric[name] = after
                self._home |= {h.id: h.scope for h in after}
            touched.nodes |= self._topology.hosts_at(name)
            if before != after:
                touched.jobs |= self._troubled(*before, *after)
            self._evaluate_uplink(name, touched)

    def _evaluate_uplink(self, name: str, touched: Touched) -> None:
        """The cable at a port that is no host's. It is judged once, at the port that comes first by name."""
        ends = self._topology.cable(name)
        before = self._uplinks.pop(name, [])
        if ends[0] != name:
            touched.switches |= self._links.put(f"port/{name}", ())
            return
        rows = [self._state.ports.get(end, PortRow()) for end in ends]
        hosted = any(self._topology.hosts_at(end) for end in ends)
        switch, _, port = name.partition("/")
        root = Entity(self.name, switch=switch, port=port)
        faults = [] if hosted else uplink(name, root, rows, self._lives, self._config)
        touched.switches |= self._links.put(f"port/{name}", faults)
        # Of a port whose other end nobody knows, nothing is told by itself: hosts come and go there.
        known = any(row.link is not None and row.link.peer_switch is not None for row in rows)
        if known and faults:
            self._uplinks[name] = [uplink_fault(f, ends, self._config) for f in faults]
            self._home |= {h.id: h.scope for h in self._uplinks[name]}
        if before != self._uplinks.get(name, []):
            touched.jobs |= self._troubled(*before, *self._uplinks.get(name, []))

    def _evaluate_switches(self, touched: Touched, switches: Iterable[str]) -> None:
        for switch in sorted(switches):
            before = self._switches.pop(switch, [])
            around, known = self._links.around(switch), self._topology.neighbours(switch)
            blames = [b for job in sorted(self._blamed.get(switch, ())) for b in self._blamed[switch][job]]
            after = []
            if around or blames:
                after = switch_faults(self.name, switch, around, blames, known, self._lives, self._config)
            if storms := [h for h in self._storms.values() if switch in self._storms_at[h.id]]:
                after += shared_storms(self.name, switch, storms, self._lives, self._config)
            if after:
                self._switches[switch] = after
                self._home |= {f.hypothesis.id: f.hypothesis.scope for f in after}
            if before != after:
                for place in {place for fault in (*before, *after) for place in fault.members}:
                    touched.scope(place)
                touched.shared |= self._common.doubted()
                touched.jobs |= self._troubled(*(fault.hypothesis for fault in (*before, *after)))

    def _unheard_under(self, touched: Touched) -> set[str]:
        """Nodes that are NotReady under jobs of which something was told that may matter to them."""
        if not self._unheard:
            return set()
        moves = [(job, at) for job, at in touched.moves] + [(job, None) for job in touched.placed]
        return {
            stay.node
            for job, at in moves
            for stay in self._placements.stays_of(job)
            if any(at is None or since.may_hear(at) for since in self._unheard.get(stay.node, ()))
        }

    def _evaluate_nodes(self, touched: Touched) -> None:
        stormy = False
        self._pulses.forget()
        for node in list(touched.nodes):
            row = self._state.nodes.get(node, NodeRow())
            before = self._hard.pop(node, [])
            after: list[Hypothesis] = []
            links: list[tuple[LinkFault, list[str]]] = []
            names = self._topology.ports_of(node)
            if not self._testimony.is_quiet(node) or not self._state.ports.told.isdisjoint(names):
                ports = {name: self._state.ports[name] for name in names}
                links = self._links_of(node, row, ports)
                after = hard_roots(Entity(self.name, node=node), row, ports, self._lives, self._config)
                after += [nic_link(fault, ports, excused, self._config) for fault, excused in links]
                if (left := row.left_at) is not None:
                    stood = self._placements.on_node
                    after = [h if stood(node, h.fault_at, left) else taken_away(h, left) for h in after]
                pulses = self._pulses
                after = [
                    weighed(h, row, ports, pulses.on(node, h.fault_at), self._config)
                    if h.family == "node_down"
                    else h
                    for h in after
                ]
            touched.switches |= self._links.put(f"node/{node}", [f for f, excused in links if not excused])
            if after:
                self._hard[node] = after
                self._home |= {h.id: h.scope for h in after}
            touched.shared |= self._common.put(node, row, after, self._gone_alone(node, after))
            near = self._placements.jobs_near(node) | self._topology.pod_jobs.failing_on(node)
            touched.jobs |= near
            if {h.id for h in before} - {h.id for h in after}:
                touched.pressing |= near
            if any(h.family == "pfc_storm" for h in (*before, *after)):
                self._storming.add(node)
                stormy = True
        if stormy:
            self._weigh_storms(touched)

    def _gone_alone(self, node: str, hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
        """When the node was NotReady, and nothing else that is wrong with it explains that."""
        down = [h for h in hypotheses if h.family == "node_down"]
        if unheard := [u for h in down if (u := unheard_of(h)) is not None]:
            self._unheard[node] = unheard
        else:
            self._unheard.pop(node, None)
        return [h for h in down if stands_alone(h, hypotheses, self._lives, self._config)]

    def _evaluate_common(self, touched: Touched, now: datetime) -> None:
        """What several nodes have in common. Nodes for which that changed are put together anew, and so are their jobs."""
        self._touched.shared |= self._common.put_off(touched.shared, now)
        more, held = self._common.gather(
            touched.shared, lambda node, h: self._switch_behind(f"node/{node}", h) is not None
        )
        touched.shared |= more
        touched.nodes |= held
        for group in sorted(touched.shared):
            moved, changed = self._common.judge(group, self._topology.nodes_in_rack)
            for node in moved:
                touched.nodes.add(node)
                touched.jobs |= self._placements.jobs_near(node)
            if changed:
                touched.jobs |= self._troubled()
            self._home |= {h.id: h.scope for h in self._common.standing(group)}

    def _links_of(
        self, node: str, row: NodeRow, ports: Mapping[str, PortRow]
    ) -> list[tuple[LinkFault, list[str]]]:
        """The node's link faults, each with what excuses them."""
        seen = [s for group in row.seen.values() if group[0].kind == LINK for s in group]
        found = host_links(self.name, node, seen, ports, row.fact, self._lives, self._config)
        return [(fault, excuses(fault, row, self._config)) for fault in found]

    def _weigh_storms(self, touched: Touched) -> None:
        """Storms of several hosts are weighed against each other; whoever is weighed anew is published anew."""
        storms: list[Hypothesis] = []
        for node in sorted(self._storming):
            found = [h for h in self._hard.get(node, ()) if h.family == "pfc_storm"]
            storms += found
            if not found:
                self._storming.discard(node)
        before, self._storms = self._storms, {h.id: h for h in weigh(storms, self._config)}
        where = {name: self._switches_of_storm(h) for name, h in self._storms.items()}
        names = before.keys() | self._storms.keys()
        changed = {n for n in names if before.get(n) != self._storms.get(n)}
        for name in changed | {n for n in where if where[n] != self._storms_at.get(n)}:
            touched.switches |= where.get(name, set()) | self._storms_at.get(name, set())
        self._storms_at = where
        nodes = {h.root.node for n in changed for h in (before.get(n), self._storms.get(n)) if h}
        touched.nodes |= {node for node in nodes if node}
        closed = self._lives.closed(self._storms)
        news = [
            n for n in changed if _as_cause(before.get(n), closed) != _as_cause(self._storms.get(n), closed)
        ]
        if news:
            found = [h for n in news for h in (before.get(n), self._storms.get(n)) if h]
            near = (self._placements.jobs_near(h.root.node) for h in found if h.root.node)
            touched.jobs |= self._troubled(*found).union(*near)

    def _switches_of_storm(self, storm: Hypothesis) -> set[str]:
        """The switches that a storming host hangs on; the empty name where nobody knows."""
        told = {storm.root.switch} if storm.root.switch else self._topology.switches_of(storm.root.node or "")
        return told or {SOMEWHERE}

    def _follow_storms(self, touched: Touched) -> None:
        """Storms on uplinks are followed to where they come from; what that changes is published anew."""
        before = self._spread
        if not self._fabric and not before.standing and not before.part_of:
            return
        cables = {port: self._uplinks_standing(self._topology.cable(port)[0]) for port in self._fabric}
        self._spread = spread(
            self._fabric,
            self._storms.values(),
            cables,
            self._topology.beyond,
            self._topology.switches_of,
            self._config,
        )
        if before != self._spread:
            touched.ports |= set(self._fabric)
            touched.causes |= {*before.part_of.values(), *self._spread.part_of.values()}
            touched.jobs |= self._troubled()

    # Jobs.

    def _put_off(self, touched: Touched, purse: int | None) -> None:
        """Leave the largest of the touched jobs for the next tick, if a batch touched more than it pays for.

        A job is judged as a whole. Without this, thousands of ranks that report in a hundred batches would be judged a
        hundred times over, and of so many batches no single one decides anything.
        """
        self._late -= touched.jobs
        if purse is None:
            return
        left = max(purse, self._config.judged_at_once)
        for key in sorted(touched.jobs - touched.pressing, key=lambda k: (self._weights.get(k, 0), k)):
            left -= self._weights.get(key, 0)
            if left < 0:
                self._late.add(key)
        touched.jobs -= self._late

    def _evaluate_jobs(self, touched: Touched) -> None:
        blamed: set[str] = set()
        for key in sorted(touched.jobs):
            evidence = self._evidence(key)
            if evidence is not None and self._testimony.is_known(key, evidence):
                continue
            before = self._judgements.pop(key, Judgement())
            after = judge(evidence, self._config) if evidence is not None else Judgement()
            self._testimony.note(key, evidence)
            if evidence is not None:
                self._weights[key] = len(evidence.told) + len(evidence.codes)
            else:
                self._weights.pop(key, None)
            self._complaining.pop(key, None)
            if evidence is not None and evidence.told:
                self._complaining[key] = max(t.sighting.at for t in evidence.told)
            if after.explained or after.hypotheses or after.suspicions or after.claims:
                self._judgements[key] = after
                self._home |= {h.id: h.scope for h in after.hypotheses}
            for suspicion in before.suspicions:
                self._accused[suspicion.node].pop(key, None)
            for suspicion in after.suspicions:
                self._accused[suspicion.node].setdefault(key, []).append(suspicion)
            touched.nodes |= {s.node for s in (*before.suspicions, *after.suspicions)}
            blamed |= {b.switch for b in (*before.blames, *after.blames)}
            for switch in {b.switch for b in before.blames}:
                self._blamed[switch].pop(key, None)
                if not self._blamed[switch]:
                    del self._blamed[switch]
            for blame in after.blames:
                self._blamed[blame.switch].setdefault(key, []).append(blame)
            for cause in before.claims.keys() | after.claims.keys():
                if before.claims.get(cause) != after.claims.get(cause):
                    touched.causes.add(cause)
                (self._claimed[cause].add if cause in after.claims else self._claimed[cause].discard)(key)
                if not self._claimed[cause]:
                    del self._claimed[cause]
        if blamed:
            self._reconsider(blamed, touched)

    def _reconsider(self, switches: set[str], touched: Touched) -> None:
        """Judge switches anew that jobs blame, or blame no more. A job whose own explanation that renumbers is asked again."""
        links = [h.id for h in self._at_switches() if h.rule != BY_VOTES]
        self._evaluate_switches(touched, switches)
        touched.switches |= switches
        self._touched.shared |= self._common.doubted()
        if links != [h.id for h in self._at_switches() if h.rule != BY_VOTES]:
            self._touched.jobs |= self._troubled()

    def _evidence(self, key: str) -> Evidence | None:
        stays = self._placements.stays_of(key)
        nodes = {stay.node for stay in stays}
        told = self._testimony.told(key, nodes)
        codes = self._testimony.codes(stays)
        failed = self._testimony.failed(key, nodes)
        nodes |= {s.entity.node for s in failed if s.entity.node}
        if not told and not codes and not failed:
            return None
        causes = [h for node in sorted(nodes) for h in self._hard.get(node, ()) if h.family != "pfc_storm"]
        last = max((t.sighting.at for t in told), default=None)
        causes += [
            h
            for h in (self._storms.get(h.id, h) for h in self._all_storms())
            if h.root.node in nodes or _began_by(h, last)
        ]
        causes += (h for h in self._at_switches() if h.rule != BY_VOTES and _began_by(h, last))
        causes += self._common.storages(nodes)
        causes += [h for port in self._uplinks for h in self._uplinks_standing(port) if _began_by(h, last)]
        wide = [h for h in causes if h.domain in ("pfc", "fabric")] if told else []
        leafs, paused = set[str](), list[Sighting]()
        if wide:
            leafs = leafs.union(*(self._topology.switches_of(node) for node in nodes))
            paused = self._testimony.pauses(nodes)
        closed = self._lives.closed(h.id for h in causes)
        row = self._state.jobs.get(key, JobRow())
        return Evidence(
            cluster=self.name,
            job=stays[-1].job if stays else job_ref(key),
            told=told,
            codes=codes,
            stays=stays,
            failed=failed,
            causes=causes,
            near_storms=frozenset(h.id for h in wide if self._reaches(h, nodes, leafs, paused)),
            closed=closed,
            moved=self._publisher.moves_of(key),
            ended=row.ends,
            world=row.fact.world if row.fact else None,
            addresses=self._testimony.addresses,
            forgotten=self._lives.forgotten(Entity(self.name, job=job_ref(key))),
        )

    def _all_storms(self) -> list[Hypothesis]:
        fabric = (h for storms in self._fabric.values() for h in storms)
        return [*self._storms.values(), *(self._spread.standing.get(h.id, h) for h in fabric)]

    def _reaches(
        self, storm: Hypothesis, nodes: set[str], leafs: set[str], paused: Sequence[Sighting]
    ) -> bool:
        """The source stands among the job's nodes or under the same leaf, or one of them is told to pause."""
        if storm.root.node in nodes:
            return True
        near = self._topology.switches_of(storm.root.node or "") | ({storm.root.switch} - {None})
        ends = storm.facts.get("ends")
        near |= {str(end).partition("/")[0] for end in ends} if isinstance(ends, tuple) else set()
        if leafs & near:
            return True
        if storm.domain == "fabric":
            for kind, _, name in (place.partition("/") for place in self._members_of(storm)):
                far = (
                    {end.partition("/")[0] for end in self._topology.cable(name)} if kind == "port" else set()
                )
                if name in nodes or leafs & far:
                    return True
        since, until = storm.fault_at - self._config.before, storm.last_at + self._config.retention
        return bool(victims(paused, since, until))

    def _troubled(self, *changed: Hypothesis) -> set[str]:
        """Jobs whose ranks complain: a fault anywhere in the fabric may be what they wait for, unless it began after that."""
        if not changed:
            return set(self._complaining)
        since = min(h.fault_at - h.lag for h in changed)
        return {job for job, at in self._complaining.items() if at >= since}

    # Documents.

    def _assemble(self, node: str) -> None:
        row = self._state.nodes.get(node, NodeRow())
        hard = [self._storms.get(h.id, h) for h in self._hard.get(node, ())]
        accused = [s for job in sorted(self._accused.get(node, {})) for s in self._accused[node][job]]
        silent = silent_roots(Entity(self.name, node=node), accused, self._lives) if accused else []
        if not accused:
            self._accused.pop(node, None)
        closed = self._lives.closed(h.id for h in (*hard, *silent))
        for merged in self._roots.get(node, NodeRoots()).merged:
            self._hosts.pop(merged, None)
        missed = not any(self._common.owner(h.id) for h in hard if h.family == "node_down")
        roots = weighed_roots(hard, silent, row, closed, self._config, missed_alone=missed)
        self._give_away(node, roots)
        self._hosts |= roots.merged
        if roots.standing or roots.merged:
            self._roots[node] = roots
        else:
            self._roots.pop(node, None)

    def _give_away(self, node: str, roots: NodeRoots) -> None:
        """What a switch did to a node, and what it has in common with its neighbours, is not its own."""
        for h in list(roots.standing):
            if (owner := self._switch_behind(f"node/{node}", h) or self._common.owner(h.id)) is not None:
                roots.hand_over(h, owner.id)
        roots.standing = [self._common.held(h) for h in roots.standing]

    def _switch_behind(self, place: str, h: Hypothesis) -> Hypothesis | None:
        """The fault of a switch that took this place's links away, if there is one: that with the most neighbours."""
        before, after = self._config.skew, self._config.before
        found = [
            fault.hypothesis
            for faults in self._switches.values()
            for fault in faults
            if place in fault.members
            and explains(fault.hypothesis, h)
            and fault.members[place] - before <= h.fault_at <= fault.hypothesis.last_at + after
        ]
        return max(found, key=lambda f: (len(self._members_of(f)), f.id), default=None)

    def _at_switches(self) -> Iterable[Hypothesis]:
        return (fault.hypothesis for faults in self._switches.values() for fault in faults)

    def _members_of(self, switch_fault: Hypothesis) -> set[str]:
        """The places whose links a switch took away."""
        faults = self._switches.get(switch_fault.root.switch or "", ())
        return {place for f in faults if f.hypothesis.id == switch_fault.id for place in f.members}

    def _places_of_switches(self) -> set[str]:
        """What incidents of switches that are not forgotten are built from."""
        told = [h for h in self._at_switches() if h.id in self._state.documents]
        shared = [h for h in self._common.roots() if h.id in self._state.documents]
        storms = (h for found in self._fabric.values() for h in found)
        spread_from = {h.scope for h in storms if self._spread.part_of.get(h.id) in self._state.documents}
        nodes = {f"node/{node}" for h in shared for node in h.nodes or self._common.parts(h.id).values()}
        return spread_from.union(nodes, *(self._members_of(h) for h in told))

    def _publish(self, touched: Touched, now: datetime) -> Changes:
        scopes = (
            {f"node/{n}" for n in touched.nodes}
            | {f"job/{j}" for j in touched.jobs}
            | {f"port/{p}" for p in touched.ports}
            | {f"switch/{s}" for s in touched.switches}
            | {f"shared/{s}" for s in touched.shared}
        )
        for cause in touched.causes:
            scopes |= self._scope_of(cause)
        standing = {scope: self._standing(scope) for scope in scopes}
        changes, wakes = self._publisher.publish(standing, self._claims(standing), self._successor, now)
        for wake in wakes:
            heapq.heappush(self._wakes, wake)
        return changes

    def _standing(self, scope: str) -> list[Hypothesis]:
        kind, _, name = scope.partition("/")
        if kind == "node":
            return self._roots[name].standing if name in self._roots else []
        if kind == "job":
            return self._judgements[name].hypotheses if name in self._judgements else []
        if kind == "shared":
            return self._common.standing(name)
        if kind == "switch":
            return [fault.hypothesis for fault in self._switches.get(name, ())]
        return [*self._fabric_standing(name), *self._uplinks_standing(name)]

    def _uplinks_standing(self, port: str) -> list[Hypothesis]:
        """Faults of cables between switches that neither switch explains."""
        return [h for h in self._uplinks.get(port, ()) if self._switch_behind(f"port/{port}", h) is None]

    def _fabric_standing(self, port: str) -> list[Hypothesis]:
        """Storms at a port without a host that are not the spreading of others."""
        told = self._spread.standing
        return [told[h.id] for h in self._fabric.get(port, []) if h.id in told]

    def _scope_of(self, cause: str) -> set[str]:
        if cause.startswith("silent:"):
            return {f"node/{cause.removeprefix('silent:')}"}
        if cause.startswith("leaf:"):
            return {f"switch/{cause.removeprefix('leaf:')}"}
        homes = {self._home[name] for name in (cause, self._owner(cause)) if name in self._home}
        return self._publisher.scopes_of(cause) | homes

    def _claims(self, standing: dict[str, list[Hypothesis]]) -> dict[str, dict[str, list[Sighting]]]:
        """By incident, then by job: the symptoms it explains. What became part of another root counts for that one."""
        wanted = {h.id for found in standing.values() for h in found}
        claims: dict[str, dict[str, list[Sighting]]] = defaultdict(dict)
        for cause, jobs in self._claimed.items():
            owner = self._owner(cause)
            if owner in wanted:
                for job in sorted(jobs):
                    claims[owner].setdefault(job, []).extend(self._judgements[job].claims[cause])
        return claims

    def _all(self) -> Iterable[Hypothesis]:
        for found in (*self._hard.values(), *self._fabric.values(), *self._uplinks.values()):
            yield from found
        yield from self._at_switches()
        yield from self._common.roots()
        for judgement in self._judgements.values():
            yield from judgement.hypotheses

    def _owner(self, cause: str) -> str:
        if cause.startswith("silent:"):
            roots = self._roots.get(cause.removeprefix("silent:"))
            if roots is None:
                return cause
            silent = [roots.merged[h.id] for h in roots.parts if h.family == "silent_node"]
            silent += [h.id for h in roots.standing if h.family == "silent_node"]
            return silent[-1] if silent else cause
        if cause.startswith("leaf:"):
            voted = [f.hypothesis for f in self._switches.get(cause.removeprefix("leaf:"), ())]
            return next((h.id for h in reversed(voted) if h.jobs), cause)
        for _ in range(_STEPS):
            further = self._hosts.get(cause) or self._spread.part_of.get(cause)
            if further is None or further == cause:
                break
            cause = further
        return cause

    def _successor(
        self, incident: str, scope: str, jobs: Sequence[JobRef], fault_at: datetime
    ) -> Hypothesis | None:
        """What explains now what an incident was opened for, or None when nothing does."""
        kind, _, name = scope.partition("/")
        if kind == "node" and (meant := self._topology.names.meant(name, fault_at)) != name:
            return self._under_its_name(incident, meant)
        if kind == "node" and name in self._roots:
            roots = self._roots[name]
            owner = roots.merged.get(incident)
            if found := [h for h in (*roots.standing, *self._at_switches()) if h.id == owner]:
                return found[0]
            if (shared := self._common.owner(incident)) is not None or (
                owner is not None and (shared := self._shared_root(owner)) is not None
            ):
                return self._found(self._owner(shared.id))
        if kind == "shared":
            return next(
                (h for h in self._common.standing(name) if h.id != incident and h.fault_at <= fault_at), None
            )
        if kind == "port":
            for h in self._uplinks.get(name, ()):
                if h.id == incident and (behind := self._switch_behind(scope, h)) is not None:
                    return behind
            hosts = [
                h for n in self._topology.hosts_at(name) for h in self._roots.get(n, NodeRoots()).standing
            ]
            here = next((h for h in hosts if h.family == "pfc_storm"), None)
            owner = self._owner(incident)
            return here or (self._found(owner) if owner != incident else None)
        for job in jobs:
            judgement = self._judgements.get(job.key, Judgement())
            for since, until, cause in judgement.explained:
                fits = since - self._config.episode_gap <= fault_at <= until + self._config.quiet
                if fits and cause != incident and (found_one := self._found(self._owner(cause))) is not None:
                    return found_one
            for suspicion in judgement.suspicions:
                roots = self._roots.get(suspicion.node, NodeRoots())
                if found := [
                    h for h in roots.standing if h.family == "silent_node" or h.id in roots.merged.values()
                ]:
                    return found[0]
            if others := [h for h in judgement.hypotheses if h.id != incident]:
                return others[0]
        if kind == "node" and name in self._roots:
            return next((h for h in self._roots[name].standing if h.id != incident), None)
        return None

    def _under_its_name(self, incident: str, node: str) -> Hypothesis | None:
        """What was told of a host by another name, now that it is known which node that is."""
        standing = self._roots.get(node, NodeRoots()).standing
        family = self._state.documents[incident].incident.family
        return next((h for h in standing if h.family == family), next(iter(standing), None))

    def _shared_root(self, incident: str) -> Hypothesis | None:
        return next((h for h in self._common.roots() if h.id == incident), None)

    def _found(self, incident: str) -> Hypothesis | None:
        """The hypothesis that stands under this id."""
        scopes = sorted(self._scope_of(incident))
        return next((h for s in scopes for h in self._standing(s) if h.id == incident), None)


def _as_cause(storm: Hypothesis | None, closed: Mapping[str, datetime]) -> tuple[object, ...]:
    """What jobs elsewhere see of a storm. While it lasts, one more report of it changes nothing for them."""
    if storm is None:
        return ()
    until = storm.last_at if storm.cleared_at or storm.id in closed else None
    return (storm.root, storm.certainty, storm.fault_at, storm.rule, storm.lag, storm.cleared_at, until)


def _began_by(far: Hypothesis, last: datetime | None) -> bool:
    """Whether a fault elsewhere began before a job's last complaint: no later one is explained by it."""
    return last is not None and far.fault_at <= last + far.lag
