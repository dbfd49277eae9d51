"""Faults of services that jobs share, by what those jobs complain of, and what other workloads are refused by them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from streams.correlate.cause_sources.source import ByJobs, Causes, CauseSource, Round
from streams.correlate.hypothesis import Hypothesis
from streams.correlate.job_rules.job_complaints import Complaints, Refused
from streams.correlate.job_rules.job_evidence_cache import JobEvidenceCache
from streams.correlate.job_rules.other_workloads import OtherWorkloads, named
from streams.correlate.job_rules.refusals import Owner
from streams.correlate.job_rules.service_policy import REGISTRY, SANDBOX, WEBHOOK
from streams.correlate.job_rules.services import (
    Shortage,
    complaints_of,
    is_of_pool,
    is_of_resolver,
    service_faults,
    shortages,
)
from streams.correlate.policy.families import families
from streams.correlate.sightings import Sighting, order, split_at_gaps
from streams.correlate.state.place import ADDRESS_POOL, RESOLVER, Place, PlaceKind, Touched
from streams.correlate.state.pod_jobs import job_ref
from streams.correlate.state.rows import GOES_ON, DocumentRow

_NAMED_BY_NODES = (RESOLVER, ADDRESS_POOL)
"""Services that what nodes report gives a name."""
_JUDGED_EVERY = timedelta(seconds=1)
_JUDGED_AT_ONCE = 64
"""Up to so many jobs and other workloads that complain of a service, each new complaint is looked at at once; else with the next
second's."""


class ServiceCauses(CauseSource):
    """Collects what jobs complain of, job by job; a service is evaluated again when that changed."""

    kind = PlaceKind.SERVICE

    def __init__(self, causes: Causes, evidence_cache: JobEvidenceCache) -> None:
        super().__init__(causes)
        self._evidence_cache = evidence_cache
        self._heard: dict[str, dict[str, Complaints]] = defaultdict(dict)
        """By service: the jobs that complain of it."""
        self._named: dict[str, frozenset[str]] = {}
        """By job: the services that it complains of."""
        self._told: dict[str, tuple[Sighting, ...]] = {}
        """By job: the failures that its complaints were read from last."""
        self._faults: dict[str, list[Hypothesis]] = {}
        self.others = OtherWorkloads(causes.state)
        self._judged_at: dict[str, datetime] = {}
        self._crashes: dict[str, tuple[Sighting, ...]] = {}
        """By node: how pods there that resolve names for the cluster are unwell, that the node drops connections, and which pool
        of addresses is called empty."""
        self._refused: dict[str, tuple[Sighting, ...]] = {}
        """By node: the lines of pods that are refused their sandbox there again and again."""

    def evaluate(self, round_: Round) -> None:
        """Read what the touched jobs complain of; the jobs of a service whose faults changed are evaluated again."""
        touched = round_.touched
        for job in sorted(touched.jobs):
            touched.services |= self._put(job)
        touched.services |= self._put_others(touched)
        crashed = [node for node in sorted(touched.nodes) if self._put_crashes(node)]
        if crashed:
            touched.services |= {RESOLVER, ADDRESS_POOL} & self._heard.keys()
        for name in sorted(touched.services):
            if self._is_fresh(name, round_):
                touched.services.discard(name)
                round_.later.services.add(name)
                continue
            heard = [mine for _, mine in sorted(self._heard.get(name, {}).items())]
            if name == SANDBOX:
                touched.jobs |= self._put_refused(heard)
                continue
            before = self._faults.pop(name, [])
            crashes = sorted((s for mine in self._crashes.values() for s in mine), key=order)
            mine = (
                [s for s in crashes if (name == ADDRESS_POOL) is is_of_pool(s)]
                if name in _NAMED_BY_NODES
                else ()
            )
            others = self.others.counted_for(name)
            if name.partition("/")[0] == WEBHOOK:
                heard = [replace(one, owner=_owner(one.job)) for one in heard]
            created = self._created({one.owner.namespace for one in (*heard, *others) if one.owner})
            after = service_faults(self._cluster, name, heard, self._incarnations, mine, others, created)
            if after:
                self._faults[name] = after
                self._causes.note(after)
            if before != after:
                # Of thousands of jobs that complain, one more changes nothing for the others.
                touched.jobs |= {
                    one.job
                    for one in heard
                    if shortages({name: one.sightings}, before) != shortages({name: one.sightings}, after)
                }

    def _put_others(self, touched: Touched) -> set[str]:
        """Keep what failed of pods of no training job. Returns the services to evaluate for that, or for what was created."""
        found: set[str] = set()
        jobs_of = self._topology.pod_jobs.jobs_of
        for pod in sorted(touched.pods):
            failures = [] if jobs_of(pod) else self._evidence_cache.failures_of_pod(pod)
            if failures or self.others.knows(pod):
                found |= self.others.put(pod, failures)
        # A webhook fails whoever asks; of anything else others count only beside a job that complains of it, too.
        found = {n for n in found if n.partition("/")[0] == WEBHOOK or self._counts_beside_jobs(n)}
        return found | self.others.refused_in(touched.populated) if touched.populated else found

    def _counts_beside_jobs(self, name: str) -> bool:
        return name.partition("/")[0] in (REGISTRY, ADDRESS_POOL, SANDBOX) and name in self._heard

    def _put_refused(self, heard: Iterable[Complaints]) -> set[str]:
        """Keep on which nodes pods are refused their sandbox. Returns the jobs to which that is news."""
        found: dict[str, list[Sighting]] = defaultdict(list)
        for one in (*heard, *self.others.counted_for(SANDBOX)):
            for s in one.sightings:
                if s.entity.node:
                    found[s.entity.node].append(s)
        refused = {node: tuple(sorted(lines, key=order)) for node, lines in found.items()}
        if refused == self._refused:
            return set()
        self._refused = refused
        return {one.job for one in heard}

    def refused_beside(self, job: str) -> tuple[Refused, ...]:
        """Where and when pods of whoever are refused their sandbox, if a pod of the job is."""
        if job not in self._heard.get(SANDBOX, {}):
            return ()
        return tuple(
            Refused(node, group[0].at, group[-1].at)
            for node, lines in sorted(self._refused.items())
            for group in split_at_gaps(lines, lambda s: s.at, GOES_ON)
        )

    def _created(self, namespaces: set[str]) -> dict[tuple[str, str], list[datetime]]:
        """When pods were created in these namespaces, by namespace and by the kind of whom they were made for.

        All pods are looked through for it: it is asked only while a webhook refuses something.
        """
        found: dict[tuple[str, str], list[datetime]] = defaultdict(list)
        if not namespaces:
            return {}
        for name, row in self._state.pods.items():
            namespace = name.partition("/")[0]
            for fact in (t.fact for t in row.tenancies) if namespace in namespaces else ():
                if fact.created_at is not None and fact.job is not None:
                    found[namespace, named(fact.job).kind].append(fact.created_at)
        return {kind: sorted(times) for kind, times in found.items()}

    def _put_crashes(self, node: str) -> bool:
        """Keep what a node reports about pods that are part of a service. Returns whether that is something new."""
        row = self._state.nodes.get(node)
        kept = row.seen.values() if row is not None else ()
        found = tuple(
            s for group in kept if is_of_resolver(group[0]) or is_of_pool(group[0]) for s in group if s.firing
        )
        if any(map(is_of_resolver, found)):
            drops = (group for group in kept if families().drops_connections(group[0]))
            found += tuple(s for group in drops for s in group if s.firing)
        if found == self._crashes.get(node, ()):
            return False
        if found:
            self._crashes[node] = found
        else:
            del self._crashes[node]
        return True

    def _is_fresh(self, name: str, round_: Round) -> bool:
        """Whether a service of which many jobs complain was evaluated within the second: they may come in as many batches.

        Nothing is lost by it: what is reported of a job alone waits for longer.
        """
        count = len(self._heard.get(name, ())) + self.others.count(name)
        last, many = self._judged_at.get(name), count > _JUDGED_AT_ONCE
        if many and last is not None and timedelta() <= round_.now - last < _JUDGED_EVERY:
            return True
        if count:
            self._judged_at[name] = round_.now
        else:
            self._judged_at.pop(name, None)
        return False

    def _put(self, job: str) -> set[str]:
        """Keep what one job complains of. Returns the services of which that says something new."""
        told = self._evidence_cache.told(job)
        known = self._told.pop(job, ())
        if told:
            self._told[job] = told
        if told is known or not (told or known):
            return set()  # complaints are read from nothing else
        lasting = self._evidence_cache.lasting(job)
        found = complaints_of(job, told, lasting)
        before = self._named.pop(job, frozenset())
        changed = {name for name in found if self._heard.get(name, {}).get(job) != found[name]}
        changed |= before - found.keys()
        for name in before - found.keys():
            del self._heard[name][job]
            if not self._heard[name]:
                del self._heard[name]
        for name, mine in found.items():
            self._heard[name][job] = mine
        if found:
            self._named[job] = frozenset(found)
        return changed

    def of_job(self, job: str) -> tuple[Shortage, ...]:
        """Faults of the services that a job complains of, as it has them."""
        names = sorted(self._named.get(job, ()))
        mine = {name: self._heard[name][job].sightings for name in names}
        return shortages(mine, (h for name in names for h in self._faults.get(name, ())))

    def at(self, name: str) -> list[Hypothesis]:
        """The faults of one service."""
        return self._faults.get(name, [])

    def all(self) -> Iterable[Hypothesis]:
        """The faults of all services."""
        return (h for found in self._faults.values() for h in found)

    def successor_of(self, row: DocumentRow, by_jobs: ByJobs) -> Hypothesis | None:
        """An earlier fault of the same service, else what explains now what its jobs suffered."""
        incident = row.incident
        others = (h for h in self.at(row.place.name) if h.id != incident.id)
        return next((h for h in others if h.fault_at <= incident.fault_at), None) or by_jobs()

    def members(self, incident: str, place: Place) -> Iterable[Place]:
        """The jobs and some of the other workloads that complain of it, and the nodes where its pods crash.

        What they say is kept as long as it is known.
        """
        if place.kind is not PlaceKind.SERVICE:
            return ()
        nodes = self._crashes if place.name in _NAMED_BY_NODES else ()
        jobs = {Place(PlaceKind.JOB, job) for job in self._heard.get(place.name, ())}
        return jobs | self.others.held(place.name) | {Place(PlaceKind.NODE, node) for node in nodes}


def _owner(job: str) -> Owner:
    """A training job as the owner of pods that cannot be created."""
    ref = job_ref(job)
    return Owner(job, ref.namespace, ref.kind, True)
