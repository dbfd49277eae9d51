"""Log lines of Kubernetes components: printed Events in four formats, conditions, and other messages.

`"Event occurred" object="ns/name" kind="Pod" … reason="…" message="…"` and `Event(v1.ObjectReference{Kind:"Pod", …}): type: …
reason: … text` are client-go's (tools/record); `DEBUG events text {"type", "object": {…}, "reason"}` is controller-runtime's;
rows of `kubectl get events` are read in `event_table.py`.
All of them count as the Event they show.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from streams.detect import event_table
from streams.detect.finding import Attributes, Finding, Stream
from streams.detect.kube_events import CONDITION, KubeEvents, sheet
from streams.detect.matching import re2_patterns
from streams.detect.matching.log_patterns import MAX_HITS, Hit
from streams.detect.matching.pattern_family import PatternFamily
from streams.detect.matching.quotation_filter import reported
from streams.ingest.events import kube_objects
from streams.model.clock import to_millis
from streams.model.entity import JobRef, PodRef
from streams.model.kinds import SignalKind
from streams.model.record import KubeEvent, LogLine
from streams.model.signal import Severity

_OCCURRED = re2_patterns.compile(
    r"\"Event occurred\" [^\n]{0,40}\bobject=\"/?(?:(?P<namespace>[a-z0-9-]{1,63})/)?(?P<name>[A-Za-z0-9][\w.-]{0,252})\""
    r"[^\n]{0,160}\bkind=\"(?P<kind>\w{1,63})\"[^\n]{0,160}\breason=\"(?P<reason>\w{1,128})\""
)
_REFERENCE = re2_patterns.compile(
    r"Event\(v1\.ObjectReference\{Kind:\"(?P<kind>\w{1,63})\", Namespace:\"(?P<namespace>[a-z0-9-]{0,63})\", "
    r"Name:\"/?(?P<name>[A-Za-z0-9][\w.-]{0,252})\"[^\n]{0,400}\breason: \W?(?P<reason>\w{1,128})\W?"
)
_RECORDED = re2_patterns.compile(
    r"\s(?:[\w.-]{0,64}\.)?events\s{1,4}(?P<message>\S[^\n]{2,600}?)\s{1,4}\{\"type\": ?\"(?:Warning|Normal)\", ?\"object\": ?\{"
    r"\"kind\": ?\"(?P<kind>\w{1,63})\", ?(?:\"namespace\": ?\"(?P<namespace>[a-z0-9-]{0,63})\", ?)?"
    r"\"name\": ?\"(?P<name>[A-Za-z0-9][\w.-]{0,252})\"[^\n]{0,600}\"reason\": ?\"(?P<reason>\w{1,128})\""
)
"""How operators on controller-runtime log each Event that they write, by zap's console encoder."""
_STATUS = re2_patterns.compile(r"\bNew status generated: &\{Source:\S{1,64} Events:\[")
"""How node-problem-detector logs what it found: Go's structure of its events, and of all conditions of that monitor."""
_STATUS_EVENT = re2_patterns.compile(
    r"\{Severity:warn Timestamp:[^{}\n]{10,64}? Reason:(?P<reason>\w{1,128}) Message:(?P<message>[^\n]{0,600}?)\}(?:\]| \{)"
)
_STATUS_CONDITION = re2_patterns.compile(
    r"\{Type:(?P<type>[\w./-]{1,80}) Status:(?i:(?P<status>true|false|unknown)) "
    r"Transition:(?P<since>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})? [+-]\d{4})[^{}\n]{0,48}? "
    r"Reason:(?P<reason>\w{0,80}) Message:(?P<message>[^\n]{0,600}?)\}(?:\]| \{)"
)
_VERDICT: Attributes = {"subtype": "agent_verdict"}
"""Of a reason that no row knows: a site's own, beside those that ship with the agent."""
_PRINTED = (_OCCURRED, _REFERENCE)
_MAX_MESSAGE = 1024
_MAX_COUNTED = 20_000
_EACH_MS = 3_600_000
"""How long the same count of an operator is no news: it is logged anew at every change of the job."""


class PrintedEvents:
    """Reads Events and conditions that were printed as lines."""

    def __init__(self) -> None:
        self._events = KubeEvents()
        self.hints = (*self._events.hints, rb"New status gen")

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """The Events in a line, each about the object it names; else conditions of the line's own node."""
        if (status := _STATUS.search(line.text, line.start)) is not None and reported(line, status.start()):
            yield from self._read_status(line, status.end(), stream)
            return
        printed = False
        for event in chain(_logged(line), event_table.events(line)):
            printed = True
            yield from self._read_event(event, line, stream)
        if printed:
            return
        condition = CONDITION.search(line.text, line.start)
        if condition is not None and reported(line, condition.start()):
            event = KubeEvent("", line.text[condition.start() :], "Node", line.node or "")
            found = self._events.interpret(event)
            if found is not None:
                yield found._replace(text=line.text)

    def _read_event(self, event: KubeEvent, line: LogLine, stream: Stream) -> Iterator[Finding]:
        for of_node in self._events.of_the_node(event):
            yield of_node._replace(at=line.at, text=line.text)
        found = self._events.interpret(event)
        if found is not None and self._events.is_new(found, event, stream):
            node = event.name if event.kind == "Node" else event.host
            yield found._replace(node=node, at=line.at, text=line.text)

    def _read_status(self, line: LogLine, begin: int, stream: Stream) -> Iterator[Finding]:
        """What node-problem-detector found on its node: errors that passed, and its conditions since they changed.

        Events of a lower severity announce the conditions beside them once more.
        """
        events = [
            KubeEvent(one["reason"] or "", one["message"] or "", "Node", line.node or "")
            for one in islice(_STATUS_EVENT.finditer(line.text, begin), MAX_HITS)
        ]
        for event in events:
            if self._events.interpret(event) is None:
                attributes: Attributes = {"reason": event.reason, "message": event.message}
                verdict = Finding(SignalKind.NODE_CONDITION, Severity.WARNING, _VERDICT | attributes)
                yield verdict._replace(at=line.at, text=line.text)
        for one in islice(_STATUS_CONDITION.finditer(line.text, begin), MAX_HITS):
            status = (one["status"] or "").capitalize()
            shown = {**one.groupdict(), "status": status, "lastTransitionTime": one["since"]}
            if (condition := kube_objects.condition_of(line.node or "", shown)) is not None:
                events.append(condition)
        for event in events:
            found = self._events.interpret(event)
            if found is not None and self._events.is_new(found, event, stream):
                yield found._replace(at=event.at or line.at, text=line.text)


def _logged(line: LogLine) -> Iterator[KubeEvent]:
    """Events in the two forms in which client-go logs them."""
    for pattern in _PRINTED:
        for match in islice(pattern.finditer(line.text, line.start), MAX_HITS):
            kind = event_table.kind_of(match["kind"])
            if kind is not None and reported(line, match.start()):
                message = line.text[match.end() : match.end() + _MAX_MESSAGE].strip()
                yield KubeEvent(match["reason"], message, kind, match["name"], match["namespace"] or "")
    for match in islice(_RECORDED.finditer(line.text, line.start), MAX_HITS):
        kind = event_table.kind_of(match["kind"])
        if kind is not None and reported(line, match.start("message")):
            yield KubeEvent(match["reason"], match["message"], kind, match["name"], match["namespace"] or "")


class KubeLines(PatternFamily):
    """Reads the other messages. One that names a pod is about it, unless it is a pod of a system namespace."""

    def __init__(self) -> None:
        super().__init__("kube")
        self._system = re2_patterns.compile(sheet().system_namespaces)

    def finding(self, hit: Hit, line: LogLine, stream: Stream) -> Finding | None:
        """As the row says, about the pod in the message."""
        found = super().finding(hit, line, stream)
        if found is not None and "owner" in found.attributes:
            return _of_owner(found, line, stream)
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


def _of_owner(found: Finding, line: LogLine, stream: Stream) -> Finding | None:
    """What an operator counts for a job's object, as that job's; None where it said so lately: it counts anew at every change."""
    attributes = dict(found.attributes)
    kind, name, namespace = (str(attributes.pop(one, "")) for one in ("owner_kind", "owner", "namespace"))
    told = stream.rule_state.table("kube.counted", _MAX_COUNTED)
    counted = (str(attributes.get("replica", "")), str(attributes.get("failed", "")))
    key = (stream.cluster, kind, namespace, name, *counted)
    now = to_millis(line.at or stream.received_at)
    before = told.get(key)
    told[key] = (now,)
    if before is not None and abs(now - int(before[0] or 0)) < _EACH_MS:
        return None
    return found._replace(attributes=attributes, job=JobRef(kind, namespace, name), of_others=True)
