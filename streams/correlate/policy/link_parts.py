"""The table in `link_parts.yaml`: which part a sighting plays in the trouble of a link, and at which place."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Literal

from streams.config.yaml_tables import Strict, load_table
from streams.correlate.sightings import Sighting
from streams.model.entity import Entity
from streams.model.kinds import SignalKind

Part = Literal["down", "bounced", "device", "shut", "errors", "context"]
BROKEN: tuple[Part, ...] = ("down", "bounced", "device")
"""The parts of a link that works no more, or did not for a moment."""


class Parts(Strict):
    """`link_parts.yaml`: the part that each subtype plays."""

    down: frozenset[str]
    bounced: frozenset[str]
    device: frozenset[str]
    shut: frozenset[str]
    errors: frozenset[str]
    context: frozenset[str]
    degraded: frozenset[str]
    resent: frozenset[str]
    timed_out: frozenset[str]
    lost: frozenset[str]
    vague: frozenset[str]
    reset: frozenset[str]
    ended_by: frozenset[str]
    ordered: frozenset[str]
    booted: frozenset[str]
    failing: frozenset[str]
    partition: frozenset[str]
    partition_refused: frozenset[str]
    elsewhere: frozenset[str]
    standing: str
    administrative: str

    def of(self, s: Sighting) -> Part:
        """The part of one sighting."""
        if s.attributes.get(self.standing):
            return "context"
        subtype = s.text("subtype")
        parts: tuple[Part, ...] = ("down", "bounced", "device", "shut", "context")
        return next((part for part in parts if subtype in getattr(self, part)), "errors")

    def is_of_way(self, s: Sighting) -> bool:
        """Whether a host says of its NIC what any part of the way to its peers may be the reason for."""
        subtype = s.text("subtype")
        if s.entity.switch is not None or s.attributes.get(self.standing):
            return False
        return subtype in self.resent or (subtype in self.vague and self.of(s) == "errors")

    def is_counted_way(self, s: Sighting) -> bool:
        """The same of one that says itself when it is over."""
        return s.text("subtype") in self.resent and not self.ended_by.isdisjoint(s.attributes)

    def is_endless(self, s: Sighting) -> bool:
        """Whether it reports errors of which nobody will say that they are over."""
        return self.of(s) == "errors" and self.ended_by.isdisjoint(s.attributes)

    def is_intended(self, s: Sighting) -> bool:
        """Whether somebody took the link down on purpose."""
        words = f"{s.text('reason')} {s.text('status')}"
        return re.search(self.administrative, words) is not None


parts = cache(partial(load_table, Path(__file__).with_name("link_parts.yaml"), Parts))
"""The table that ships."""


def first_break(reports: Iterable[Sighting]) -> datetime | None:
    """When a link first did not work at all, by these reports; None where it only made errors."""
    return min((s.at for s in reports if s.firing and parts().of(s) in BROKEN), default=None)


def is_order(s: Sighting) -> bool:
    """Whether it says that somebody ordered work on a switch."""
    return s.kind == SignalKind.FABRIC_LINK and s.text("subtype") in parts().ordered


def is_boot(s: Sighting) -> bool:
    """Whether a switch says that it was booted."""
    return s.kind == SignalKind.FABRIC_LINK and s.text("subtype") in parts().booted


def is_failing(s: Sighting) -> bool:
    """Whether it says that a switch fails as a whole: the switch of itself, or whoever manages it."""
    return s.entity.switch is not None and s.entity.port is None and s.text("subtype") in parts().failing


def partition_of(s: Sighting) -> str | None:
    """The partition of a subnet that a manager speaks of, as its key of a full member; "" for a port that refused a key, which
    no line tells; None for anything else.
    """
    if s.kind != SignalKind.FABRIC_LINK:
        return None
    subtype = s.text("subtype")
    if subtype in parts().partition and (pkey := s.text("pkey")):
        # A limited member's key lacks the highest bit, and managers print either (IBTA, 10.9.1.1).
        return f"0x{int(pkey, 16) | 0x8000:04x}"
    return "" if subtype in parts().partition_refused else None


def placed(s: Sighting) -> Sighting | None:
    """The sighting at the place it is about: a subnet manager's at the port that it names; None where it names no place."""
    entity = s.entity
    if entity.switch or entity.nic or parts().elsewhere.isdisjoint(s.attributes):
        return s
    node, port = s.text("node"), s.text("port")
    return replace(s, entity=Entity(entity.cluster, switch=node, port=port)) if node and port else None
