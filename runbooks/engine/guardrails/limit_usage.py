"""How much of each limit is in use, as `faultline guard status` shows it. Pure; counted as the guardrails count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from runbooks.engine.guardrails.limits import PLACES, share_of
from runbooks.engine.guardrails.run_counts import RunCounts
from streams.config.settings import BlastRadius, Cap, ResponderSettings
from streams.inventory.cluster_view import ClusterView
from streams.model.clock import rfc3339
from streams.model.message import some
from streams.model.run import Run

MAX_NAMES = 6


@dataclass(frozen=True, slots=True)
class LimitUsage:
    """One limit: `used` of `allowed`, and the setting that it comes from."""

    name: str
    used: int
    allowed: int
    setting: str
    detail: str = ""


def limit_usage(
    view: ClusterView, runs: Iterable[Run], policy: ResponderSettings, now: datetime
) -> tuple[LimitUsage, ...]:
    """The limits of a cluster: cordoned nodes, destructive steps in the window, and the pools, racks and leaves in use."""
    limit, run_counts = policy.blast_radius, RunCounts(runs)
    closed = run_counts.cordoned(view, shadow=False, now=now, window_s=limit.window_s)
    length = timedelta(seconds=limit.window_s)
    begun, reserved, first = run_counts.spent(shadow=False, since=now - length)
    return (
        LimitUsage(
            "nodes closed",
            len(closed),
            min(limit.max_nodes, share_of(limit.max_share, len(view.nodes))),
            "responder.blast_radius.max_nodes, max_share",
            some(sorted(closed), MAX_NAMES),
        ),
        LimitUsage(
            f"destructive steps in {limit.window_s:.0f} s",
            begun + reserved,
            limit.max_per_window,
            "responder.blast_radius.max_per_window",
            f"the first expires at {rfc3339(first + length)}" if first else "",
        ),
        *_places(view, closed, limit),
    )


def _places(view: ClusterView, closed: frozenset[str], limit: BlastRadius) -> Iterator[LimitUsage]:
    caps = {"pool": limit.per_pool, "rack": limit.per_rack, "leaf": limit.per_leaf}
    for place in PLACES:
        cap = caps[place]
        for value, facts in sorted(view.nodes_by(place).items(), key=lambda entry: entry[0] or ""):
            members = {fact.name for fact in facts}
            if (
                value is not None
                and (allowed := _allowed(cap, len(members))) is not None
                and closed & members
            ):
                yield LimitUsage(
                    f"nodes closed in {place} {value}",
                    len(closed & members),
                    allowed,
                    f"responder.blast_radius.per_{place}",
                    some(sorted(closed & members), MAX_NAMES),
                )


def _allowed(cap: Cap, members: int) -> int | None:
    limits = [
        *([cap.max_nodes] if cap.max_nodes is not None else []),
        *([share_of(cap.max_share, members)] if cap.max_share is not None else []),
    ]
    return min(limits, default=None)
