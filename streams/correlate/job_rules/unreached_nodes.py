"""A node whose own kernel or network agent drops connections, where the others of a job cannot reach it, or it cannot reach them.

Only that node says why: its table of connections is full, and what asks for a new one is not answered. Peers that wait for it
complain of the one at which all meet, and programs there have nothing to complain of. On a busy node without such a job it is no
fault of anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.job_rules.applications import Burst
from streams.correlate.job_rules.connection_votes import Addresses, could_not_connect, was_refused
from streams.correlate.job_rules.job_evidence import JobEvidence, placed_at
from streams.correlate.job_rules.rank_reports import Episode, RankReport
from streams.correlate.policy.config import Config
from streams.correlate.policy.families import families


@dataclass(frozen=True, slots=True)
class Unreached:
    """Reports of a job that follow from connections which a node of it drops."""

    episode: Episode
    cause: Hypothesis

    def ends(self, burst: Burst, config: Config) -> bool:
        """Whether what processes left may be no more than their giving up."""
        since, until = self.episode.reported_at - config.skew, self.episode.end + config.restart_settle
        return not burst.speaks_for_itself and since <= burst.start <= until


def unreached(evidence: JobEvidence, hangs: Iterable[Episode], config: Config) -> list[Unreached]:
    """Of each hang the node that drops connections, where that is what its ranks complain of."""
    barred = [
        c
        for c in evidence.causes
        if c.root.node is not None and any(map(families().drops_connections, c.causes))
    ]
    if not barred:
        return []
    found = ((one, _node_at_fault(evidence, one, barred, config)) for one in hangs)
    return [Unreached(episode, cause) for episode, cause in found if cause is not None]


def _node_at_fault(
    evidence: JobEvidence, episode: Episode, barred: Sequence[Hypothesis], config: Config
) -> Hypothesis | None:
    """The one node that drops connections and is at an end of each that could not be made."""
    failed = [t for t in episode.reports if could_not_connect(t.sighting)]
    # A host that refuses has answered: nobody listened there.
    if not failed or (
        any(was_refused(t.sighting) for t in episode.reports)
        and not any(t.sighting.text("errno") or t.sighting.text("reason") in _UNANSWERED for t in failed)
    ):
        return None
    there = placed_at(evidence.placements, episode.start, config)
    addresses = evidence.addresses(there).with_those_of(episode.reports)
    nodes = {p.node for p in there}
    found = [
        cause
        for cause in barred
        if cause.root.node in nodes
        and _drops_at(cause, episode, config)
        and _ends_there(cause.root.node, failed, nodes, addresses)
    ]
    return found[0] if len({cause.root.node for cause in found}) == 1 else None


_UNANSWERED = frozenset({"Connection timed out", "No route to host"})


def _drops_at(cause: Hypothesis, episode: Episode, config: Config) -> bool:
    """Whether it said so around the time at which they could not connect."""
    told = [s.at for s in cause.causes if families().drops_connections(s)]
    first, last = episode.start - config.before, episode.reported_at + cause.lag
    return min(told) <= last and max(told) >= first


def _ends_there(
    node: str | None, failed: Sequence[RankReport], nodes: set[str], addresses: Addresses
) -> bool:
    """Whether all of these connections lead to a node from others, or from it to others."""
    peers = {peer for t in failed if (peer := t.sighting.text("peer"))}
    known = {found for peer in peers if (found := addresses.node(peer)) is not None}
    spoke = {t.node for t in failed} - {None}
    if not spoke:
        return False
    if known:
        return known == {node} != spoke or (spoke == {node} and node not in known)
    # Whose name it is nobody knows: the one at which all meet is the only one that does not look for it.
    return len(peers) == 1 and spoke == nodes - {node}
