"""Which job a pod is part of, also where it was never placed on a node.

Its placement counts first, then the owner that the inventory names, and last the pod's own name.
"""

from __future__ import annotations

import re
from collections import defaultdict

from streams.correlate.policy.families import FAILURES
from streams.correlate.sightings import Sighting
from streams.correlate.state.placement import Placements
from streams.correlate.state.store import State
from streams.model.entity import JobRef

_ORDINAL = re.compile(r"(?:-(?:worker|master|launcher|node|replica))?(?:-\d+)+(?:-[a-z0-9]{5})?$")


def job_ref(key: str) -> JobRef:
    """The job behind a key, `kind/namespace/name`."""
    return JobRef(*key.split("/", 2))


class PodJobs:
    """Pods that reported something, by the job they are taken for a part of."""

    def __init__(self, state: State, placements: Placements) -> None:
        self._state = state
        self._placements = placements
        self._guessed: dict[str, str] = {}
        """Of a pod that was never placed: the key of its job."""
        self._pods: dict[str, set[str]] = defaultdict(set)
        """The same the other way round."""
        self._failed_on: dict[str, set[str]] = defaultdict(set)
        """Pods that failed on a node where they may never have been placed, by the node that reported it."""
        for name, pod in state.pods.items():
            self.guess(name)
            for s in (s for group in pod.seen.values() if group[0].kind in FAILURES for s in group):
                self.fail(name, s)

    def jobs_of(self, pod: str) -> set[str]:
        """Keys of every job the pod is or was part of."""
        return {p.job.key for p in self._placements.of_pod(pod)} or {self._without_placement(pod)}

    def unplaced(self, job: str) -> list[str]:
        """Pods that were never placed and are taken for parts of the job, sorted."""
        return sorted(self._pods.get(job, ()))

    def failing_on(self, node: str) -> set[str]:
        """Keys of jobs whose pods were reported to fail on the node."""
        failed = self._failed_on.get(node, set()) & self._state.pods.keys()
        return {job for pod in failed for job in self.jobs_of(pod)}

    def guess(self, pod: str) -> None:
        """Take a pod that reported something and was never placed for a part of some job."""
        if self._state.pods[pod].seen and not self._placements.of_pod(pod):
            key = self._guessed[pod] = self._without_placement(pod)
            self._pods[key].add(pod)

    def forget_guess(self, pod: str) -> set[str]:
        """Take a pod out of the job it was taken for a part of. Returns that job's key, if there was one."""
        key = self._guessed.pop(pod, None)
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
        for node, pods in list(self._failed_on.items()):
            pods &= self._state.pods.keys()
            if not pods:
                del self._failed_on[node]

    def _without_placement(self, pod: str) -> str:
        row = self._state.pods.get(pod)
        owners = [t.fact.job for t in row.tenancies if t.fact.job] if row else []
        if owners:
            return owners[-1].key
        # Pods of one job differ in their ordinals: the rest of the name is the job until the inventory knows better.
        namespace, _, name = pod.partition("/")
        return f"Pod/{namespace}/{_ORDINAL.sub('', name) or name}"
