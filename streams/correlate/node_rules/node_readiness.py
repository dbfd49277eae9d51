"""A node that is not ready, or dead, as the API server, its own conditions and its last lines tell it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.policy.config import Config
from streams.correlate.policy.families import families
from streams.correlate.sightings import Sighting
from streams.correlate.state.incarnations import FiringInterval, Incarnations, firing_intervals
from streams.correlate.state.place import Place, PlaceKind
from streams.correlate.state.rows import NodeRow, in_maintenance
from streams.model.entity import Entity
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily, SignalKind
from streams.model.signal import Attribute


def down_intervals(seen: Iterable[Sighting]) -> list[FiringInterval]:
    """Each time that the node was not ready or died, blips and all."""
    return firing_intervals(s for s in seen if s.kind == SignalKind.NODE_NOT_READY or is_death(s))


def is_death(s: Sighting) -> bool:
    """A sign that the whole node stopped: a kernel panic, a reset by its watchdog, an alert that it is down."""
    if s.kind == SignalKind.NODE_NOT_READY or not s.kind.startswith("node."):
        return False
    rule = families().rule(s)
    return rule is not None and rule.family == "node_down" and rule.role == "cause"


def node_down(
    root: Entity, row: NodeRow, seen: Iterable[Sighting], incarnations: Incarnations, config: Config
) -> list[Hypothesis]:
    """A hypothesis for each time the node was not ready for long enough, or died."""
    closed = row.fact is not None and row.fact.maintenance
    found = []
    lasting = [
        i for i in down_intervals(seen) if i.end is None or i.end - i.start >= config.node_settle
    ]  # a kubelet that restarts is NotReady for less
    for session in incarnations.sessions(root, "node", lasting):
        back = session.cleared_at
        if back is not None and in_maintenance(row, session.start, back):
            continue  # It was taken down and came back while people worked on it.
        maintenance = closed or in_maintenance(row, session.start, session.last)
        gone = [s for s in session.sightings if s.kind == SignalKind.NODE_NOT_READY]
        deaths = [s for s in session.sightings if s.kind != SignalKind.NODE_NOT_READY]
        reason = next((s.text("reason") for s in gone if s.text("reason")), "")
        state = "kubelet no longer answers" if "Unknown" in reason else "the API server shows it NotReady"
        why = f"{root.node}: {state}, and nothing else explains it"
        if deaths:
            signs = ", ".join(dict.fromkeys(families().says(s) for s in deaths))
            why = f"{root.node}: {signs}{f', and {state}' if gone else '; but the API server still shows it ready'}"
        facts: dict[str, Attribute] = {
            "node_not_ready": bool(gone) and session.cleared_at is None,
            "maintenance": maintenance,
        }
        if any(s.text("subtype") == "kernel_panic" for s in deaths):
            facts["panic"] = True
        found.append(
            Hypothesis(
                place=Place(PlaceKind.NODE, root.node or ""),
                root=root,
                family=IncidentFamily.NODE_DOWN,
                **session.times(),
                certainty=_certainty(bool(gone), deaths),
                ready_at=min(s.seen_at for s in session.sightings) + config.node_settle,
                rule="node gone",
                why=why,
                causes=session.sightings,
                facts=facts,
            )
        )
    return found


def _certainty(gone: bool, deaths: Iterable[Sighting]) -> Certainty:
    """A kubelet may only be restarting, and an old panic may be read again; both at once are a dead node."""
    panicked = any(s.kind == SignalKind.NODE_KERNEL for s in deaths)
    if gone:
        return Certainty.DECISIVE if panicked else Certainty.LIKELY
    return Certainty.WEAK


def taken_away(found: Hypothesis, left_at: datetime) -> Hypothesis:
    """A node that was down, and was deleted with nobody on it: there is nothing left to bring back."""
    if found.family != IncidentFamily.NODE_DOWN or found.cleared_at is not None or left_at < found.last_at:
        return found
    return replace(found, cleared_at=left_at, why=f"{found.why}. It was taken out of the cluster")
