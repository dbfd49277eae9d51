"""One cluster's correlation: stores input, re-evaluates what it touches, publishes what changed.

Only what a batch touched is evaluated, so the cost of a signal does not depend on the size of the cluster.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from streams.correlate.cause_sources.jobs import JobCauses
from streams.correlate.cause_sources.nodes import HostCauses, NodeCauses
from streams.correlate.cause_sources.partitions import PartitionCauses
from streams.correlate.cause_sources.ports import CableCauses, PortStormCauses
from streams.correlate.cause_sources.services import ServiceCauses
from streams.correlate.cause_sources.shared import SharedCauses
from streams.correlate.cause_sources.source import Causes, CauseSource, Round
from streams.correlate.cause_sources.switches import SwitchCauses
from streams.correlate.changes import Changes
from streams.correlate.expiry import Expiry
from streams.correlate.fabric_rules.switch_faults import LinkFaultsBySwitch
from streams.correlate.hypothesis import Hypothesis
from streams.correlate.job_rules.job_evidence_cache import JobEvidenceCache
from streams.correlate.policy.config import Config
from streams.correlate.publish.publisher import Publisher
from streams.correlate.state.incarnations import Incarnations
from streams.correlate.state.ingest import Ingest
from streams.correlate.state.place import Place, Touched
from streams.correlate.state.placement import Placements
from streams.correlate.state.rows import DocumentRow
from streams.correlate.state.stale_reports import StaleReports
from streams.correlate.state.store import Rows, State
from streams.correlate.state.topology import Topology
from streams.correlate.weighed import Weighing, weighing
from streams.model.facts import Fact
from streams.model.incident import Incident
from streams.model.signal import Signal


class Engine:
    """The correlation of one cluster without Kafka: signals, facts and time in, incidents out. No I/O, no clock of its own.

    `rows` holds the state: only changed rows are written, once per call. A new engine on the same rows continues where the old
    one stopped; without rows nothing is stored. The same signals and facts in any order, split and repeated at will, lead to
    the same incidents.
    """

    def __init__(
        self,
        cluster: str,
        rows: Rows | None,
        config: Config | None = None,
        *,
        weighed: Callable[[Iterable[Hypothesis]], None] | None = None,
    ) -> None:
        """`weighed` gets the hypotheses of every place that was evaluated, for whoever follows a replay."""
        self.name = cluster
        self._weighed = weighed
        self._config = config or Config()
        self._state = State(rows, cluster)
        self._incarnations = Incarnations(self._state, self._config.linger, self._config.flap_quiet)
        placements = Placements(self._state, self._config.slack)
        topology = Topology(self._state, placements)
        self._ingest = Ingest(self._state, topology)
        self._publisher = Publisher(
            self._state,
            placements,
            self._incarnations,
            self._config,
            topology.names.candidates,
            topology.pod_jobs.pods_failing_on,
        )
        self._stale_reports = StaleReports(cluster, self._config.retention)
        self._evidence_cache = JobEvidenceCache(self._state, topology, self._config.slack)
        self._causes = Causes(self._state, self._incarnations, topology, self._config)
        self._jobs = self._set_sources()
        self._wakes: list[tuple[datetime, Place]] = []
        self._now: datetime | None = None
        self._pruned_at: datetime | None = None
        self._touched = self._ingest.everything()

    def _set_sources(self) -> JobCauses:
        """Set the table of sources, in order of evaluation. Returns the source of jobs."""
        causes, links = self._causes, LinkFaultsBySwitch()
        shared = SharedCauses(causes)
        hosts = HostCauses(causes, self._evidence_cache, links, shared)
        switches = SwitchCauses(causes, links, hosts, shared)
        cables = CableCauses(causes, links, switches)
        nodes = NodeCauses(causes, hosts, shared)
        services = ServiceCauses(causes, self._evidence_cache)
        self._publisher.kept_from_starting = services.others.kept_from_starting
        jobs = JobCauses(causes, self._evidence_cache, nodes, services, shared, self._publisher)
        sources: tuple[CauseSource, ...] = (
            # Ports before hosts: what a switch reports about a port is evidence on the host attached to it.
            cables,
            # Hosts and cables before switches: three neighbours that lost their links at once are one fault of the switch.
            hosts,
            switches,
            # After switches: a bad cable is why a storm is on it, but not one that only lost its switch.
            PortStormCauses(causes, hosts, cables),
            PartitionCauses(causes),
            # After switches: a node whose switch took it away is not missing together with its rack.
            shared,
            # Before jobs: what several of them fail for at once is none of theirs.
            services,
            # Jobs are explained by all of these. What they suspect is looked at once more in the same order, switches first:
            # a switch where failing connections meet may explain a node, so nodes come last.
            jobs,
            nodes,
        )
        causes.enter(sources)
        return jobs

    def standing(self) -> list[Incident]:
        """The incidents that are not over."""
        rows = self._state.documents.values()
        return [row.incident for row in rows if not row.incident.state.is_over]

    def remember(self, incident: Incident) -> None:
        """Count on from an incident that was over before this state begins: its number is taken, and so is its id."""
        over_at = incident.closed_at or incident.updated_at
        self._incarnations.forget(incident.root, incident.family, incident.incarnation, over_at)

    def on_signals(self, signals: Sequence[Signal], now: datetime | None) -> Changes:
        """Correlate signals of this cluster.

        `now` is when they were read, in Kafka's time. It is None while earlier records may be unread: the signals
        are stored then, and time stays at the last one known.
        """
        for signal in signals:
            self._stale_reports.count_report(signal)
            self._ingest.signal(signal, self._touched)
        return self._settle_if_timed(now or self._now, len(signals))

    def on_fact(self, key: str, fact: Fact | None, at: datetime) -> Changes:
        """Correlate one inventory record: its key `<cluster>/<kind>/<name>`, its fact (None for a tombstone) and its time."""
        return self.on_facts([(key, fact, at)])

    def on_facts(self, facts: Sequence[tuple[str, Fact | None, datetime]]) -> Changes:
        """Correlate several inventory records in order; what they touch is evaluated once.

        Facts let no time pass: they may be read up to the present while hours of signals are unread, and hypotheses that those
        contradict would open.
        """
        for key, fact, at in facts:
            self._touched |= self._ingest.fact(key, fact, at)
        return self._settle_if_timed(self._now, len(facts))

    def _settle_if_timed(self, now: datetime | None, records: int) -> Changes:
        """Evaluate what so many records touched; they are only stored while no time is known."""
        if now is None:
            self._state.flush()
            return Changes()
        return self._settle(now, self._config.judged_per_signal * records)

    def on_tick(self, now: datetime) -> Changes:
        """Advance time: hypotheses that were waiting are decided, old state is pruned."""
        while self._wakes and self._wakes[0][0] <= now:
            self._touched.add(heapq.heappop(self._wakes)[1])
        self._touched.jobs |= self._jobs.deferred
        changes = Changes()
        if self._pruned_at is None or now - self._pruned_at >= self._config.prune_every:
            if self._pruned_at is None:
                # After a start it is not known what open incidents are built from until everything was evaluated once.
                changes = self._settle(now)
            self._pruned_at = now
            self._forget(now)
        return changes + self._settle(now) + Changes(timeline=self._stale_reports.entries(now))

    def weighing(self, now: datetime) -> Weighing:
        """What is weighed now, and why each explanation is an incident or is none. Nothing is changed by it."""
        return weighing(self._causes, self._jobs, self._publisher, now)

    def _forget(self, now: datetime) -> None:
        """Prune incidents first, then the evidence that was kept for them, and re-evaluate what that touches."""
        expiry = Expiry.now(self._causes, self._ingest, self._evidence_cache, self._config)
        for row in self._publisher.prune(now, expiry.is_expired, expiry.places):
            self._touched.add(row.place)
            for part in expiry.parts_of(row):
                until = max(row.last_at, part.last_at)
                self._incarnations.forget(part.root, part.family, part.incarnation, until)
                self._touched.add(part.place)
        open_jobs = self._publisher.open_jobs() | expiry.held_jobs()
        self._touched |= self._ingest.prune(now, self._config, open_jobs, expiry.held())
        self._causes.forget()
        self._evidence_cache.forget()

    def _settle(self, now: datetime, budget: int | None = None) -> Changes:
        """Evaluate what is touched and publish what changed. `budget` limits the sightings of jobs (`Round.budget`)."""
        self._now = now = max(now, self._now or now)
        touched, self._touched = self._touched, Touched()
        round_ = Round(now, touched, self._touched, budget)
        for source in self._causes.sources:
            source.evaluate(round_)
        for source in self._causes.sources:
            source.reconsider(round_)
        changes = self._publish(touched, now)
        self._state.flush()
        return changes

    def _publish(self, touched: Touched, now: datetime) -> Changes:
        places = touched.places() | self._publisher.places_that_mention(touched.mentioned)
        places = places.union(*(self._causes.places_of(cause) for cause in touched.causes))
        by_place = {place: list(map(self._jobs.doubted, self._causes.at(place))) for place in places}
        if self._weighed is not None:
            self._weighed(h for _, found in sorted(by_place.items()) for h in found)
        changes, wakes = self._publisher.publish(by_place, self._jobs.claims, self._successor, now)
        for wake in wakes:
            heapq.heappush(self._wakes, wake)
        # What failed first on a host accuses it of what other jobs suffer there.
        self._touched.jobs = self._touched.jobs.union(
            *(self._causes.topology.placements.jobs_near(host) for host in self._publisher.first_hosts)
        )
        self._publisher.first_hosts.clear()
        return changes

    def _successor(self, row: DocumentRow) -> Hypothesis | None:
        """The root that explains now what an incident was opened for; None when nothing does."""
        answers = (
            source.successor_of(row, lambda: self._jobs.explains_now(row))
            for source in self._causes.of(row.place.kind)
        )
        return next((root for root in answers if root is not None), None)
