"""Guardrails on how much is acted on at once and per time window. Steps that return something to service are never counted."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from math import floor

from runbooks.engine.guardrails.closed_nodes import admitted_at, job_targets
from runbooks.engine.guardrails.context import GuardContext, Ruling, ask, hold
from streams.config.settings import BlastRadius, Cap
from streams.inventory.cluster_view import Place
from streams.model.clock import to_the_second


def caps(limit: BlastRadius) -> Mapping[Place, Cap]:
    """The limits for each pool, rack and leaf."""
    return {"pool": limit.per_pool, "rack": limit.per_rack, "leaf": limit.per_leaf}


def allowed(cap: Cap, members: int) -> int | None:
    """How many of so many nodes may be cordoned; None where the settings do not limit it."""
    share = share_of(cap.max_share, members) if cap.max_share is not None else None
    return min((most for most in (cap.max_nodes, share) if most is not None), default=None)


def blast_radius(context: GuardContext) -> Ruling | None:
    """A limit on the nodes that Faultline holds cordoned at once, as a number and as a share."""
    wanted = context.nodes
    closed = context.cordoned - wanted
    limit = context.policy.blast_radius
    allowed = min(limit.max_nodes, share_of(limit.max_share, len(context.view.nodes)))
    if not wanted or len(closed) + len(wanted) <= allowed:
        return None
    return hold(
        "blast radius",
        f"{len(closed)} of {len(context.view.nodes)} nodes are cordoned by Faultline, limit {allowed} "
        f"(max_nodes {limit.max_nodes}, max_share {limit.max_share:g})",
        "clears when a node is returned to service, or raise responder.blast_radius",
    )


def blast_radius_of_places(context: GuardContext) -> Ruling | None:
    """The same for each pool, rack, leaf and job, where the settings limit those."""
    wanted = context.nodes
    facts = [context.view.nodes[name] for name in wanted if name in context.view.nodes]
    for place, cap in caps(context.policy.blast_radius).items():
        if not _limits(cap):
            continue
        for value in sorted({v for fact in facts if (v := getattr(fact, place)) is not None}):
            members = {fact.name for fact in context.view.nodes_by(place)[value]}
            closed = (context.cordoned - wanted) & members
            if over := _over(cap, place, value, closed, wanted & members, members):
                return over
    return _blast_radius_of_jobs(context)


def _blast_radius_of_jobs(context: GuardContext) -> Ruling | None:
    cap = context.policy.blast_radius.per_job
    if not _limits(cap):
        return None
    for job in sorted({ref.key for ref in context.incident.jobs} | job_targets(context.run)):
        placed = context.view.nodes_of(job)
        others = context.cordoned - context.nodes
        closed = (others & placed) | context.counts.cordoned_for(job, others, shadow=context.shadow)
        if over := _over(cap, "job", job, closed, context.nodes, placed | closed | context.nodes):
            return over
    return None


def window(context: GuardContext) -> Ruling | None:
    """A limit on the destructive steps started per time window.

    A run counts as a whole when it is admitted, and an admitted step counts until it has started, however late that is: so no
    window of that length ever sees more of them start.
    """
    limit = context.policy.blast_radius
    length = timedelta(seconds=limit.window_s)
    started, reserved, first = context.counts.spent(shadow=context.shadow, since=context.now - length)
    wanted = sum(
        planned.destructive and admitted_at(context.run, context.run.step(planned.id)) is None
        for planned in context.run.plan.steps
    )
    if started + reserved + wanted <= limit.max_per_window:
        return None
    numbers = (
        f"{started + reserved} destructive steps in {limit.window_s:.0f} s, this run adds {wanted}, "
        f"limit {limit.max_per_window}"
    )
    if wanted > limit.max_per_window:
        return ask("window", numbers, "clears when approved")
    when = f"first at {to_the_second(first + length)}" if first else "once the admitted steps have started"
    return hold("window", numbers, f"clears with time, {when}")


def one_run_per_target(context: GuardContext) -> Ruling | None:
    """Two runs must not act on the same node or job at once; the later one waits."""
    wanted = {s.target.key: s.target for s in context.run.plan.steps if s.destructive and s.target}
    rival = context.counts.rival(context.run, wanted)
    if rival is None:
        return None
    return hold("one run per target", f"{rival[0]} acts on {wanted[rival[1]]}", "clears when that run ends")


def _over(
    cap: Cap, kind: str, name: str, closed: Collection[str], wanted: Collection[str], members: Collection[str]
) -> Ruling | None:
    """The objection when `closed` and `wanted` nodes together are more than `cap` allows of all `members`."""
    most = allowed(cap, len(members))
    if most is None or len(closed) + len(wanted) <= most:
        return None
    set_to = ", ".join(
        f"{name} {value:g}"
        for name, value in (("max_nodes", cap.max_nodes), ("max_share", cap.max_share))
        if value is not None
    )
    return hold(
        "blast radius",
        f"{len(closed)} of {len(members)} nodes of {kind} {name} are cordoned by Faultline, this run adds {len(wanted)}, "
        f"limit {most} ({set_to})",
        f"clears when a node is returned to service, or raise responder.blast_radius.per_{kind}",
    )


def _limits(cap: Cap) -> bool:
    return cap.max_nodes is not None or cap.max_share is not None


def share_of(share: float, of: int) -> int:
    """How many nodes a share allows: at least one, unless it is 0."""
    return max(1, floor(share * of)) if share > 0 else 0
