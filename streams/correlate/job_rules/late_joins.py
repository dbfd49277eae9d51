"""Ranks that wait at their start for pods of their job that have not started: whatever keeps those is why, and nothing hangs.

A program meets its peers before it computes anything, at a store that one of them serves, and gives up after a quarter of an
hour or so. Where a pod of the job had not started by then, that proves nothing against any rank or node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streams.correlate.job_rules.connection_votes import is_one_try, only_deaths, waited_to_join
from streams.correlate.job_rules.job_evidence import JobEvidence
from streams.correlate.job_rules.pod_failures import PlatformBlocker
from streams.correlate.job_rules.rank_reports import Episode
from streams.correlate.job_rules.verdict import JobVerdict
from streams.correlate.policy.config import Config
from streams.correlate.state.place import Cause


@dataclass(frozen=True, slots=True)
class LateJoin:
    """Ranks that gave up waiting for others, and the uids of the job's pods that had not started by then."""

    episode: Episode
    pods: frozenset[str]


def late_join(evidence: JobEvidence, episode: Episode, config: Config) -> LateJoin | None:
    """The pods that these ranks waited for in vain; None where all had started, or they report more than that."""
    waits = [s.at for s in episode.lines if waited_to_join(s)]
    if not waits or not only_deaths(episode.reports):
        return None
    # A try that fails is followed by others: what counts is when they gave up.
    gave_up = [s.at for s in episode.lines if waited_to_join(s) and not is_one_try(s)]
    at, spoke = min(gave_up or waits), {report.pod for report in episode.reports}
    # A program takes a minute or two from its container's start until it asks for its peers.
    since, there = at - config.restart_settle, at - config.slack
    late = frozenset(
        uid
        for uid, (pod, times) in evidence.joining.items()
        if pod not in spoke
        and times.created_at <= at
        and (times.ended_at is None or times.ended_at >= there)
        and (times.started_at is None or times.started_at > since)
    )
    return LateJoin(episode, late) if late else None


def claim_late_joins(
    late: Sequence[LateJoin], blockers: Sequence[tuple[PlatformBlocker, Cause]], verdict: JobVerdict
) -> None:
    """Give each to what kept its pods from starting; where nothing is known to have, it is nobody's."""
    cause_of: dict[str | None, Cause] = {
        s.entity.pod.uid: cause
        for blocker, cause in blockers
        for s in blocker.sightings
        if s.entity.pod is not None
    }
    for one in late:
        cause = next((cause_of[uid] for uid in sorted(one.pods) if uid in cause_of), None)
        if cause is not None:
            verdict.claim(cause, one.episode, one.episode.lines)
        else:
            verdict.leave(
                one.episode.lines,
                f"its ranks waited at their start for pods of it that had not started ({len(one.pods)})",
                "all of its pods started some minutes before, or ranks that wait in a collective",
            )
