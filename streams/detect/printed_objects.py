"""Nodes, pods and Events that somebody printed: tables and descriptions of kubectl, structures as Go prints them.

`gpu-a07  NotReady  <none>  42d  v1.31.2`, `gpu-a07  Ready  Unknown  NodeStatusUnknown`, the conditions and Events below
`Name: gpu-a07` of `kubectl describe`, `v1.NodeCondition{Type:"Ready", …}`, `condition={"type":"Ready", …}`. Each becomes the
object that it shows and is read by the rows for that. A description names its object first, so that is remembered. What is well
says nothing, nor does what is older than an hour: a listing shows the past as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from streams.detect.event_table import RECENT
from streams.detect.finding import Finding, Stream
from streams.detect.kube_events import KubeEvents
from streams.detect.matching import carriers, re2_patterns
from streams.detect.matching.log_patterns import MAX_HITS
from streams.detect.matching.quotation_filter import reported, written_by_people
from streams.detect.matching.re2_patterns import Match
from streams.ingest import json_documents
from streams.ingest.events import kube_objects
from streams.kafka.topics import RAW_K8S_EVENTS
from streams.model.clock import to_millis
from streams.model.record import KubeEvent, LogLine

_NAME = r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?"
_AGE = r"\d[\dsmhdy]{0,10}"
_NODE_ROW = re2_patterns.compile(
    rf"(?P<name>{_NAME})\s{{1,80}}NotReady(?:,SchedulingDisabled)?\s{{1,24}}[\w<>,./-]{{1,120}}\s{{1,24}}(?P<age>{_AGE})\s{{1,16}}v\d\."
)
_POD_ROW = re2_patterns.compile(
    rf"^\s{{0,8}}(?P<namespace>[a-z0-9-]{{1,63}})\s{{1,80}}(?P<name>{_NAME})\s{{1,80}}\d{{1,4}}/\d{{1,4}}\s{{1,24}}"
    rf"(?P<reason>OOMKilled|Evicted|UnexpectedAdmissionError)\s{{1,24}}\d{{1,6}}(?:\s\([^)\n]{{1,24}}\))?\s{{1,24}}(?P<age>{_AGE})\b"
)
_DESCRIBED = re2_patterns.compile(r"^(?P<field>Name|Namespace|Node|Roles):\s{3,24}(?P<value>[\w.<>-]{1,253})")
_DATE = r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}"
_CONDITION_ROW = re2_patterns.compile(
    rf"^\s{{0,8}}(?P<type>[A-Z][\w./-]{{1,80}})\s{{1,40}}(?P<status>True|False|Unknown)\s{{1,12}}{_DATE}\s{{1,12}}"
    rf"(?P<since>{_DATE})\s{{1,12}}(?P<reason>\w{{1,80}})\s{{1,40}}(?P<message>[^\n]{{0,512}})"
)
_COLUMNS_ROW = re2_patterns.compile(
    rf"^\s{{0,8}}(?P<name>{_NAME})\s{{2,80}}(?P<type>[A-Z]\w{{3,60}})\s{{2,40}}(?P<status>True|False|Unknown)"
    r"\s{2,40}(?P<reason>[A-Z][a-z]\w{2,80})(?:\s{2,40}(?P<message>\S[^\n]{0,512}))?\s{0,80}$"
)
"""A node and one of its conditions: what `-o custom-columns` and scripts print in this order."""
_EVENT_ROW = re2_patterns.compile(
    rf"^\s{{0,8}}(?:Normal|Warning)\s{{1,24}}(?P<reason>[A-Z]\w{{1,127}})\s{{1,40}}(?P<age>{_AGE})"
    r"(?:\s\(x\d{1,6} over \w{1,12}\))?"
    r"\s{1,24}[\w./-]{1,64}(?:, (?P<host>[\w.-]{1,253}))?\s{1,40}(?P<message>[^\n]{1,900})"
)
_NODE_IN_EVENT = re2_patterns.compile(rf"^Node (?P<name>{_NAME}) (?:status is now|has been)")
_QUOTE = r"\\{0,3}\""
_GO_CONDITION = re2_patterns.compile(
    rf"v1\.NodeCondition\{{Type:{_QUOTE}(?P<type>[\w./-]{{1,80}}){_QUOTE}, Status:{_QUOTE}(?P<status>True|False|Unknown){_QUOTE}"
    rf"(?:[^{{}}\n]{{0,400}}Reason:{_QUOTE}(?P<reason>\w{{1,80}}){_QUOTE})?(?:, Message:{_QUOTE}(?P<message>[^\"\\\n]{{0,512}}))?"
)
_GO_VALUES = re2_patterns.compile(
    r"\{(?P<type>[A-Z]\w{1,60}) (?P<status>True|False|Unknown) \d{4}-[^{}\n]{10,120} (?P<reason>[A-Z]\w{2,60}) "
    r"(?P<message>[^{}\n]{0,256})\}"
)
_JSON_CONDITION = re2_patterns.compile(r"\b[cC]ondition\\{0,3}\"?[=:] ?\"?(?P<json>\{[^{}\n]{10,800}\})")
_GO_EVENT = re2_patterns.compile(
    rf"v1\.Event\{{[^\n]{{0,600}}?InvolvedObject:v1\.ObjectReference\{{Kind:{_QUOTE}(?P<kind>\w{{1,63}}){_QUOTE}, "
    rf"Namespace:{_QUOTE}(?P<namespace>[a-z0-9-]{{0,63}}){_QUOTE}, Name:{_QUOTE}(?P<name>{_NAME}){_QUOTE}[^\n]{{0,400}}?\}}, "
    rf"Reason:{_QUOTE}(?P<reason>\w{{1,128}}){_QUOTE}, Message:{_QUOTE}(?P<message>[^\"\\\n]{{0,512}})"
)
_ABOUT_NODE = (
    re2_patterns.compile(rf"\b[nN]ode(?:Name)?[=:] ?(?:{_QUOTE})?(?P<name>{_NAME})"),
    re2_patterns.compile(rf"\b[nN]ode (?:{_QUOTE})?(?P<name>[a-z0-9][a-z0-9.-]{{0,252}}[0-9])\b"),
)
_JOINING = re2_patterns.compile(r"\d{1,3}s|1m(?:\d{1,2}s)?")

_MAX_SOURCES = 20_000
_APART_MS = 120_000
"""A description is printed at once; a later line belongs to another one."""


class PrintedObjects:
    """Reads lines of objects. Remembers the object that a description is of."""

    hints = (
        rb"NotReady(?:,SchedulingDisabled)? +\S+ +\d\w* +v\d\.",
        rb"(?:OOMKilled|Evicted|UnexpectedAdmissionError) +\d+ ",
        rb"(?:Name|Namespace|Node|Roles): {4}",
        rb"(?:True|False|Unknown) +[A-Z][a-z]{2}, \d\d ",
        rb"  (?:True|False|Unknown)  +[A-Z][a-z]+[A-Z]",
        rb"(?:Normal|Warning) +[A-Z]\w+ +\d+[smhdy]",
        rb"v1\.(?:NodeCondition|Event)\{",
        rb"\{[A-Z]\w+ (?:False|Unknown|True) \d{4}-",
        rb"ondition[\\\"]{0,4}[=:] ?[\\\"]{0,4}\{[^{}\n]*status",
    )

    def __init__(self) -> None:
        self._events = KubeEvents()

    def read(self, line: LogLine, stream: Stream) -> Iterator[Finding]:
        """The findings of the objects in a line, each about the object it names."""
        if written_by_people(line.source):
            return
        for event in islice(self._shown(line, stream), MAX_HITS):
            for of_node in self._events.of_the_node(event):
                yield of_node._replace(at=event.at or line.at, text=line.text)
            if event.kind == "Pod" and not event.name:
                continue
            found = self._events.interpret(event)
            if found is None or not self._events.is_new(found, event, stream):
                continue
            node = event.name if event.kind == "Node" else event.host
            if node or line.node is None:  # else it would be about the host that printed it
                yield found._replace(node=node or None, at=event.at or line.at, text=line.text)

    def _shown(self, line: LogLine, stream: Stream) -> Iterator[KubeEvent]:
        text = line.text
        described = _Described(line, stream)
        if (field := _DESCRIBED.search(line.message)) is not None:
            described.add(field["field"], field["value"])
        elif (row := _CONDITION_ROW.search(line.message)) is not None:
            # In the topic of API objects a line without a description before it is of its record's node.
            own = (line.node or "") if stream.lines.startswith(RAW_K8S_EVENTS.name) else ""
            yield from _condition(row, described.name if described.kind == "Node" else own)
        elif (row := _EVENT_ROW.search(line.message)) is not None:
            if RECENT.fullmatch(row["age"]) is not None:
                yield from _event(row, described)
        elif (row := _COLUMNS_ROW.search(line.message)) is not None:
            if reported(line, line.start):
                yield from _condition(row, row["name"])
        elif (row := _POD_ROW.search(line.message)) is not None:
            if RECENT.fullmatch(row["age"]) is not None and reported(line, line.start):
                reason = row["reason"]
                yield KubeEvent(
                    reason,
                    f"{reason}: out of memory" if "OOM" in reason else reason,
                    "Pod",
                    row["name"],
                    row["namespace"],
                )
        elif (row := _NODE_ROW.search(text, line.start)) is not None:
            if _JOINING.fullmatch(row["age"]) is None and reported(line, row.start()):
                yield from _condition_event(row["name"], "Ready", "False", "NotReady", "listed as NotReady")
        else:
            yield from _structures(text, line.start)


class _Described:
    """The object of the description whose lines are coming."""

    def __init__(self, line: LogLine, stream: Stream) -> None:
        self._table = stream.rule_state.table("printed.described", _MAX_SOURCES)
        self._key = stream.source(line)
        self._at = to_millis(line.at or stream.received_at)
        row = self._table.get(self._key)
        if row is None or abs(self._at - int(row[0] or 0)) > _APART_MS:
            row = (self._at, "", "", "", "")
        _, self.kind, self.namespace, self.name, self.host = row[0], *(str(part or "") for part in row[1:])

    def add(self, field: str, value: str) -> None:
        """Remember what a line of the description says of its object."""
        if field == "Name":
            self.kind, self.namespace, self.name, self.host = "", "", value, ""
        elif field == "Namespace":
            self.namespace = value
        elif field == "Roles":
            self.kind = "Node"
        elif self.namespace and value != "<none>":
            self.kind, self.host = "Pod", value
        self._table[self._key] = (self._at, self.kind, self.namespace, self.name, self.host)


def _condition(row: Match, node: str) -> Iterator[KubeEvent]:
    yield from _condition_event(
        node,
        row["type"],
        row["status"],
        row["reason"] or "",
        row["message"] or "",
        row.groupdict().get("since"),
    )


def _condition_event(
    node: str, type_: str, status: str, reason: str, message: str, since: str | None = None
) -> Iterator[KubeEvent]:
    shown = {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since,
    }
    if (event := kube_objects.condition_of(node, shown)) is not None:
        yield event


def _event(row: Match, described: _Described) -> Iterator[KubeEvent]:
    reason, message = row["reason"], row["message"].strip()
    if described.kind:
        yield KubeEvent(
            reason, message, described.kind, described.name, described.namespace, host=described.host or None
        )
    elif (named := _NODE_IN_EVENT.search(message)) is not None:
        yield KubeEvent(reason, message, "Node", named["name"])
    elif row["host"]:
        # Whose Event it is stands above; which kubelet sent it, in the row.
        yield KubeEvent(reason, message, "Pod", "", host=row["host"])


def _structures(text: str, start: int) -> Iterator[KubeEvent]:
    """Conditions and Events as Go and JSON print them within a line."""
    node = next(
        (found["name"] for about in _ABOUT_NODE if (found := about.search(text, start)) is not None), ""
    )
    if "ecame not ready" in text:
        return  # the kubelet's own line, a row of the catalog
    for pattern in (_GO_CONDITION, _GO_VALUES, _GO_EVENT, _JSON_CONDITION):
        for shown in islice(pattern.finditer(text, start), MAX_HITS):
            if carriers.personal(text[start : shown.start()]):
                continue
            if pattern is _GO_EVENT:
                yield KubeEvent(
                    shown["reason"], shown["message"], shown["kind"], shown["name"], shown["namespace"]
                )
            elif pattern is _JSON_CONDITION:
                parsed = json_documents.parsed(shown["json"].replace('\\"', '"'))
                if (
                    isinstance(parsed, dict)
                    and (event := kube_objects.condition_of(node, parsed)) is not None
                ):
                    yield event
            else:
                yield from _condition(shown, node)
