"""Drills: a synthetic fault that goes through the whole pipeline, and must never lead to an effect.

What makes it harmless is one name. Hosts that begin with `PREFIX` are reserved for drills; every plan for an incident that names
one is in shadow mode, whatever the runbook and the settings say (`runbooks/engine/run/plan.py`).
"""

from __future__ import annotations

from streams.model.incident import Incident

PREFIX = "faultline-drill-"


def is_drill_host(name: str | None) -> bool:
    """Whether the name of a host is reserved for drills."""
    return name is not None and name.startswith(PREFIX)


def is_drill(incident: Incident) -> bool:
    """Whether an incident names a drill's host anywhere: as its root, among its nodes, or as what its nodes have in common."""
    root = incident.root
    part = root.part.name if root.part is not None else None
    return any(map(is_drill_host, (root.node, part, *incident.nodes))) or part == PREFIX.rstrip("-")
