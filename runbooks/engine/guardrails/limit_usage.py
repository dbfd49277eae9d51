"""How much of each limit is in use, as `faultline guard status` shows it. Pure; counted as the guardrails count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from runbooks.engine.guardrails.limits import allowed, caps, share_of
from runbooks.engine.guardrails.run_counts import RunCounts
from streams.config.settings import BlastRadius, ResponderSettings
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
    started, reserved, first = run_counts.spent(shadow=False, since=now - length)
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
            started + reserved,
            limit.max_per_window,
            "responder.blast_radius.max_per_window",
            f"the first expires at {rfc3339(first + length)}" if first else "",
        ),
        *_places(view, closed, limit),
    )


def _places(view: ClusterView, closed: frozenset[str], limit: BlastRadius) -> Iterator[LimitUsage]:
    for place, cap in caps(limit).items():
        for value, facts in sorted(view.nodes_by(place).items(), key=lambda entry: entry[0] or ""):
            used = closed & {fact.name for fact in facts}
            most = allowed(cap, len(facts))
            if value is not None and most is not None and used:
                yield LimitUsage(
                    f"nodes closed in {place} {value}",
                    len(used),
                    most,
                    f"responder.blast_radius.per_{place}",
                    some(sorted(used), MAX_NAMES),
                )
