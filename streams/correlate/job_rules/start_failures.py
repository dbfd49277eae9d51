"""Nodes on which a job cannot start: each of its tries finds no usable GPU there, and its pods elsewhere find theirs.

A program or an image that cannot start fails wherever it is put. What fails on one and the same node, try after try, is that
node's: its driver, its device plugin, its GPUs. Nothing more is known of it, so somebody is asked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from streams.correlate.job_rules.applications import Burst
from streams.correlate.job_rules.culprit import HangFinding
from streams.correlate.job_rules.job_evidence import JobEvidence
from streams.correlate.job_rules.pod_failures import PlatformBlocker
from streams.correlate.job_rules.rank_reports import Episode, rank_report
from streams.correlate.policy.config import Config
from streams.correlate.policy.families import families
from streams.correlate.policy.policy import policy
from streams.correlate.sightings import Sighting, order, split_at_gaps
from streams.model.incident import Certainty

START_RULE = "cannot start here"


@dataclass(frozen=True, slots=True)
class StartFailures:
    """A job's failed tries to start on one node, without progress in between."""

    node: str
    tries: int
    lines: tuple[Sighting, ...]
    found: str = "found their GPUs"
    """What the job's pods on other nodes did meanwhile."""

    @property
    def start(self) -> datetime:
        """When the first try failed."""
        return self.lines[0].at

    @property
    def end(self) -> datetime:
        """When the last one did."""
        return self.lines[-1].at

    def covers(self, since: datetime, config: Config) -> bool:
        """Whether what began then is what its other pods do when one of them cannot start."""
        return self.start - config.slack <= since <= self.end + config.restart_settle

    def finding(self) -> HangFinding:
        """The node, as far as tries accuse it."""
        says = ", ".join(list(dict.fromkeys(families().says(s) for s in self.lines))[:2])
        why = f"{self.tries} tries failed on {self.node} ({says}), and its pods on other nodes {self.found}"
        return HangFinding(self.node, Certainty.LIKELY, START_RULE, why, suspects=(self.node,))

    def episode(self) -> Episode:
        """The tries as what its ranks told."""
        seen_at = max(s.seen_at for s in self.lines)
        return Episode(
            self.start, self.start, self.end, seen_at, tuple(rank_report(s, None) for s in self.lines)
        )


def start_failures(evidence: JobEvidence, config: Config) -> list[StartFailures]:
    """The nodes that enough of the job's tries failed on, while it could have started elsewhere."""
    lines = sorted((s for s in evidence.failed if s.firing and _is_of_start(s)), key=order)
    by_node: dict[str, list[Sighting]] = defaultdict(list)
    for s in lines:
        if s.entity.node:
            by_node[s.entity.node].append(s)
    found = []
    for node, mine in sorted(by_node.items()):
        for stretch in _between_progress(mine, evidence.moved):
            tries = len(split_at_gaps(stretch, lambda s: s.at, policy().starts.apart))
            here = StartFailures(node, tries, tuple(stretch))
            if tries >= policy().starts.tries and _elsewhere_well(here, lines, evidence, config):
                found.append(here)
    return found


def stuck_on_node(evidence: JobEvidence, blocker: PlatformBlocker) -> StartFailures | None:
    """The one node on which pods of the job cannot be started, while others that came with them have started elsewhere.

    What is wrong with the platform as a whole, with an image or with a volume, is so wherever a pod is put. So is what strikes
    anybody's pods on another node meanwhile.
    """
    rules = [families().rule(s) for s in blocker.sightings]
    if len(blocker.nodes) != 1 or not all(rule is not None and rule.local for rule in rules):
        return None
    (node,), since = blocker.nodes, (blocker.since or blocker.start) - policy().starts.wave
    stuck = {s.entity.pod.uid for s in blocker.sightings if s.entity.pod is not None}
    if any(uid in evidence.started for uid in stuck if uid is not None):
        return None
    if any(one.node != node and one.since <= blocker.end and one.until >= since for one in evidence.refused):
        return None
    others = [p for p in evidence.placements if p.node != node and p.start >= since]
    if not any(evidence.started.get(p.uid, blocker.end) < blocker.end for p in others):
        return None
    return StartFailures(node, len(blocker.sightings), blocker.sightings, "have started")


def tries_to_start(crash: Burst, evidence: JobEvidence, config: Config) -> list[list[Sighting]]:
    """The tries, one after the other, after which a program ended because it found no usable GPU; none if it ended of more."""
    if crash.speaks_for_itself or crash.is_mute:
        return []
    since, until = crash.start - config.restart_settle, crash.end + config.together
    lines = sorted(
        (s for s in evidence.failed if s.firing and _is_of_start(s) and since <= s.at <= until), key=order
    )
    return split_at_gaps(lines, lambda s: s.at, policy().starts.apart)


def _is_of_start(s: Sighting) -> bool:
    rule = families().rule(s)
    return rule is not None and rule.starts


def _between_progress(lines: Sequence[Sighting], moved: Sequence[datetime]) -> list[list[Sighting]]:
    """Lines without a sign of progress in between: what ran meanwhile had started."""
    groups: list[list[Sighting]] = []
    for s in lines:
        if not groups or any(groups[-1][-1].at < at <= s.at for at in moved):
            groups.append([])
        groups[-1].append(s)
    return groups


def _elsewhere_well(
    here: StartFailures, lines: Sequence[Sighting], evidence: JobEvidence, config: Config
) -> bool:
    """Whether pods of the job stood on other nodes meanwhile, and none of them could not start."""
    since, until = here.start - config.before, here.end + config.before
    others = {p.node for p in evidence.placements if p.overlaps(here.start, here.end)} - {here.node}
    failed = {s.entity.node for s in lines if since <= s.at <= until} - {here.node}
    return bool(others) and not failed
