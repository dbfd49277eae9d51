"""The mark on a node whose power Faultline changes: what is done, for which effect, and on which boot it began. Pure.

It is written before the BMC is asked, so that whoever takes over can tell whether anything may have been sent; and it is where a
drain reads that a dead node is really off. It goes with the cordon.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from connectors.kubernetes.annotations import POWER, annotations_of
from connectors.kubernetes.client import Object
from streams.model.clock import parse_rfc3339
from streams.model.errors import BadInput


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
    """The mark on a node; None where there is none that can be read whole, times included."""
    try:
        found = json.loads(annotations_of(node).get(POWER, ""))
        mark = PowerMark(**{str(name): str(value) for name, value in found.items()})
        for time in (mark.at, *filter(None, (mark.off_at,))):
            parse_rfc3339(time)
    except (ValueError, TypeError, AttributeError, BadInput):
        return None
    return mark


def unreadable(node: Object) -> str:
    """Why nobody may begin here: the node is marked, and what the mark says cannot be read. Empty otherwise.

    Somebody's BMC may have been asked: that is no less possible than with a mark that can be read.
    """
    if POWER not in annotations_of(node) or mark_of(node) is not None:
        return ""
    return f"its annotation {POWER} cannot be read, so its BMC may have been asked: see what became of it, then take it off"


def marked(mark: PowerMark) -> Object:
    """The patch that writes it."""
    return {"metadata": {"annotations": {POWER: json.dumps(asdict(mark), separators=(",", ":"))}}}


def is_proven_off(node: Object, incident: str) -> bool:
    """Whether this incident has switched the node off, and its BMC has said that it is off."""
    mark = mark_of(node)
    return mark is not None and mark.incident == incident and bool(mark.off_at)
