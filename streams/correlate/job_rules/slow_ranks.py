"""Nodes that the program of a job calls slow: a framework's own report of its slowest rank, node or both.

One rank prints the report for the whole job, so where it was printed says nothing. It counts for the node that it names, where
the job stands on that, else for the node that holds the rank. What many nodes of a job are called is no property of one of them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from streams.correlate.job_rules.job_evidence import placed_at
from streams.correlate.job_rules.node_reports import NodeReports
from streams.correlate.job_rules.pod_failures import CALLED_SLOW
from streams.correlate.job_rules.rank_assignment import numbered
from streams.correlate.job_rules.rank_reports import RankReport
from streams.correlate.policy.families import families
from streams.correlate.policy.policy import policy
from streams.correlate.sightings import Sighting, order
from streams.correlate.state.placement import Placement
from streams.model.entity import Entity
from streams.model.hostnames import folded
from streams.model.kinds import SignalKind
from streams.model.signal import Attribute

REPORTED = "reported"
"""Subtype of the `gpu.slow` that it is at the node."""
_RANKS = re.compile(r"(\d{1,7})(?: ?- ?(\d{1,7}))?")
_MAX_RANKS = 4096


class SlowRanks(NodeReports):
    """By node: what the programs of jobs there report of it, each as a signal of the node."""

    def _of_job(self, job: str) -> Mapping[str, Sequence[Sighting]]:
        reports = sorted((s for s in self._evidence_cache.told(job) if _is_far_behind(s)), key=order)
        if not reports:
            return {}
        placements = self._placements.placements_of(job)
        found: dict[str, list[Sighting]] = defaultdict(list)
        sizes: dict[str, int] = {}
        for s in reports:
            there = placed_at(placements, s.at, self._config)
            sizes[s.id] = len({p.node for p in there})
            for node in self._named(s, there) or self._of_ranks(job, s, there):
                found[node].append(s)
        return {node: kept for node in sorted(found) if (kept := _alone(node, found, sizes, job))}

    def _named(self, s: Sighting, there: Sequence[Placement]) -> set[str]:
        """The node that the report names, where the job stands on it."""
        host = folded(s.text("host"))
        if not host:
            return set()
        names = self._evidence_cache.addresses(there).nodes
        node = names.get(host) or names.get(host.partition(".")[0])
        return {node} if node is not None and any(p.node == node for p in there) else set()

    def _of_ranks(self, job: str, s: Sighting, there: Sequence[Placement]) -> set[str]:
        """The nodes that hold the ranks of the report, where it is known which do."""
        ranks = _ranks(s)
        if not ranks:
            return set()
        reports = self._evidence_cache.reports(job, {p.node for p in there})
        if not reports and not any(p.observed for p in there):
            # Where nothing else tells how many ranks a node of Slurm's list holds, these do: there must be room for them.
            reports = tuple(RankReport(s, rank, None, None) for rank in sorted(ranks))
        known = numbered(there, reports)
        return (
            set() if known.is_guess else {p.node for p in known.placements if not ranks.isdisjoint(p.ranks)}
        )


def _is_far_behind(s: Sighting) -> bool:
    """Whether it calls somebody slow by enough to count; one without a figure has a threshold of its own."""
    if s.kind != SignalKind.JOB_STALLED or s.text("subtype") != CALLED_SLOW or not s.firing:
        return False
    percent = s.number("percent")
    return percent is None or percent < policy().slow_ranks.below_percent


def _ranks(s: Sighting) -> frozenset[int]:
    if (rank := s.number("slow_rank")) is not None:
        return frozenset({rank})
    found: set[int] = set()
    for match in _RANKS.finditer(s.text("slow_ranks")):
        first = int(match[1])
        found.update(range(first, min(int(match[2] or first), first + _MAX_RANKS) + 1))
    return frozenset(found)


def _alone(
    node: str, found: Mapping[str, Sequence[Sighting]], sizes: Mapping[str, int], job: str
) -> list[Sighting]:
    """The reports of a node at times when few of the job's nodes are called so, as signals of the node."""
    quiet, share = families().recurring.quiet, policy().slow_ranks.most_share
    kept = []
    for s in found[node]:
        near = sum(any(abs(o.at - s.at) <= quiet for o in others) for others in found.values())
        if near <= max(1, int(share * sizes[s.id])):
            kept.append(s)
    # What is said of it stays the same from report to report, or each would be news.
    said: dict[str, Attribute] = {"subtype": REPORTED, "job": job, "who": _who(kept[0])} if kept else {}
    return [
        replace(
            s,
            kind=SignalKind.GPU_SLOW,
            entity=Entity(s.entity.cluster, node=node),
            attributes=said | ({"percent": s.attributes["percent"]} if "percent" in s.attributes else {}),
        )
        for s in kept
    ]


def _who(s: Sighting) -> str:
    rank, percent = s.number("slow_rank"), s.number("percent")
    who = f"its rank {rank}" if rank is not None else "ranks there" if s.text("slow_ranks") else "this node"
    return f"{who} as slow" + (f", at {percent} % of its peers' pace" if percent is not None else "")
