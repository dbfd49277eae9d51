"""The hosts on which a job ended first, weighed against those on which other jobs did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streams.correlate.job_rules.applications import Burst
from streams.correlate.job_rules.first_failures import (
    FirstGpu,
    accusation,
    accusers,
    any_first_host,
    as_episode,
    circumstances,
    crashed_on,
    earlier_firsts,
    first_gpu,
    first_host,
    gpu_accusers,
)
from streams.correlate.job_rules.job_evidence import JobEvidence, placed_at
from streams.correlate.job_rules.verdict import JobVerdict, Suspicion
from streams.correlate.policy.config import Config
from streams.correlate.state.place import Cause, Place, PlaceKind, Suspect
from streams.correlate.state.placement import Placement
from streams.correlate.state.rows import PastFault
from streams.model.entity import Entity
from streams.model.kinds import IncidentFamily


class AccusedHosts:
    """The hosts on which the job ended first, crash by crash, in order of time."""

    def __init__(self, evidence: JobEvidence, config: Config) -> None:
        self._evidence, self._config = evidence, config
        self._seen: dict[str, list[tuple[Burst, PastFault]]] = {}
        self.accused: list[tuple[Burst, Cause]] = []
        """The crashes that began on a suspected host, with that host."""

    def crashed_on(self, burst: Burst) -> str | None:
        """The one of many hosts on which the job crashed first."""
        return crashed_on(burst, self._there(burst))

    def one_gpu(self, burst: Burst) -> Entity | None:
        """The one GPU of several nodes on which the job crashed. On one node a program uses the same GPU with each try."""
        return burst.gpu if len({p.node for p in self._there(burst)}) > 1 else None

    def _there(self, burst: Burst) -> list[Placement]:
        return placed_at(self._evidence.placements, burst.start, self._config)

    def accuse(self, verdict: JobVerdict, burst: Burst, loose: Mapping[int, list[Burst]]) -> bool:
        """Suspect the host on which the job ended first, if jobs have done so before: also of this job's earlier crashes there.

        Returns whether it is suspected.
        """
        evidence = self._evidence
        there = self._there(burst)
        host = first_host(burst, there)
        at = first_gpu(burst, there)
        if host is None:
            return self._accuse_known(verdict, burst, there) or self._accuse_gpu(verdict, burst, at)
        before = self._seen.setdefault(host, [])
        own = {name: [fault for _, fault in crashes] for name, crashes in self._seen.items()}
        earlier = earlier_firsts(host, evidence.job, there, evidence.firsts, burst.start, own, burst)
        past = PastFault(
            "",
            IncidentFamily.APPLICATION,
            burst.start,
            None,
            evidence.job.key,
            circumstances(there, burst),
            at.name if at is not None else None,
        )
        before.append((burst, past))
        if not earlier:
            return self._accuse_gpu(verdict, burst, at)
        suspect = self._suspect(verdict, burst, host, earlier, at)
        for crash, _ in before:
            verdict.claim(suspect, crash, crash.sightings)
            if crash is not burst:
                self.accused.append((crash, suspect))
            for crashes in loose.values():
                crashes[:] = [c for c in crashes if c is not crash]
        return True

    def _accuse_gpu(self, verdict: JobVerdict, burst: Burst, at: FirstGpu | None) -> bool:
        """Suspect the GPU on which the job ended first, if ranks of other jobs did before, be it of jobs on that host alone."""
        evidence = self._evidence
        if at is None:
            return False
        known = evidence.rank_firsts(at.rank)
        earlier = gpu_accusers(at, evidence.job, evidence.gpu_firsts, known, burst.start)
        if not earlier:
            return False
        verdict.claim(self._suspect(verdict, burst, at.node, earlier, at), burst, burst.sightings)
        return True

    def _accuse_known(self, verdict: JobVerdict, burst: Burst, there: Sequence[Placement]) -> bool:
        """Suspect the host on which the job ended first, if other jobs accuse it already: also by rank 0, or as its only one."""
        evidence, host = self._evidence, any_first_host(burst, there)
        if host is None or not (earlier := accusers(host, evidence.firsts, burst, evidence.job)):
            return False
        verdict.claim(self._suspect(verdict, burst, host, earlier), burst, burst.sightings)
        return True

    def _suspect(
        self,
        verdict: JobVerdict,
        burst: Burst,
        host: str,
        earlier: Sequence[PastFault],
        at: FirstGpu | None = None,
    ) -> Suspect:
        ready_at = burst.seen_at + self._config.application_settle
        finding, episode = accusation(host, earlier, at), as_episode(burst)
        verdict.suspicions.append(Suspicion(host, self._evidence.job, finding, episode, ready_at, ()))
        suspect = Suspect(Place(PlaceKind.NODE, host))
        self.accused.append((burst, suspect))
        return suspect
