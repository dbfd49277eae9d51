"""Cables, as devices hear of each other: told when they are new, changed, or an hour old."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from streams.detect.finding import Attributes, Finding, Stream
from streams.ingest.lldp import cables
from streams.model.clock import to_millis
from streams.model.kinds import SignalKind
from streams.model.record import Neighbour
from streams.model.signal import Severity

_AGAIN_MS: Final = 3_600_000
"""A table is read every minute or so, and says the same for months."""
_MAX_PORTS: Final = 100_000


class Cables:
    """Reads what devices hear. Remembers what was told of each switch port."""

    def read(self, heard: Neighbour, stream: Stream) -> Iterator[Finding]:
        """The cable, where one end is known to be a switch's port."""
        at = heard.at or stream.received_at
        told = stream.rule_state.table("cables", _MAX_PORTS)
        for link in cables(stream.cluster, [heard], at):
            key, ends = (
                (stream.cluster, link.switch, link.port),
                (link.node, link.nic, link.peer_switch, link.peer_port),
            )
            before, at_ms = told.get(key), to_millis(at)
            if before is not None and before[:4] == ends and at_ms - int(before[4] or 0) < _AGAIN_MS:
                continue
            told[key] = (*ends, at_ms)
            names = ("node", "nic", "peer_switch", "peer_port")
            attributes: Attributes = {name: end for name, end in zip(names, ends, strict=True) if end}
            yield Finding(
                SignalKind.FABRIC_NEIGHBOUR,
                Severity.INFO,
                attributes,
                node=link.switch,
                port=link.port,
                on_switch=True,
                at=at,
            )
