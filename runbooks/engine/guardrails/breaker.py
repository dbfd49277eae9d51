"""The circuit breaker: stops all destructive steps of a cluster until an approver resets it.

It trips when acting does not help (run after run fails), or when so much is broken at once that a sensor or a change is the
likelier cause: cordoning every suspect would then cordon the cluster. Runs in shadow mode only report what would have tripped it.

Mass faults are counted from current faults. One that was old when it was first read, such as a log shipped again, says nothing
about now: it needs an approval, and counts once it has one. A current fault counts even if its run waits for an approval: a
sensor that is wrong about many nodes is wrong about the next one too.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from math import ceil

from runbooks.engine.guardrails.evidence import is_old
from runbooks.engine.guardrails.run_counts import RunCounts
from streams.config.settings import Breaker, ResponderSettings
from streams.inventory.cluster_view import ClusterView
from streams.model.control import Control, Trip
from streams.model.incident import Incident
from streams.model.kinds import IncidentFamily
from streams.model.message import some
from streams.model.node_notice import deadline_in
from streams.model.run import Run

SHOWN = 5
"""Names that the reason of a trip lists."""


def repeated_failures(control: Control, run_counts: RunCounts, limits: Breaker, now: datetime) -> Trip | None:
    """The trip that is due because runs fail, or None. Nothing from before the last reset counts."""
    if limits.failures == 0:
        return None
    failed = run_counts.failures(_since(control, now, limits.failures_window_s))
    if len(failed) < limits.failures:
        return None
    return Trip(
        "failures",
        now,
        f"{len(failed)} runs that had started to act failed within {limits.failures_window_s:.0f} s, limit {limits.failures}: "
        + some(failed, SHOWN),
    )


def mass_faults(
    control: Control,
    run_counts: RunCounts,
    runs: Mapping[str, Run],
    incidents: Mapping[str, Incident],
    view: ClusterView,
    policy: ResponderSettings,
    now: datetime,
    *,
    shadow: bool,
) -> Trip | None:
    """The trip that is due because too many nodes are faulty at once, or None. `shadow` counts runs in shadow mode instead."""
    limits = policy.breaker
    if limits.mass_min_nodes == 0:
        return None
    enough = max(limits.mass_min_nodes, ceil(limits.mass_share * len(view.nodes)))
    if run_counts.most_wanted(shadow=shadow) < enough:
        # Not even all runs of any time want to act on so many: no need to ask each of them at every iteration.
        return None
    since = _since(control, now, limits.mass_window_s)
    nodes: set[str] = set()
    for run_id, wanted in run_counts.wanting(shadow=shadow, since=since):
        run = runs.get(run_id)
        incident = incidents.get(run.incident) if run is not None else None
        if run is None or incident is None or incident.state.is_over:
            continue
        if incident.family == IncidentFamily.PLANNED_WORK or deadline_in(incident.facts) is not None:
            continue  # somebody asked for it, or a cloud announced it: that many nodes are no sign of a sensor gone wrong
        # A responder that was down plans old incidents all at once, so the time they were opened counts.
        if incident.opened_at > since and (may_act(run) or not is_old(incident, view, policy.freshness_s)):
            nodes |= wanted
    if len(nodes) < enough:
        return None
    return Trip(
        "mass faults",
        now,
        f"incidents of the last {limits.mass_window_s:.0f} s want to act on {len(nodes)} of {len(view.nodes)} nodes, "
        f"limit {enough} (mass_share {limits.mass_share:g}, mass_min_nodes {limits.mass_min_nodes}): "
        + some(sorted(nodes), SHOWN),
    )


def may_act(run: Run) -> bool:
    """Whether a run was cleared to act: an approval was given, or the limits have admitted it."""
    return run.admitted_at is not None or any(approval.approved for approval in run.approvals)


def _since(control: Control, now: datetime, window_s: float) -> datetime:
    start = now - timedelta(seconds=window_s)
    return max(start, control.reset_at) if control.reset_at is not None else start
