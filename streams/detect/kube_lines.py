"""Log lines of Kubernetes components: printed Events in three formats, conditions, and other messages.

`"Event occurred" object="ns/name" kind="Pod" … reason="…" message="…"` and `Event(v1.ObjectReference{Kind:"Pod", …}): type: …
reason: … text` are client-go's (tools/record); `ns  5s  Warning  Reason  pod/name  text` is what `kubectl get events` prints.
All of them count as the Event they show.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from streams.detect.finding import Finding, Stream
from streams.detect.kube_events import CONDITION, KubeEvents, sheet
from streams.detect.matching import re2_patterns
from streams.detect.matching.log_patterns import MAX_HITS, Hit
from streams.detect.matching.pattern_family import PatternFamily
from streams.detect.matching.quotation_filter import reported
from streams.detect.matching.re2_patterns import Match
from streams.model.entity import PodRef
from streams.model.record import KubeEvent, LogLine

_OCCURRED = re2_patterns.compile(
    r"\"Event occurred\" [^\n]{0,40}\bobject=\"/?(?:(?P<namespace>[a-z0-9-]{1,63})/)?(?P<name>[A-Za-z0-9][\w.-]{0,252})\""
    r"[^\n]{0,160}\bkind=\"(?P<kind>\w{1,63})\"[^\n]{0,160}\breason=\"(?P<reason>\w{1,128})\""
)
_REFERENCE = re2_patterns.compile(
    r"Event\(v1\.ObjectReference\{Kind:\"(?P<kind>\w{1,63})\", Namespace:\"(?P<namespace>[a-z0-9-]{0,63})\", "
    r"Name:\"/?(?P<name>[A-Za-z0-9][\w.-]{0,252})\"[^\n]{0,400}\breason: \W?(?P<reason>\w{1,128})\W?"
)
_LISTED = re2_patterns.compile(
    r"(?:\b(?P<namespace>[a-z0-9-]{1,63})\s{1,40})?(?:\b\d[\dsmhd]{1,8}\s{1,40})?\b(?:Normal|Warning)\s{1,40}"
    r"(?P<reason>[A-Z]\w{1,127})\s{1,40}(?P<kind>[A-Za-z]{2,63})/(?P<name>[A-Za-z0-9][\w.-]{0,252})\s"
)
_PRINTED = (_OCCURRED, _REFERENCE, _LISTED)
_MAX_MESSAGE = 1024
_KINDS = {
    "node": "Node",
    "pod": "Pod",
    "job": "Job",
    "jobset": "JobSet",
    "pytorchjob": "PyTorchJob",
    "mpijob": "MPIJob",
}


class PrintedEvents:
    """Reads Events and conditions that were printed as lines."""

    def __init__(self) -> None:
        self._events = KubeEvents()
        self.hints = self._events.hints

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """The Events in a line, each about the object it names; else a condition of the line's own node."""
        printed = False
        for pattern in _PRINTED:
            for match in islice(pattern.finditer(line.text, line.start), MAX_HITS):
                event = _event(match, line.text[match.end() : match.end() + _MAX_MESSAGE])
                if event is None or not reported(line, match.start()):
                    continue
                printed = True
                found = self._events.interpret(event)
                if found is not None and self._events.is_new(found, event, stream):
                    yield found._replace(
                        node=event.name if event.kind == "Node" else None, at=line.at, text=line.text
                    )
            if printed:
                return
        condition = CONDITION.search(line.text, line.start)
        if condition is not None and reported(line, condition.start()):
            event = KubeEvent("", line.text[condition.start() :], "Node", line.node or "")
            found = self._events.interpret(event)
            if found is not None:
                yield found._replace(text=line.text)


def _event(match: Match, message: str) -> KubeEvent | None:
    kind, name = match["kind"] or "", match["name"] or ""
    kind = _KINDS.get(kind.lower(), kind)
    if not kind[:1].isupper():
        return None
    return KubeEvent(match["reason"] or "", message.strip(), kind, name, namespace=match["namespace"] or "")


class KubeLines(PatternFamily):
    """Reads the other messages. One that names a pod is about it, unless it is a pod of a system namespace."""

    def __init__(self) -> None:
        super().__init__("kube")
        self._system = re2_patterns.compile(sheet().system_namespaces)

    def finding(self, hit: Hit, line: LogLine, stream: Stream) -> Finding | None:
        """As the row says, about the pod in the message."""
        found = super().finding(hit, line, stream)
        if found is None or not isinstance(named := found.attributes.get("pod"), str):
            return found
        attributes = {name: value for name, value in found.attributes.items() if name != "pod"}
        namespace, _, name = named.partition("/")
        if not hit.row.kind.startswith("job."):
            return found._replace(attributes=attributes)
        if self._system.search(namespace):
            return None
        # A kubelet logs on the node where the pod runs; the scheduler does not.
        node = line.node if hit.row.programs else None
        return found._replace(attributes=attributes, pod=PodRef(namespace, name), node=node)
