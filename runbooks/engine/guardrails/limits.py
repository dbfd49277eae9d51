"""Guardrails on how much is acted on at once and per time window, and how much of each limit is in use.

Steps that return something to service are never counted.

Above a limit a step is held, except for a decisive fault with a job that stands still: then a person is asked, because what waits
in silence costs all of the job's GPUs. A limit of 0 is never asked about.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil

from runbooks.engine.approvals import BLAST_RADIUS, WINDOW
from runbooks.engine.guardrails.context import GuardContext, Ruling, ask, hold
from runbooks.engine.guardrails.cordoned_nodes import admitted_at, job_targets
from runbooks.engine.guardrails.run_counts import RunCounts
from runbooks.engine.job_condition import JobCondition, condition_of
from streams.config.settings import BlastRadius, Cap, ResponderSettings
from streams.inventory.cluster_view import ClusterView, Place
from streams.model.clock import rfc3339, to_the_second
from streams.model.incident import Certainty
from streams.model.message import some
from streams.model.run import Run

MAX_NAMES = 6
"""Nodes named for each limit in use."""


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
    cordoned = context.cordoned - wanted
    limit = context.policy.blast_radius
    most = min(limit.max_nodes, share_of(limit.max_share, len(context.view.nodes)))
    if not wanted or len(cordoned) + len(wanted) <= most:
        return None
    return _above(
        context,
        BLAST_RADIUS,
        most,
        f"{len(cordoned)} of {len(context.view.nodes)} nodes are cordoned by Faultline, limit {most} "
        f"(max_nodes {limit.max_nodes}, max_share {limit.max_share:g})",
        "clears when a node is returned to service, or raise responder.blast_radius",
    )


def _above(context: GuardContext, rule: str, most: int, reason: str, clears: str) -> Ruling:
    """The objection above a limit of `most`: it asks where a job stands still by a decisive fault, and holds otherwise."""
    standing = sorted(
        str(job)
        for job in context.incident.jobs
        if condition_of(job.key, context.view) is JobCondition.STANDS
    )
    if not standing or most == 0 or context.incident.certainty is not Certainty.DECISIVE:
        return hold(rule, reason, clears)
    gpus = context.incident.impact.gpus
    idle = f" ({gpus} GPUs)" if gpus else ""
    return ask(
        rule,
        f"{reason}, and {some(standing, 3)} waits for it{idle}",
        f"clears when approved, or {clears.removeprefix('clears ')}",
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
            cordoned = (context.cordoned - wanted) & members
            if over := _over(context, cap, place, value, cordoned, wanted & members, members):
                return over
    return _blast_radius_of_jobs(context)


def _blast_radius_of_jobs(context: GuardContext) -> Ruling | None:
    cap = context.policy.blast_radius.per_job
    if not _limits(cap):
        return None
    for job in sorted({ref.key for ref in context.incident.jobs} | job_targets(context.run)):
        placed = context.view.nodes_of(job)
        others = context.cordoned - context.nodes
        cordoned = (others & placed) | context.counts.cordoned_for(job, others, shadow=context.shadow)
        members = placed | cordoned | context.nodes
        if over := _over(context, cap, "job", job, cordoned, context.nodes, members):
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
        planned.destructive
        and not context.run.step(planned.id).carried_from
        and admitted_at(context.run, context.run.step(planned.id)) is None
        for planned in context.run.plan.steps
    )
    if started + reserved + wanted <= limit.max_per_window:
        return None
    numbers = (
        f"{started + reserved} destructive steps in {limit.window_s:.0f} s, this run adds {wanted}, "
        f"limit {limit.max_per_window}"
    )
    if wanted > limit.max_per_window:
        return ask(WINDOW, numbers, "clears when approved")
    when = f"first at {to_the_second(first + length)}" if first else "once the admitted steps have started"
    return _above(context, WINDOW, limit.max_per_window, numbers, f"clears with time, {when}")


def one_run_per_target(context: GuardContext) -> Ruling | None:
    """Two runs must not act on the same node or job at once; the later one waits, and then relies on what the first has done."""
    wanted = {s.target.key: s.target for s in context.run.plan.steps if s.destructive and s.target}
    rival = context.counts.rival(context.run, wanted)
    if rival is None:
        return None
    return hold(
        "one run per target", f"{rival[0]} acts on {wanted[rival[1]]}", "clears when that run is done with it"
    )


def _over(
    context: GuardContext,
    cap: Cap,
    kind: str,
    name: str,
    cordoned: Collection[str],
    wanted: Collection[str],
    members: Collection[str],
) -> Ruling | None:
    """The objection when `cordoned` and `wanted` nodes together are more than `cap` allows of all `members`."""
    most = allowed(cap, len(members))
    if most is None or len(cordoned) + len(wanted) <= most:
        return None
    set_to = ", ".join(
        f"{name} {value:g}"
        for name, value in (("max_nodes", cap.max_nodes), ("max_share", cap.max_share))
        if value is not None
    )
    return _above(
        context,
        BLAST_RADIUS,
        most,
        f"{len(cordoned)} of {len(members)} nodes of {kind} {name} are cordoned by Faultline, this run adds {len(wanted)}, "
        f"limit {most} ({set_to})",
        f"clears when a node is returned to service, or raise responder.blast_radius.per_{kind}",
    )


def _limits(cap: Cap) -> bool:
    return cap.max_nodes is not None or cap.max_share is not None


def share_of(share: float, of: int) -> int:
    """How many nodes a share allows, rounded up: at least one, unless it is 0."""
    # 0.1 * 30 is a hair more than 3.
    return max(1, ceil(round(share * of, 6))) if share > 0 else 0


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
    cordoned = run_counts.cordoned(view, shadow=False, now=now, window_s=limit.window_s)
    length = timedelta(seconds=limit.window_s)
    started, reserved, first = run_counts.spent(shadow=False, since=now - length)
    return (
        LimitUsage(
            "nodes closed",
            len(cordoned),
            min(limit.max_nodes, share_of(limit.max_share, len(view.nodes))),
            "responder.blast_radius.max_nodes, max_share",
            some(sorted(cordoned), MAX_NAMES),
        ),
        LimitUsage(
            f"destructive steps in {limit.window_s:.0f} s",
            started + reserved,
            limit.max_per_window,
            "responder.blast_radius.max_per_window",
            f"the first expires at {rfc3339(first + length)}" if first else "",
        ),
        *_places(view, cordoned, limit),
    )


def _places(view: ClusterView, cordoned: frozenset[str], limit: BlastRadius) -> Iterator[LimitUsage]:
    for place, cap in caps(limit).items():
        for value, facts in sorted(view.nodes_by(place).items(), key=lambda entry: entry[0] or ""):
            used = cordoned & {fact.name for fact in facts}
            most = allowed(cap, len(facts))
            if value is not None and most is not None and used:
                yield LimitUsage(
                    f"nodes closed in {place} {value}",
                    len(used),
                    most,
                    f"responder.blast_radius.per_{place}",
                    some(sorted(used), MAX_NAMES),
                )
