"""Switches that report that they fail, or that whoever manages them misses.

Where hosts lose their links at once and nobody knows which switch they hang on, the only one that began to fail in these minutes
is why. A fan that has been warned of for hours says nothing of now.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from streams.correlate.policy.link_parts import is_failing
from streams.correlate.sightings import Sighting, order
from streams.correlate.state.rows import PortRow
from streams.model.hostnames import short

BEFORE = timedelta(minutes=10)
"""How long a switch reports its own trouble before it fails."""
_AFTER = timedelta(minutes=2)
"""How long after that its manager may say that it is missed."""


@dataclass(slots=True)
class AilingSwitches:
    """What was said of which switch as a whole; kept up to date switch by switch."""

    _at: dict[str, tuple[Sighting, ...]] = field(default_factory=dict)

    def put(self, switch: str, row: PortRow) -> bool:
        """Replace what was said of one switch. Returns whether that changed."""
        said = sorted(
            (s for group in row.seen.values() for s in group if s.firing and is_failing(s)), key=order
        )
        before, after = self._at.pop(switch, ()), tuple(said)
        if after:
            self._at[switch] = after
        return before != after

    def only(self, at: datetime, may_be: Callable[[str], bool]) -> Sighting | None:
        """What the one switch that began to fail around that time said first; None where none did, or several.

        With a domain and without one is one name, the shorter.
        """
        since, until = at - BEFORE, at + _AFTER
        by_name: dict[str, list[Sighting]] = defaultdict(list)
        for switch in sorted(self._at, key=lambda name: (len(name), name)):
            if self._at[switch][0].at <= until and may_be(switch):
                by_name[short(switch)] += self._at[switch]
        began = [said for said in by_name.values() if all(s.at >= since for s in said)]
        if len(began) != 1:
            return None
        first = min(began[0], key=order)
        return replace(first, entity=replace(first.entity, switch=began[0][0].entity.switch))
