"""Ranks that others wait for and that go on with something of their own: an evaluation, videos, files. No node is at fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from streams.correlate.job_rules.culprit import HangFinding
from streams.correlate.job_rules.rank_reports import Episode
from streams.correlate.policy.config import Config
from streams.correlate.state.placement import Placement
from streams.model.incident import Certainty

RULE = "busy in its own code"
_LEAST = 3


def cleared_by_work(
    finding: HangFinding, episode: Episode, placements: Sequence[Placement], config: Config
) -> HangFinding:
    """The finding with the program in the node's place, where every pod of the suspected ranks went on with a count of its own.

    Its other ranks wait, so it is the suspected one that counts on: at least three times, and past the middle of the wait, for
    a process may log something before it gets stuck, too.
    """
    middle = episode.start + (episode.reported_at - episode.start) / 2
    suspected = set(finding.ranks) if finding.node is not None else set()
    theirs = [p for p in placements if not suspected.isdisjoint(p.ranks)]
    if not theirs or {p.node for p in theirs} != {finding.node}:
        return finding
    for placement in theirs:
        counts = [at for at in placement.busy if episode.start + config.together < at <= episode.reported_at]
        if len(counts) < _LEAST or max(counts) < middle:
            return finding
    why = f"{finding.why}; but they log work of their own all the while, so their program keeps them and no node does"
    return replace(
        finding, node=None, certainty=Certainty.LIKELY, rule=RULE, why=why, suspects=(), mismatch=True
    )
