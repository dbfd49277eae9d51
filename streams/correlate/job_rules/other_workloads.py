"""What a shared fault keeps from starting besides training jobs: builds, batch, notebooks, inference.

Only by its own words: its pods' events, or its controller's, name the registry, the webhook, the storage or the resolver. That
something failed at the same time says nothing on a busy cluster. Nothing is decided by them but that a webhook fails
(`refusals.py`) and, beside a job that says so too, that the certificate of a registry has expired and that a registry is still at
fault.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TypeVar

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.job_rules.blockers import is_unmounted
from streams.correlate.job_rules.job_complaints import Complaints, is_firm
from streams.correlate.job_rules.refusals import Owner
from streams.correlate.job_rules.service_policy import REGISTRY, SANDBOX, WEBHOOK, service_policy
from streams.correlate.job_rules.services import complaints_of, words
from streams.correlate.sightings import Sighting, order
from streams.correlate.state.place import ADDRESS_POOL, SERVERS, Place, PlaceKind
from streams.correlate.state.pod_jobs import above, job_ref, job_told_of
from streams.correlate.state.rows import PodRow
from streams.correlate.state.store import State
from streams.correlate.state.unstarted_pods import POD
from streams.inventory.workload_table import workloads
from streams.model.entity import JobRef
from streams.model.hostnames import short
from streams.model.kinds import WorkloadClass

T = TypeVar("T")

_TEMPLATE_HASH = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5,10}$")
"""How the ReplicaSets of a Deployment end (kubernetes, apimachinery/pkg/util/rand, SafeEncodeString)."""


class OtherWorkloads:
    """Pods of no training job, and objects that could make none, by what their failures name."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._by_service: dict[str, dict[str, Complaints]] = defaultdict(dict)
        """By service, then by pod."""
        self._by_server: dict[str, dict[str, tuple[Sighting, ...]]] = defaultdict(dict)
        """By server of storage, short: pods that cannot mount a volume of it."""
        self._named: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        """By pod: the services and the servers that it names."""

    def put(self, pod: str, failures: Sequence[Sighting]) -> set[str]:
        """Keep the failures of one pod. Returns the services of which that is news."""
        row = self._state.pods.get(pod) if failures else None
        services = complaints_of(pod, failures, (row.lasting if row is not None else None) or ())
        servers: dict[str, list[Sighting]] = {}
        for s in failures:
            if s.firing and is_unmounted(s) and (server := s.text("server")):
                servers.setdefault(short(server), []).append(s)
        before, others = self._named.pop(pod, ((), ()))
        changed = {name for name, mine in services.items() if self._by_service[name].get(pod) != mine}
        changed |= set(before) - services.keys()
        _forget(self._by_service, set(before) - services.keys(), pod)
        _forget(self._by_server, set(others) - servers.keys(), pod)
        for name, mine in services.items():
            self._by_service[name][pod] = mine
        for name, unmounted in servers.items():
            self._by_server[name][pod] = tuple(sorted(unmounted, key=order))
        if services or servers:
            self._named[pod] = (tuple(services), tuple(servers))
        return changed

    def knows(self, pod: str) -> bool:
        """Whether anything is kept of a pod."""
        return pod in self._named

    def count(self, service: str) -> int:
        """Of how many pods and objects something is kept that names a service."""
        return len(self._by_service.get(service, ()))

    def refused_in(self, namespaces: set[str]) -> set[str]:
        """The webhooks that refuse something to be created in any of these namespaces."""
        return {
            name
            for name, mine in self._by_service.items()
            if name.partition("/")[0] == WEBHOOK and any(pod.partition("/")[0] in namespaces for pod in mine)
        }

    def counted_for(self, service: str) -> list[Complaints]:
        """What a webhook refuses to create, by workload, or what pods say of a registry or have no address for; else empty."""
        if service.partition("/")[0] not in COUNTED or service not in self._by_service:
            return []
        pods = [mine for _, mine in sorted(self._by_service[service].items())]
        if service.partition("/")[0] != WEBHOOK:
            return pods
        by_owner: dict[str, tuple[Owner, list[Complaints]]] = {}
        for mine in pods:
            job = self._workload(mine.job)
            owner = Owner(job.key, job.namespace, job.kind, self._wants_gpus(job))
            by_owner.setdefault(job.key, (owner, []))[1].append(mine)
        return [
            Complaints(
                key,
                tuple(sorted((s for one in mine for s in one.sightings), key=order)),
                owner,
                tuple(sorted(span for one in mine for span in one.lasting)),
            )
            for key, (owner, mine) in by_owner.items()
        ]

    def kept_from_starting(self, h: Hypothesis, shown: Sequence[JobRef]) -> list[JobRef]:
        """The workloads that a shared fault keeps from starting, by their own words; by key, in order.

        Those that are `shown` already are among them, also when their lines are forgotten, but for pods that turned out to be a
        training job's.
        """
        since = h.fault_at - timedelta(seconds=service_policy().before_s)
        until = h.last_at + service_policy().over
        pods = {
            pod for pod, lines in self._naming(h) if any(since <= s.at <= until and is_firm(s) for s in lines)
        }
        if h.place.kind is PlaceKind.SHARED:
            # What pods report of GPU software on several nodes is what the fault was found by.
            reporting = {pod for s in h.causes if (pod := s.text(POD))}
            pods |= {pod for pod in reporting if not self._trains(pod)}
        jobs = {job.key: job for job in map(self._workload, pods)}
        jobs |= {
            job.key: job
            for job in shown
            if job.kind != "Pod" or not self._trains(f"{job.namespace}/{job.name}")
        }
        return [jobs[key] for key in sorted(jobs)]

    def held(self, service: str) -> set[Place]:
        """The pods of which everything is kept as long as an incident of the service is known; none where others do not count.

        Of those that say the same: the ones that it began with, the last one, and now and then one, with another on a second
        node. A thousand builds a day are refused by a webhook that nobody mends, and nothing is lost with most of them.
        """
        if service.partition("/")[0] not in COUNTED:
            return set()
        by_words: dict[str, list[tuple[Sighting, str]]] = defaultdict(list)
        for pod, mine in self._by_service.get(service, {}).items():
            for s in mine.sightings:
                by_words[words(s)].append((s, pod))
        found = (pod for lines in by_words.values() for pod in _kept_of(lines))
        return {Place(PlaceKind.POD, pod) for pod in found}

    def _naming(self, h: Hypothesis) -> Iterable[tuple[str, Sequence[Sighting]]]:
        if h.place.kind is PlaceKind.SERVICE:
            mine = self._by_service.get(h.place.name, {})
            yield from ((pod, one.sightings) for pod, one in mine.items())
        elif h.root.storage is not None and self._by_server:
            called = {h.root.storage, *h.fact_texts("storage"), *h.fact_texts(SERVERS)}
            for server in sorted({short(name.partition(":")[0]) for name in called if name}):
                yield from self._by_server.get(server, {}).items()

    def _workload(self, pod: str) -> JobRef:
        """Whose pod it is, as far as anybody tells: else the pod itself."""
        if (made_for := job_told_of(pod)) is not None:
            known = above(made_for, self._state.jobs)
            return named(job_ref(known[0]) if known else made_for)
        if (job := _job_of(self._state.pods.get(pod))) is not None:
            return named(job)
        namespace, _, name = pod.partition("/")
        return JobRef("Pod", namespace, name)

    def _wants_gpus(self, job: JobRef) -> bool:
        """Whether the inventory follows the job, which holds no GPUs else, or only training is of its kind."""
        row = self._state.jobs.get(job.key)
        followed = row is not None and row.fact is not None
        return followed or workloads().by_kind(job.kind, gpus=False) is WorkloadClass.TRAINING

    def _trains(self, pod: str) -> bool:
        row = self._state.pods.get(pod)
        return row is not None and any(t.fact.trains and t.fact.job for t in row.tenancies)


def named(job: JobRef) -> JobRef:
    """A workload by the object that people know: of a Deployment that is not watched only its ReplicaSets tell."""
    made = _TEMPLATE_HASH.search(job.name) if job.kind == "ReplicaSet" else None
    if made is not None:
        return JobRef("Deployment", job.namespace, job.name[: made.start()])
    return JobRef(job.kind, job.namespace, job.name)


COUNTED = (WEBHOOK, REGISTRY, ADDRESS_POOL, SANDBOX)
"""Of what it counts what others say, too."""
_FIRST = 8
"""Of how many of the first that are refused everything is kept."""


def _kept_of(lines: Iterable[tuple[Sighting, str]]) -> list[str]:
    """The pods of which everything is kept, of those that have these lines in the same words."""
    every = service_policy().over / 2
    ordered = sorted(lines, key=lambda one: (order(one[0]), one[1]))
    found = [pod for _, pod in ordered[-1:]]
    last, nodes = ordered[0][0].at, set[str | None]()
    for s, pod in ordered:
        if s.at - last >= every:
            last, nodes = s.at, set()
        elif len(found) > _FIRST and (len(nodes) > 1 or s.entity.node in nodes):
            continue
        nodes.add(s.entity.node)
        found.append(pod)
    return found


def _job_of(row: PodRow | None) -> JobRef | None:
    jobs = [t.fact.job for t in row.tenancies if t.fact.job is not None] if row is not None else []
    return jobs[-1] if jobs else None


def _forget(index: Mapping[str, dict[str, T]], names: Iterable[str], pod: str) -> None:
    for name in names:
        index[name].pop(pod, None)
