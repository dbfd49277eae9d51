"""OSDs of Ceph that its monitors miss, and that boot again: `catalog/lines/ceph.yaml`.

A monitor names the host of an OSD when it fails, and not when it boots. The host is remembered in between.
"""

from __future__ import annotations

from streams.detect.finding import Finding, Stream
from streams.detect.matching.log_patterns import Hit
from streams.detect.matching.pattern_family import PatternFamily
from streams.model.record import LogLine
from streams.model.signal import SignalState

_MAX_FAILED = 10_000


class CephOsds(PatternFamily):
    """Reads the cluster log of Ceph."""

    def __init__(self) -> None:
        super().__init__("ceph")

    def finding(self, hit: Hit, line: LogLine, stream: Stream) -> Finding | None:
        """As the row says, at the host of the OSD; None for the start of one that was not missed."""
        found = super().finding(hit, line, stream)
        if found is None:
            return None
        failed = stream.rule_state.table("ceph.failed", _MAX_FAILED)
        key = (stream.cluster, str(found.attributes.get("osd")))
        if found.state is SignalState.FIRING:
            failed[key] = (found.node or "",)
            return found
        host = failed.pop(key, None)
        if host is None:
            return None
        return found._replace(node=str(host[0]), attributes={**found.attributes, "node": str(host[0])})
