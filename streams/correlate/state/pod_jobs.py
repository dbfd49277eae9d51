"""Which training job a pod is part of, also where it was never placed on a node.

Its placement counts first, then the owner that the inventory names. A pod that the inventory has not named belongs to no job: its
name alone may be anything's, a notebook's as well as a build's.
"""

from __future__ import annotations

from collections import defaultdict

from streams.correlate.policy.families import FAILURES
from streams.correlate.sightings import Sighting
from streams.correlate.state.allocations import job_of
from streams.correlate.state.placement import Placements
from streams.correlate.state.rows import JobRow
from streams.correlate.state.store import RowStore, State
from streams.model.entity import JobRef, PodRef, is_output_of_slurm


def job_ref(key: str) -> JobRef:
    """The job behind a key, `kind/namespace/name`."""
    return JobRef(*key.split("/", 2))


def stand_in(job: JobRef) -> PodRef:
    """What stands for a pod where Kubernetes reports about a job's object: that pods of it cannot be created, for example."""
    return PodRef(job.namespace, f"{job.kind}{_OF_OBJECT}{job.name}")


def job_told_of(pod: str) -> JobRef | None:
    """The object behind a stand-in's key; None for a real pod, in whose name no such mark may be."""
    namespace, _, name = pod.partition("/")
    kind, mark, rest = name.partition(_OF_OBJECT)
    return JobRef(kind, namespace, rest) if mark else None


_OF_OBJECT = ":"
_ABOVE = ("JobSet", "TrainJob", "MPIJob", "RayJob", "RayCluster")
"""Kinds that make objects which make pods; those bear its name and what tells them apart (`llm` makes `llm-workers-0`)."""
_BY_STATEFUL_SETS = ("LeaderWorkerSet",)
"""The same of kinds that make StatefulSets only: one of its own name for the leaders, and one for each group's workers."""


def above(told: JobRef, jobs: RowStore[JobRow]) -> list[str]:
    """Keys of the jobs that an object may be, or be made by, the nearest first; those that a fact names."""
    # Volcano calls its kind `Job` as well, and the object that an Event is about goes by its kind alone.
    names = [told.key, *([f"VolcanoJob/{told.namespace}/{told.name}"] if told.kind == "Job" else [])]
    kinds = (*_ABOVE, *(_BY_STATEFUL_SETS if told.kind == "StatefulSet" else ()))
    parts = told.name.split("-")
    for count in range(len(parts), 0, -1):
        names += (f"{kind}/{told.namespace}/{'-'.join(parts[:count])}" for kind in kinds)
    return [name for name in names if (row := jobs.get(name)) is not None and row.fact is not None]


class PodJobs:
    """Pods that reported something, by the training job they are part of."""

    def __init__(self, state: State, placements: Placements) -> None:
        self._state = state
        self._placements = placements
        self._unplaced: dict[str, str] = {}
        """Of a pod that was never placed: the key of its job."""
        self._pods: dict[str, set[str]] = defaultdict(set)
        """The same the other way round."""
        self._stand_ins: dict[str, set[str]] = defaultdict(set)
        """What stands for objects, by their namespace."""
        self._failed_on: dict[str, set[str]] = defaultdict(set)
        """Pods that failed on a node where they may never have been placed, by the node that reported it."""
        for name, pod in state.pods.items():
            self.enter_unplaced(name)
            for s in (s for group in pod.seen.values() if group[0].kind in FAILURES for s in group):
                self.fail(name, s)

    @property
    def stand_ins(self) -> int:
        """For how many objects something is kept."""
        return sum(map(len, self._stand_ins.values()))

    def jobs_of(self, pod: str) -> set[str]:
        """Keys of every training job the pod is or was part of."""
        placed = {p.job.key for p in self._placements.of_pod(pod)}
        return placed or ({owner} if (owner := self._owner_of(pod)) is not None else set())

    def unplaced(self, job: str) -> list[str]:
        """Pods of the job that were never placed, sorted."""
        return sorted(self._pods.get(job, ()))

    def failing_on(self, node: str) -> set[str]:
        """Keys of jobs whose pods were reported to fail on the node."""
        return {job for pod in self.pods_failing_on(node) for job in self.jobs_of(pod)}

    def pods_failing_on(self, node: str) -> set[str]:
        """Names of pods, of whatever job, that were reported to fail on the node."""
        return self._failed_on.get(node, set()) & self._state.pods.keys()

    def enter_unplaced(self, pod: str) -> None:
        """Enter a pod that reported something and was never placed under its job."""
        if not self._state.pods[pod].seen or self._placements.of_pod(pod):
            return
        if _OF_OBJECT in pod:
            self._stand_ins[pod.partition("/")[0]].add(pod)
        if (key := self._owner_of(pod)) is not None:
            self._unplaced[pod] = key
            self._pods[key].add(pod)

    def leave_unplaced(self, pod: str) -> set[str]:
        """Take a pod out of the job that it was entered under. Returns that job's key, if there was one."""
        key = self._unplaced.pop(pod, None)
        if key is None:
            return set()
        self._pods[key].discard(pod)
        if not self._pods[key]:
            del self._pods[key]
        return {key}

    def fail(self, pod: str, seen: Sighting) -> None:
        """Record which node reported that a pod failed, where a sighting says so."""
        if seen.kind in FAILURES and seen.entity.node:
            self._failed_on[seen.entity.node].add(pod)

    def forget_failures(self) -> None:
        """Forget failures of pods whose rows are gone."""
        for namespace, mine in list(self._stand_ins.items()):
            mine &= self._state.pods.keys()
            if not mine:
                del self._stand_ins[namespace]
        for node, pods in list(self._failed_on.items()):
            pods &= self._state.pods.keys()
            if not pods:
                del self._failed_on[node]

    def told_of(self, name: str) -> list[str]:
        """Stand-ins in the namespace of a job."""
        namespace = name.split("/", 2)[1]
        return sorted(self._stand_ins.get(namespace, set()) & self._state.pods.keys())

    def _job_above(self, told: JobRef) -> str | None:
        """The training job that an object is, or is made by."""
        found = above(told, self._state.jobs)
        return next(
            (n for n in found if (fact := self._state.jobs[n].fact) is not None and fact.trains), None
        )

    def _owner_of(self, pod: str) -> str | None:
        row = self._state.pods.get(pod)
        owners = [t.fact.job for t in row.tenancies if t.fact.job and t.fact.trains] if row else []
        if not owners and is_output_of_slurm(pod):
            # A job's output is one file, which another host may ship than those where it runs.
            job = job_of(pod)
            known = self._state.jobs.get(job.key)
            return job.key if known is not None and known.was_placed else None
        if not owners and (told := job_told_of(pod)) is not None:
            return self._job_above(told)
        return owners[-1].key if owners else None
