"""What coolant units tell of their own flow, heat and pumps: `catalog/lines/facility.yaml`."""

from __future__ import annotations

from streams.detect.finding import Finding, Stream
from streams.detect.matching import re2_patterns
from streams.detect.matching.log_patterns import Hit
from streams.detect.matching.pattern_family import PatternFamily
from streams.inventory.parts import device_kind
from streams.model.record import LogLine

_COOLANT = "coolant-loop"
_NAME = re2_patterns.compile(r"[A-Za-z][\w.-]{1,62}")
_BEFORE = 96
"""Characters before the message in which a gateway may name the unit."""


class Facility(PatternFamily):
    """Reads lines of coolant units, and of gateways that ask them."""

    def finding(self, hit: Hit, line: LogLine, stream: Stream) -> Finding | None:
        """As the row says, at the unit; None where neither the host, the program nor what stands before the message is one.

        An agent on every node that prints the alarm of a unit would make all of these nodes look hot.
        """
        found = super().finding(hit, line, stream)
        before = line.text[max(line.start, hit.start - _BEFORE) : hit.start]
        named = [match[0] or "" for match in _NAME.finditer(before)]
        # A unit without a name in DNS sends under its address, and its syslog names it where others put the program.
        own = filter(None, (line.node, line.source))
        unit = next((name for name in (*own, *named) if device_kind(name) == _COOLANT), None)
        return found._replace(node=unit) if found is not None and unit is not None else None
