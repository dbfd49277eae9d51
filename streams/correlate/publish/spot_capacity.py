"""Spot nodes whose cloud takes them back, and the jobs that are made for it: they gather again, and nobody is told.

A spot node goes at any time, many of them a day in a busy pool. Where each job on it is replaced by its own controller there is
nothing to do but to see that it comes back. One that does not, or that suffers later, is reported like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.sightings import Sighting
from streams.correlate.state.job_progress import moves_of
from streams.correlate.state.placement import Placements
from streams.correlate.state.store import State
from streams.model.facts import JobFact
from streams.model.kinds import IncidentFamily
from streams.model.node_notice import NODE_ENDS, deadline_in

RETRY_WITHIN_S = 300.0
"""A controller that only counts restarts tells no time: pods go with a grace period, back-offs grow, images are pulled."""


class SpotCapacity:
    """What is left to the jobs themselves when a spot node goes."""

    def __init__(self, state: State, placements: Placements) -> None:
        self._state = state
        self._placements = placements

    def gathers_until(self, h: Hypothesis, jobs: Iterable[str]) -> datetime | None:
        """Until when the jobs on a spot node are left to gather again; None where somebody has to act for one of them."""
        node = self._state.nodes.get(h.root.node or "")
        if h.family != IncidentFamily.PREEMPTION or h.facts.get(NODE_ENDS) == "back":
            return None
        if node is None or node.fact is None or not node.fact.spot:
            return None
        rows = [self._state.jobs.get(job) for job in jobs]
        within_s = [_comes_back_within_s(row.fact if row is not None else None) for row in rows]
        if not within_s or not all(within_s):
            return None
        return (deadline_in(h.facts) or h.last_at) + timedelta(seconds=max(within_s))

    def needs_nobody(
        self, h: Hypothesis, claims: Mapping[str, Sequence[Sighting]], jobs: Iterable[str], now: datetime
    ) -> bool:
        """Whether nobody is notified: its jobs may still gather again, or all of them did. `claims` are their symptoms."""
        jobs = {*jobs, *claims}
        until = self.gathers_until(h, jobs)
        if until is None or now < until:
            return until is not None
        late = any(s.seen_at > until for s in chain.from_iterable(claims.values()))
        return not late and all(self._is_back(job, until) for job in jobs)

    def _is_back(self, job: str, until: datetime) -> bool:
        """Whether a job runs again by then, or is over without having failed."""
        row = self._state.jobs[job]
        if row.gone_at is not None or (row.fact is not None and row.fact.finished):
            return row.fact is None or not row.fact.failed
        # Pods that stand somewhere may still wait for each other; what used to report progress reports it again.
        standing = self._placements.of_job(job, until, until)
        return bool(standing) or any(at >= until for at in moves_of(self._state, self._placements, job))


def _comes_back_within_s(fact: JobFact | None) -> float:
    """Within how many seconds a job's own controller makes anew what it lost; 0 where it does not, or is not known to.

    A restart that is counted will do here, though not for a broken node: a pool loses spot nodes all day, and whoever trains on
    them has set the count for that.
    """
    if fact is None:
        return 0.0
    return fact.heals_within_s or (RETRY_WITHIN_S if fact.retries_left else 0.0)
