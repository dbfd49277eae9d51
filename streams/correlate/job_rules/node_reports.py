"""What jobs' own programs say of the nodes they stand on, as signals of these nodes. Each kind of report has a class."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from streams.correlate.job_rules.job_evidence_cache import JobEvidenceCache
from streams.correlate.policy.config import Config
from streams.correlate.sightings import Sighting
from streams.correlate.state.placement import Placements


class NodeReports(ABC):
    """By node: what the programs of jobs there report of it, each as a signal of the node."""

    def __init__(self, evidence_cache: JobEvidenceCache, placements: Placements, config: Config) -> None:
        self._evidence_cache, self._placements, self._config = evidence_cache, placements, config
        self._by_job: dict[str, Mapping[str, Sequence[Sighting]]] = {}
        self._jobs_at: defaultdict[str, set[str]] = defaultdict(set)

    def on(self, node: str) -> list[Sighting]:
        """What is reported of a node."""
        jobs = sorted(self._jobs_at[node]) if node in self._jobs_at else []
        return [s for job in jobs for s in self._by_job[job][node]]

    def learn(self, jobs: Iterable[str]) -> set[str]:
        """Read again what these jobs report. Returns the nodes of which that says something else than before."""
        changed: set[str] = set()
        for job in jobs:
            before, after = self._by_job.pop(job, {}), self._of_job(job)
            if after:
                self._by_job[job] = after
            for node in before.keys() | after.keys():
                if before.get(node) == after.get(node):
                    continue
                changed.add(node)
                (self._jobs_at[node].add if node in after else self._jobs_at[node].discard)(job)
                if not self._jobs_at[node]:
                    del self._jobs_at[node]
        return changed

    @abstractmethod
    def _of_job(self, job: str) -> Mapping[str, Sequence[Sighting]]:
        """What a job reports, by node."""
