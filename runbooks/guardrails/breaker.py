"""When all destructive steps of a cluster stop by themselves until a person says go on.

Either acting does not help (run after run fails), or so much is broken at once that a sensor or a change is the likelier
cause: then closing what it accuses would close the cluster. Runs in shadow trip nothing that lasts; they only say what would.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from math import ceil

from runbooks.guardrails.census import Census
from runbooks.view import ClusterView
from streams.model.control import Control, Trip
from streams.model.incident import Incident
from streams.model.run import Run
from streams.model.settings import Breaker

SHOWN = 5
"""Names that a trip's reason gives."""


def trip(
    control: Control,
    census: Census,
    runs: Mapping[str, Run],
    incidents: Mapping[str, Incident],
    view: ClusterView,
    policy: Breaker,
    now: datetime,
    *,
    shadow: bool = False,
) -> Trip | None:
    """The trip that is due now, None when none is. What came before the last reset does not count."""
    return (None if shadow else _failures(control, census, policy, now)) or _mass_faults(
        control, census, runs, incidents, view, policy, now, shadow
    )


def _failures(control: Control, census: Census, policy: Breaker, now: datetime) -> Trip | None:
    if policy.failures == 0:
        return None
    failed = census.failures(_since(control, now, policy.failures_window_s))
    if len(failed) < policy.failures:
        return None
    return Trip(
        "failures",
        now,
        f"{len(failed)} runs that had begun to act failed within {policy.failures_window_s:.0f} s, {policy.failures} trip it: "
        + _some(failed),
    )


def _mass_faults(
    control: Control,
    census: Census,
    runs: Mapping[str, Run],
    incidents: Mapping[str, Incident],
    view: ClusterView,
    policy: Breaker,
    now: datetime,
    shadow: bool,
) -> Trip | None:
    if policy.mass_min_nodes == 0:
        return None
    since = _since(control, now, policy.mass_window_s)
    nodes: set[str] = set()
    for run_id, wanted in census.wanting(shadow=shadow, since=since):
        incident = incidents.get(runs[run_id].incident) if run_id in runs else None
        # A responder that was away plans old incidents all at once: when they were opened is what counts.
        if incident is not None and incident.opened_at > since and not incident.state.is_over:
            nodes |= wanted
    enough = max(policy.mass_min_nodes, ceil(policy.mass_share * len(view.nodes)))
    if len(nodes) < enough:
        return None
    return Trip(
        "mass faults",
        now,
        f"incidents of the last {policy.mass_window_s:.0f} s want to act on {len(nodes)} of {len(view.nodes)} nodes, {enough} "
        f"trip it (mass_share {policy.mass_share:g}, mass_min_nodes {policy.mass_min_nodes}): {_some(sorted(nodes))}",
    )


def _since(control: Control, now: datetime, window_s: float) -> datetime:
    start = now - timedelta(seconds=window_s)
    return max(start, control.reset_at) if control.reset_at is not None else start


def _some(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
