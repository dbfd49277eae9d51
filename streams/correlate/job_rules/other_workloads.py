"""What a shared fault keeps from starting besides training jobs: builds, batch, notebooks, inference.

Only by its own words: its pods' events, or its controller's, name the registry, the webhook, the storage or the resolver. That
something failed at the same time says nothing on a busy cluster. Nothing is decided by them but that a webhook fails
(`refusals.py`) and, beside a job that says so too, that the certificate of a registry has expired.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.job_rules.blockers import is_unmounted
from streams.correlate.job_rules.refusals import Owner
from streams.correlate.job_rules.services import (
    REGISTRY,
    WEBHOOK,
    Complaints,
    complaints,
    is_firm,
    service_policy,
    stays,
    thinned,
)
from streams.correlate.sightings import Sighting, order
from streams.correlate.state.place import SERVERS, Place, PlaceKind
from streams.correlate.state.pod_jobs import job_told_of
from streams.correlate.state.rows import PodRow
from streams.correlate.state.store import State
from streams.correlate.state.unstarted_pods import POD
from streams.inventory.workload_table import workloads
from streams.model.entity import JobRef
from streams.model.hostnames import short
from streams.model.kinds import WorkloadClass

_TEMPLATE_HASH = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5,10}$")
"""How the ReplicaSets of a Deployment end (kubernetes, apimachinery/pkg/util/rand, SafeEncodeString)."""


class OtherWorkloads:
    """Pods of no training job, and objects that could make none, by what their failures name."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._by_service: dict[str, dict[str, tuple[Sighting, ...]]] = defaultdict(dict)
        """By service, then by pod."""
        self._by_server: dict[str, dict[str, tuple[Sighting, ...]]] = defaultdict(dict)
        """By server of storage, short: pods that cannot mount a volume of it."""
        self._named: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        """By pod: the services and the servers that it names."""

    def put(self, pod: str, failures: Sequence[Sighting]) -> set[str]:
        """Keep the failures of one pod. Returns the services of which that is news."""
        services = {name: thinned(mine) for name, mine in complaints(failures).items()} if failures else {}
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
        for name, lines in servers.items():
            self._by_server[name][pod] = tuple(sorted(lines, key=order))
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

    def refused_by(self, service: str) -> list[Complaints]:
        """What a webhook refuses to create, by workload; empty for any other service."""
        if service.partition("/")[0] != WEBHOOK or service not in self._by_service:
            return []
        found: dict[str, tuple[Owner, list[Sighting]]] = {}
        for pod, mine in sorted(self._by_service[service].items()):
            job = self._workload(pod)
            owner = Owner(job.key, job.namespace, job.kind, self._wants_gpus(job))
            found.setdefault(job.key, (owner, []))[1].extend(mine)
        return [
            Complaints(key, tuple(sorted(lines, key=order)), owner) for key, (owner, lines) in found.items()
        ]

    def expiries(self, service: str) -> list[Sighting]:
        """What is said of a certificate of a registry that has expired, in order of time."""
        if service.partition("/")[0] != REGISTRY:
            return []
        found = (s for mine in self._by_service.get(service, {}).values() for s in mine if stays(s))
        return sorted(found, key=order)

    def kept_from_starting(self, h: Hypothesis, shown: Sequence[JobRef] = ()) -> list[JobRef]:
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
        """The pods of which everything is kept as long as an incident of the service is known.

        Those that it began with, the last one, and one now and then: a thousand builds a day are refused by a webhook that nobody
        mends, and nothing is lost with most of them.
        """
        every = service_policy().over / 2
        lines = sorted(
            (order(s), pod) for pod, mine in self._by_service.get(service, {}).items() for s in mine
        )
        found: list[str] = [pod for _, pod in lines[-1:]]
        last = None
        for (at, _), pod in lines:
            if len(found) <= _FIRST or (last is not None and at - last >= every):
                last = at
                found.append(pod)
        return {Place(PlaceKind.POD, pod) for pod in found}

    def _naming(self, h: Hypothesis) -> Iterable[tuple[str, Sequence[Sighting]]]:
        if h.place.kind is PlaceKind.SERVICE:
            yield from self._by_service.get(h.place.name, {}).items()
        elif h.root.storage is not None and self._by_server:
            called = {h.root.storage, *h.fact_texts("storage"), *h.fact_texts(SERVERS)}
            for server in sorted({short(name.partition(":")[0]) for name in called if name}):
                yield from self._by_server.get(server, {}).items()

    def _workload(self, pod: str) -> JobRef:
        """Whose pod it is, as far as anybody tells: else the pod itself."""
        if (made_for := job_told_of(pod)) is not None:
            return named(made_for)
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


_FIRST = 8
"""Of how many of the first that are refused everything is kept."""


def _job_of(row: PodRow | None) -> JobRef | None:
    jobs = [t.fact.job for t in row.tenancies if t.fact.job is not None] if row is not None else []
    return jobs[-1] if jobs else None


def _forget(index: Mapping[str, dict[str, tuple[Sighting, ...]]], names: Iterable[str], pod: str) -> None:
    for name in names:
        index[name].pop(pod, None)
