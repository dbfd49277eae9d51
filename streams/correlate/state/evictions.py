"""What an eviction shows about its node: the kubelet evicts for what the node runs low on, and says of what.

A pod that used up what is missing is no sign of anything but its own appetite. One that used little of it had to go for what
others left there: crash dumps, images, logs. So the node is short of it, and whatever pod comes there next will go, too.
"""

from __future__ import annotations

import re
from dataclasses import replace

from streams.correlate.sightings import Sighting
from streams.model.entity import Entity
from streams.model.kinds import SignalKind

EVICTS = "evicts"
"""The subtype of a node's condition that it evicts for what it lacks itself."""
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?)([kKMGT]?)(i?)", re.ASCII)
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}
_OWN_SHARE = 0.5
"""A pod that used so much of what the node lacks is why it lacks it."""


def of_node(seen: Sighting) -> Sighting | None:
    """What an eviction shows about its node; None for other failures, and where the pod itself used up what was missing."""
    node, resource = seen.entity.node, seen.text("resource")
    if seen.text("subtype") != "evicted" or not seen.firing or not node or not resource:
        return None
    used, lack = _quantity(seen.text("used")), _lack(seen)
    if used is not None and lack is not None and used >= _OWN_SHARE * lack:
        return None
    return replace(
        seen,
        kind=SignalKind.NODE_CONDITION,
        entity=Entity(seen.entity.cluster, node=node),
        attributes={"subtype": EVICTS, "resource": resource},
    )


def _lack(seen: Sighting) -> float | None:
    threshold, left = _quantity(seen.text("threshold")), _quantity(seen.text("left"))
    return threshold - left if threshold is not None and left is not None and threshold > left else None


def _quantity(text: str) -> float | None:
    """Bytes of a quantity of Kubernetes; None for anything else."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    number, power, binary = match.groups()
    return float(number) * (1024.0 if binary else 1000.0) ** _POWERS[power]
