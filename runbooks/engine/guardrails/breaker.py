"""When all destructive steps of a cluster stop by themselves until a person says go on.

Either acting does not help (run after run fails), or so much is broken at once that a sensor or a change is the likelier
cause: then closing what it accuses would close the cluster. RunIndex in shadow trip nothing that lasts; they only say what would.

What is so much broken at once is what is broken now. Faults that were old when they were first read, such as a log that is
shipped again, tell nothing of that: they are asked about and hold up no fresh one. Each counts once a person has approved it.
A fresh fault counts even where a person is asked first: a sensor that is wrong about many nodes is wrong about the next one too.
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
from streams.model.run import Run

SHOWN = 5
"""Names that a trip's reason gives."""


def trip(
    control: Control,
    run_counts: RunCounts,
    runs: Mapping[str, Run],
    incidents: Mapping[str, Incident],
    view: ClusterView,
    policy: ResponderSettings,
    now: datetime,
    *,
    shadow: bool = False,
) -> Trip | None:
    """The trip that is due now, None when none is. What came before the last reset does not count."""
    return (None if shadow else _failures(control, run_counts, policy.breaker, now)) or _mass_faults(
        control, run_counts, runs, incidents, view, policy, now, shadow
    )


def _failures(control: Control, run_counts: RunCounts, limits: Breaker, now: datetime) -> Trip | None:
    if limits.failures == 0:
        return None
    failed = run_counts.failures(_since(control, now, limits.failures_window_s))
    if len(failed) < limits.failures:
        return None
    return Trip(
        "failures",
        now,
        f"{len(failed)} runs that had begun to act failed within {limits.failures_window_s:.0f} s, {limits.failures} trip it: "
        + _some(failed),
    )


def _mass_faults(
    control: Control,
    run_counts: RunCounts,
    runs: Mapping[str, Run],
    incidents: Mapping[str, Incident],
    view: ClusterView,
    policy: ResponderSettings,
    now: datetime,
    shadow: bool,
) -> Trip | None:
    limits = policy.breaker
    if limits.mass_min_nodes == 0:
        return None
    since = _since(control, now, limits.mass_window_s)
    nodes: set[str] = set()
    for run_id, wanted in run_counts.wanting(shadow=shadow, since=since):
        run = runs.get(run_id)
        incident = incidents.get(run.incident) if run is not None else None
        if run is None or incident is None or incident.state.is_over:
            continue
        # A responder that was away plans old incidents all at once: when they were opened is what counts.
        if incident.opened_at > since and (has_leave(run) or not is_old(incident, view, policy.freshness_s)):
            nodes |= wanted
    enough = max(limits.mass_min_nodes, ceil(limits.mass_share * len(view.nodes)))
    if len(nodes) < enough:
        return None
    return Trip(
        "mass faults",
        now,
        f"incidents of the last {limits.mass_window_s:.0f} s want to act on {len(nodes)} of {len(view.nodes)} nodes, {enough} "
        f"trip it (mass_share {limits.mass_share:g}, mass_min_nodes {limits.mass_min_nodes}): {_some(sorted(nodes))}",
    )


def has_leave(run: Run) -> bool:
    """Whether a run acts whatever stands against it at first: a person has approved it, or the limits have let it in."""
    return run.admitted_at is not None or any(word.approved for word in run.approvals)


def _since(control: Control, now: datetime, window_s: float) -> datetime:
    start = now - timedelta(seconds=window_s)
    return max(start, control.reset_at) if control.reset_at is not None else start


def _some(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
