"""Host faults in lines of kernels and daemons: `catalog/lines/kernel.yaml` and `host.yaml`."""

from __future__ import annotations

from streams.detect.finding import Finding, Stream
from streams.detect.matching.log_patterns import Hit
from streams.detect.matching.pattern_family import PatternFamily
from streams.model.record import LogLine


class Host(PatternFamily):
    """Reads a file of patterns about the host."""

    def finding(self, hit: Hit, line: LogLine, stream: Stream) -> Finding | None:
        """As the row says, with a pod's UID as Kubernetes writes it: names of cgroup slices have underscores."""
        found = super().finding(hit, line, stream)
        if found is None or "pod_uid" not in found.attributes:
            return found
        uid = str(found.attributes["pod_uid"]).replace("_", "-")
        return found._replace(attributes={**found.attributes, "pod_uid": uid})
