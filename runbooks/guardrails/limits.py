"""How much may be under action at once, and how much may be begun in a while."""

from __future__ import annotations

from datetime import timedelta
from math import floor

from runbooks.guardrails.case import Case, Kind, Ruling
from runbooks.guardrails.closed import closed_nodes, is_shadow
from streams.model.clock import rfc3339
from streams.model.run import Run


def one_run_per_target(case: Case) -> Ruling | None:
    """Two runs must not pull at one node or job; the later one waits and then looks again."""
    wanted = {s.target.key: s.target for s in case.run.plan.steps if s.destructive and s.target}
    for other in case.others:
        if other.state.is_over or other.admitted_at is None or is_shadow(other) is not case.shadow:
            continue
        for step in other.plan.steps:
            if step.destructive and step.target and step.target.key in wanted:
                return Ruling(
                    Kind.HOLD,
                    "one run per target",
                    f"{other.id} ({other.plan.runbook}) acts on {step.target}",
                    "its end lifts it",
                )
    return None


def blast_radius(case: Case) -> Ruling | None:
    """Not more nodes closed by Faultline at once than the installation allows, absolute and as a share."""
    wanted = {
        s.target.name for s in case.run.plan.steps if s.action == "cordon_node" and s.target is not None
    }
    closed = closed_nodes(case) - wanted
    limit = case.policy.blast_radius
    share = max(1, floor(limit.max_share * len(case.view.nodes))) if limit.max_share > 0 else 0
    allowed = min(limit.max_nodes, share)
    if not wanted or len(closed) + len(wanted) <= allowed:
        return None
    return Ruling(
        Kind.HOLD,
        "blast radius",
        f"{len(closed)} of {len(case.view.nodes)} nodes are closed by Faultline, {allowed} are allowed "
        f"(max_nodes {limit.max_nodes}, max_share {limit.max_share:g})",
        "a node given back or a higher responder.blast_radius lifts it",
    )


def window(case: Case) -> Ruling | None:
    """Not more destructive steps per window than the installation allows. A run is counted whole when it is admitted."""
    limit = case.policy.blast_radius
    since = case.now - timedelta(seconds=limit.window_s)
    begun = [
        (other.admitted_at, _destructive(other))
        for other in case.others
        if other.admitted_at is not None and other.admitted_at > since and is_shadow(other) is case.shadow
    ]
    spent, wanted = sum(n for _, n in begun), _destructive(case.run)
    if spent + wanted <= limit.max_per_window:
        return None
    numbers = f"{spent} destructive steps in {limit.window_s:.0f} s, this run adds {wanted}, {limit.max_per_window} are allowed"
    if wanted > limit.max_per_window:
        return Ruling(Kind.ASK, "window", numbers, "an approval lifts it")
    free = min(at for at, _ in begun) + timedelta(seconds=limit.window_s)
    return Ruling(Kind.HOLD, "window", numbers, f"time lifts it, first at {rfc3339(free)}")


def _destructive(run: Run) -> int:
    return sum(step.destructive for step in run.plan.steps)
