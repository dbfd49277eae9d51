"""The mark on a node whose power Faultline changes: what is done, for which effect, and on which boot it began. Pure.

It is written before the BMC is asked, so that whoever takes over can tell whether anything may have been sent; and it is where a
drain reads that a dead node is really off. It goes with the cordon.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from connectors.kubernetes.annotations import POWER, annotations_of
from connectors.kubernetes.client import Object


@dataclass(frozen=True, slots=True)
class PowerMark:
    """`boot` is the node's boot id before it, `at` when the BMC was first asked, `off_at` when the power was read as off and
    nothing has switched it on since; empty where it was not. Times are RFC 3339."""

    effect: str
    incident: str
    way: str
    boot: str
    at: str
    off_at: str = ""


def mark_of(node: Object) -> PowerMark | None:
    """The mark on a node; None where there is none that can be read."""
    try:
        found = json.loads(annotations_of(node).get(POWER, ""))
        return PowerMark(**{str(name): str(value) for name, value in found.items()})
    except (ValueError, TypeError, AttributeError):
        return None


def marked(mark: PowerMark) -> Object:
    """The patch that writes it."""
    return {"metadata": {"annotations": {POWER: json.dumps(asdict(mark), separators=(",", ":"))}}}


def is_proven_off(node: Object, incident: str) -> bool:
    """Whether this incident has switched the node off, and its BMC has said that it is off."""
    mark = mark_of(node)
    return mark is not None and mark.incident == incident and bool(mark.off_at)
