"""Planned work of our own on a node: what was asked for last counts, and what the node does meanwhile is no fault of it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.sightings import Sighting, order
from streams.correlate.state.node_work import Expectation
from streams.correlate.state.rows import NodeRow, of_kind
from streams.model.kinds import IncidentFamily, SignalKind
from streams.model.planned_work import (
    APPROVED,
    BY,
    OVER,
    OVER_BY,
    PARAMETERS,
    REQUEST,
    RUNBOOK,
    SHOWN,
    UNTIL,
    WHY,
    work_of,
)
from streams.model.signal import Attribute

_FACTS = (REQUEST, BY, WHY, UNTIL, APPROVED, OVER, OVER_BY, RUNBOOK, PARAMETERS, SHOWN)


def work_facts(causes: Iterable[Sighting]) -> dict[str, Attribute]:
    """The facts of an incident of planned work: those of the latest word on it."""
    said = [s for s in causes if s.kind == SignalKind.NODE_PLANNED_WORK and s.firing]
    latest = max(said, key=order, default=None)
    if latest is None or work_of(latest.attributes) is None:
        return {}
    return {name: latest.attributes[name] for name in _FACTS if name in latest.attributes}


def work_words(facts: dict[str, Attribute]) -> str:
    """The work in a sentence."""
    work = work_of(facts)
    if work is None:
        return "somebody works on it"
    why = f": {work.reason}" if work.reason else ""
    if work.runbook:
        return f"{work.by} started runbook {work.runbook} by hand{why}"
    if work.over:
        return f"{work.by} worked on it{why}; {work.over_by or work.by} said that it is done"
    return f"{work.by} works on it until {work.until:%H:%M} UTC on {work.until:%d %b}{why}"


def planned_at(row: NodeRow | None, closed: Iterable[datetime]) -> Expectation | None:
    """Why a fault of a node is left to whoever works there by a request of our own; None where nobody does.

    `closed` are the times at which such work ended, by its runs or by people.
    """
    if row is None:
        return None
    said = [s for s in of_kind(row.seen, SignalKind.NODE_PLANNED_WORK) if s.firing]
    latest = max(said, key=order, default=None)
    if latest is None or any(at >= latest.at for at in closed):
        return None
    work = work_of(latest.attributes)
    if work is None or work.over:
        return None
    return Expectation(f"{work.by} works on it by plan", None)


def is_planned_work(h: Hypothesis) -> bool:
    """Whether it is work that we planned ourselves."""
    return h.family == IncidentFamily.PLANNED_WORK
