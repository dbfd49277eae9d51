"""How much may be under action at once, and how much may be begun in a while. What gives something back is never counted."""

from __future__ import annotations

from datetime import timedelta
from math import floor

from runbooks.engine.guardrails.closed_nodes import admitted_at
from runbooks.engine.guardrails.context import GuardContext, Ruling, RulingKind
from streams.config.settings import Cap
from streams.inventory.cluster_view import Place
from streams.model.clock import to_the_second

PLACES: tuple[Place, ...] = ("pool", "rack", "leaf")


def blast_radius(context: GuardContext) -> Ruling | None:
    """Not more nodes closed by Faultline at once than the installation allows, absolute and as a share."""
    wanted = context.nodes
    closed = context.closed - wanted
    limit = context.policy.blast_radius
    allowed = min(limit.max_nodes, share_of(limit.max_share, len(context.view.nodes)))
    if not wanted or len(closed) + len(wanted) <= allowed:
        return None
    return Ruling(
        RulingKind.HOLD,
        "blast radius",
        f"{len(closed)} of {len(context.view.nodes)} nodes are closed by Faultline, {allowed} are allowed "
        f"(max_nodes {limit.max_nodes}, max_share {limit.max_share:g})",
        "a node given back or a higher responder.blast_radius lifts it",
    )


def blast_radius_of_places(context: GuardContext) -> Ruling | None:
    """The same for each pool, rack, leaf and job, where the installation limits those."""
    limit = context.policy.blast_radius
    wanted = context.nodes
    caps = {"pool": limit.per_pool, "rack": limit.per_rack, "leaf": limit.per_leaf}
    for place in PLACES:
        cap = caps[place]
        facts = [context.view.nodes[name] for name in wanted if name in context.view.nodes]
        for value in sorted(
            {v for fact in facts if (v := getattr(fact, place)) is not None} if _limits(cap) else ()
        ):
            members = {fact.name for fact in context.view.nodes_by(place)[value]}
            closed = (context.closed - wanted) & members
            over = _over(
                context,
                cap,
                f"{place} {value}",
                len(closed),
                len(wanted & members),
                len(members),
                f"per_{place}",
            )
            if over is not None:
                return over
    return _blast_radius_of_jobs(context)


def _blast_radius_of_jobs(context: GuardContext) -> Ruling | None:
    cap = context.policy.blast_radius.per_job
    if not _limits(cap):
        return None
    for job in sorted({ref.key for ref in context.incident.jobs} | _jobs_of(context)):
        placed = context.view.nodes_of(job)
        others = context.closed - context.nodes
        closed = (others & placed) | context.numbers.closed_for(job, others, shadow=context.shadow)
        members = placed | closed | context.nodes
        over = _over(context, cap, f"job {job}", len(closed), len(context.nodes), len(members), "per_job")
        if over is not None:
            return over
    return None


def window(context: GuardContext) -> Ruling | None:
    """Not more destructive steps per window than the installation allows.

    A run is counted whole when it is let in, and a step that was let in counts until it has begun, however late that is: so no
    stretch of time of that length sees more of them begin.
    """
    limit = context.policy.blast_radius
    length = timedelta(seconds=limit.window_s)
    begun, reserved, first = context.numbers.spent(shadow=context.shadow, since=context.now - length)
    wanted = sum(
        planned.destructive and admitted_at(context.run, context.run.step(planned.id)) is None
        for planned in context.run.plan.steps
    )
    if begun + reserved + wanted <= limit.max_per_window:
        return None
    numbers = (
        f"{begun + reserved} destructive steps in {limit.window_s:.0f} s, this run adds {wanted}, "
        f"{limit.max_per_window} are allowed"
    )
    if wanted > limit.max_per_window:
        return Ruling(RulingKind.ASK, "window", numbers, "an approval lifts it")
    when = f"first at {to_the_second(first + length)}" if first else "once those that were let in have begun"
    return Ruling(RulingKind.HOLD, "window", numbers, f"time lifts it, {when}")


def one_run_per_target(context: GuardContext) -> Ruling | None:
    """Two runs must not pull at one node or job; the later one waits and then looks again."""
    wanted = {s.target.key: s.target for s in context.run.plan.steps if s.destructive and s.target}
    rival = context.numbers.rival(context.run, wanted)
    if rival is None:
        return None
    return Ruling(
        RulingKind.HOLD, "one run per target", f"{rival[0]} acts on {wanted[rival[1]]}", "its end lifts it"
    )


def _over(
    context: GuardContext, cap: Cap, what: str, closed: int, wanted: int, members: int, setting: str
) -> Ruling | None:
    most = [
        n
        for n in (cap.max_nodes, None if cap.max_share is None else share_of(cap.max_share, members))
        if n is not None
    ]
    if closed + wanted <= min(most):
        return None
    set_to = ", ".join(
        f"{name} {value:g}"
        for name, value in (("max_nodes", cap.max_nodes), ("max_share", cap.max_share))
        if value is not None
    )
    return Ruling(
        RulingKind.HOLD,
        "blast radius",
        f"{closed} of {members} nodes of {what} are closed by Faultline, this run adds {wanted}, "
        f"{min(most)} are allowed ({set_to})",
        f"a node given back or a higher responder.blast_radius.{setting} lifts it",
    )


def _limits(cap: Cap) -> bool:
    return cap.max_nodes is not None or cap.max_share is not None


def share_of(share: float, of: int) -> int:
    """How many nodes a share allows: one always, unless it is 0."""
    return max(1, floor(share * of)) if share > 0 else 0


def _jobs_of(context: GuardContext) -> set[str]:
    return {
        s.target.key for s in context.run.plan.steps if s.destructive and s.target and s.target.kind != "Node"
    }
