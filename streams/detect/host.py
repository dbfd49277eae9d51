"""What a host says of itself: wordings of `catalog/lines/kernel.yaml` and `host.yaml`, with what needs more than a pattern."""

from __future__ import annotations

from streams.detect.finding import Finding, Stream
from streams.detect.matching.log_patterns import Hit
from streams.detect.matching.pattern_family import PatternFamily
from streams.model.record import LogLine


class Host(PatternFamily):
    """Reads a sheet of what kernels and programs say about their host."""

    def finding(self, hit: Hit, line: LogLine, stream: Stream) -> Finding | None:
        """As the row says; a pod's uid as Kubernetes writes it, for slices spell it with underscores."""
        found = super().finding(hit, line, stream)
        if found is None or "pod_uid" not in found.attributes:
            return found
        uid = str(found.attributes["pod_uid"]).replace("_", "-")
        return found._replace(attributes={**found.attributes, "pod_uid": uid})
