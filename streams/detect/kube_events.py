"""Kubernetes Events, and the node conditions that monitors announce. Rows of `catalog/kube.yaml` say which of them count.

An event exporter sends only the first of repeated Events, so a single one is enough. Where no exporter runs, the same Events are
in a component's log or in the output of `kubectl get events` (`kube_lines.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Literal

from streams.config.yaml_tables import Strict
from streams.detect import dcgm_codes
from streams.detect.catalog import load_catalog
from streams.detect.finding import Attributes, Finding, Stream
from streams.detect.matching import re2_patterns
from streams.detect.matching.re2_patterns import Pattern
from streams.ingest.events.kube_objects import SEEN
from streams.model.clock import to_millis
from streams.model.entity import Gpu, JobRef, PodRef, canonical_pci
from streams.model.kinds import SignalKind
from streams.model.record import KubeEvent
from streams.model.signal import Attribute, Severity, SignalState

Status = Literal["True", "False", "Unknown"]


class EventRow(Strict):
    """Event reasons that are a signal; the head of the file explains the keys."""

    reasons: tuple[str, ...]
    objects: tuple[str, ...]
    kind: SignalKind
    severity: Severity
    state: SignalState = SignalState.FIRING
    subtype: str = ""
    needs: str | None = None
    unless: str | None = None
    users: bool = False
    ends: bool = False
    """Only where the same condition of the node was firing: every start of a node sends such Events too."""
    gpus: bool = False
    """Only where the message is about GPUs."""
    beside: bool = False
    """Of the node whose kubelet reports it, besides what another row says of the pod; only where that node is known."""
    sample: str

    def about(self, kind: str) -> bool:
        """True when Events about objects of this kind count."""
        return kind in self.objects or (kind.endswith("Job") and "Job*" in self.objects)


class ConditionRow(Strict):
    """A type of node condition, and the signal it is."""

    type: str
    bad: tuple[Status, ...] = ("True",)
    kind: SignalKind
    severity: Severity
    subtype: str


class Refusals(Strict):
    """How an Event tells that a webhook fails, so that nothing can be created; the head of the file explains the keys."""

    makes_none: frozenset[str]
    creates: str
    fails: str
    unless: str


class EventSheet(Strict):
    """`catalog/kube.yaml`."""

    integers: tuple[str, ...]
    fields: tuple[str, ...]
    system_namespaces: str
    gpus: str
    refusals: Refusals
    faults: str
    """Reasons of Warnings about nodes that no row knows."""
    rows: tuple[EventRow, ...]
    conditions: tuple[ConditionRow, ...]
    ambiguous: frozenset[str]


@cache
def sheet() -> EventSheet:
    """The file, read once."""
    return load_catalog("kube", EventSheet)


CONDITION = re2_patterns.compile(
    r"(?i)\b(?:node )?condition \"?(?P<type>[A-Za-z][\w./-]{1,80})\"? is now:? {0,2}\"?(?P<status>true|false|unknown)\"?"
    r"(?:[,;] reason: {0,2}\"?(?P<reason>[\w.-]{1,80}))?"
)
"""How node-problem-detector and similar monitors announce a condition of their node."""
_MONITORS = re2_patterns.compile(
    r"^(?:(?P<type>[A-Z]\w{2,60}?)Is(?P<state>(?:Not)?Healthy)|(?P<fault>Nvidia[A-Z]\w{1,60}(?:Error|Warning|Failed|Failure|Lost|Mismatch)))$"
)
"""Reasons that GPU monitors derive from the name of a check or a fault: NVSentinel, EKS, ACK."""
_HEALTHY = "IsHealthy"
_NUMBERED = re2_patterns.compile(r"^DCGM(?:Health|Error)?Code(?P<number>\d{1,4})$")
"""How EKS' agent names what a check of DCGM found."""
_XID = re2_patterns.compile(r"(?i)xid(\d{1,4})")
_ANY = "."
"""The last row of conditions, for unknown types. Only an announcement of one counts, not its presence in an object."""
_WORDS = re2_patterns.compile(r"[A-Z]+[a-z0-9]*|[a-z0-9]+")
_MACHINES = ("Node", "NodeClaim", "Machine")
_MAX_FIRING = 100_000
_MAX_TOLD = 20_000
_EACH_MS = 600_000
AUTHOR = "kubernetes"
"""Of Events that are context."""


class KubeEvents:
    """Reads Kubernetes Events."""

    def __init__(self) -> None:
        self._sheet = sheet()
        self._fields = [re2_patterns.compile(pattern) for pattern in self._sheet.fields]
        self._integers = frozenset(self._sheet.integers)
        self._system = re2_patterns.compile(self._sheet.system_namespaces)
        self._gpus = re2_patterns.compile(self._sheet.gpus)
        self._faults = re2_patterns.compile(self._sheet.faults)
        refusals = self._sheet.refusals
        self._creates, self._webhook_fails, self._not_refused = map(
            re2_patterns.compile, (refusals.creates, refusals.fails, refusals.unless)
        )
        self._ends = {reason for row in self._sheet.rows if row.ends for reason in row.reasons}
        self._ends.add(SEEN)
        self._rows: dict[str, list[tuple[EventRow, Pattern | None, Pattern | None]]] = {}
        self._beside: dict[str, list[tuple[EventRow, Pattern | None, Pattern | None]]] = {}
        for row in self._sheet.rows:
            needs = re2_patterns.compile(row.needs) if row.needs else None
            unless = re2_patterns.compile(row.unless) if row.unless else None
            rows = self._beside if row.beside else self._rows
            for reason in row.reasons:
                rows.setdefault(reason, []).append((row, needs, unless))
        self._conditions = [(re2_patterns.compile(f"(?i){row.type}"), row) for row in self._sheet.conditions]
        # In order, so that RE2 writes what they begin with once.
        reasons = sorted({*self._rows, *self._beside})
        named = "|".join(reason for reason in reasons if reason not in self._sheet.ambiguous)
        valued = "|".join(reason for reason in reasons if reason in self._sheet.ambiguous)
        # In protobuf a value follows its length and is followed by the next tag.
        self.hints = (
            rf"\b(?:{named})".encode(),
            rf"\"(?:{valued})[\\\"]".encode(),
            rf"(?:[\x01-\x08\x0b-\x1f]|reason[^\w\n]{{1,6}}|(?:Normal|Warning)[ \t]{{1,16}})(?:{valued})".encode(),
            rb"ondition [^\n]+ is now",
            rb"[A-Za-z]Is(?:Not)?Healthy\b",
            rb"DCGM[HEC]\w+\d",
            rb"\"[A-Z][A-Za-z]{0,24}(?:Error|Problem|Mismatch|Unhealthy|Degraded|Missing|Lost|HardwareReady)\"",
            rb"\bNvidia[A-Z]\w+(?:Error|Warning|Failed|Failure|Lost|Mismatch)\b",
            rb"failed (?:calling|to call) webhook|conversion webhook for [^\n]+ failed",
        )

    def read(self, event: KubeEvent, stream: Stream) -> Iterator[Finding]:
        """The finding of the Event, if any."""
        found = self.interpret(event)
        if found is not None and self.is_new(found, event, stream):
            yield found
        yield from self.of_the_node(event)

    def of_the_node(self, event: KubeEvent) -> Iterator[Finding]:
        """What an Event about a pod says of the node on which its kubelet could not run it."""
        if not event.host or event.kind != "Pod":
            return
        for row, needs, unless in self._beside.get(event.reason, ()):
            if needs and needs.search(event.message) and not (unless and unless.search(event.message)):
                attributes: Attributes = {"reason": event.reason, "subtype": row.subtype}
                found = self._finding(event, row.kind, row.severity, row.state, attributes)
                yield found._replace(node=event.host)

    def is_new(self, found: Finding, event: KubeEvent, stream: Stream) -> bool:
        """False for the routine end of a condition that was not firing; remembers which are firing.

        Where Events are spread over several partitions, another one may have seen it fire, so every end counts.
        """
        if found.kind == SignalKind.UNKNOWN:
            return not _told_lately(found, event, stream)
        if event.kind != "Node":
            return True
        firing = stream.rule_state.table("kube.firing", _MAX_FIRING)
        key = (stream.cluster, event.name, found.kind, str(found.attributes.get("subtype", "")))
        if found.state is SignalState.FIRING:
            firing[key] = (1,)
            return True
        was_firing = firing.pop(key, None) is not None
        return (
            was_firing
            or stream.misses_lines
            or not (event.reason in self._ends or event.reason.endswith(_HEALTHY))
        )

    def interpret(self, event: KubeEvent) -> Finding | None:
        """The finding of an Event by itself, whatever was firing before."""
        if event.kind == "Node" and (match := CONDITION.search(event.message)) is not None:
            status = (match["status"] or "").capitalize()
            return self.condition(event, match["type"] or "", status, match["reason"] or event.reason)
        if event.kind == "Node" and (match := _MONITORS.match(event.reason)) is not None:
            status = "False" if event.reason.endswith(_HEALTHY) else "True"
            found = self.condition(event, match["type"] or match["fault"] or "", status, event.reason)
            if found is None or not (match["state"] or event.reason.endswith("Warning")):
                return found
            # These monitors set a condition for what they hold fatal; their Events are about the rest.
            return found._replace(severity=min(found.severity, Severity.WARNING, key=lambda one: one.rank))
        if event.kind == "Node" and (numbered := _NUMBERED.match(event.reason)) is not None:
            return self._of_code(event, int(numbered["number"]))
        if self._is_refusal(event):
            attributes: Attributes = {"reason": event.reason, "subtype": "create_refused"}
            return self._finding(
                event, SignalKind.JOB_FAILED, Severity.WARNING, SignalState.FIRING, attributes
            )
        for row, needs, unless in self._rows.get(event.reason, ()):
            if not row.about(event.kind) or (row.users and self._system.search(event.namespace)):
                continue
            if (needs and not needs.search(event.message)) or (unless and unless.search(event.message)):
                continue
            if row.gpus and not self._gpus.search(event.message):
                continue
            attributes = {"reason": event.reason}
            if row.subtype:
                attributes["subtype"] = row.subtype
            if row.kind == SignalKind.UNKNOWN:
                attributes["author"] = AUTHOR
            return self._finding(event, row.kind, row.severity, row.state, attributes)
        if event.kind == "Node" and event.type == "Warning" and self._faults.search(event.reason):
            # A monitor of the site's own, in words of its own.
            attributes = {"reason": event.reason, "subtype": "node", "author": AUTHOR}
            return self._finding(event, SignalKind.UNKNOWN, Severity.INFO, SignalState.FIRING, attributes)
        return None

    def _of_code(self, event: KubeEvent, number: int) -> Finding:
        """What a check of DCGM found, by the number of its code."""
        code = dcgm_codes.numbered(number)
        attributes: Attributes = {"reason": event.reason, "subtype": "agent_verdict", "code": number}
        if code.name:
            attributes["code_name"] = code.name
        severity = code.severity(_machine(event))
        return self._finding(event, code.row.kind, severity, SignalState.FIRING, attributes)

    def _is_refusal(self, event: KubeEvent) -> bool:
        """Whether an object's controller could create nothing for it, for a webhook that must be asked fails."""
        return (
            bool(event.namespace)
            and event.kind not in self._sheet.refusals.makes_none
            and self._webhook_fails.search(event.message) is not None
            and (self._creates.search(event.message) or self._creates.search(event.reason)) is not None
            and self._not_refused.search(event.message) is None
            and self._system.search(event.namespace) is None
        )

    def condition(self, event: KubeEvent, type_: str, status: str, reason: str) -> Finding | None:
        """The finding of a node condition; `event` gives place and text. None for a type no row knows."""
        row = next((row for pattern, row in self._conditions if pattern.search(type_)), None)
        if row is None or (event.reason == SEEN and row.type == _ANY):
            return None
        state = SignalState.FIRING if status in row.bad else SignalState.CLEARED
        subtype = row.subtype or ("" if row.kind == SignalKind.NODE_NOT_READY else _snake(type_))
        attributes: Attributes = {"condition": type_, "status": status, "reason": reason}
        if subtype:
            attributes["subtype"] = subtype
        if (xid := _XID.search(reason)) is not None:
            attributes["xid"] = int(xid[1] or 0)
        severity = row.severity
        worst = dcgm_codes.worst(dcgm_codes.named_in(event.message), _machine(event))
        if state is SignalState.FIRING and worst is Severity.INFO:
            severity = worst
        return self._finding(event, row.kind, severity, state, attributes)

    def _finding(
        self,
        event: KubeEvent,
        kind: str,
        severity: Severity,
        state: SignalState,
        attributes: Attributes,
    ) -> Finding:
        for pattern in self._fields:
            if (match := pattern.search(event.message)) is None:
                continue
            for name, value in match.groupdict().items():
                if value is not None and name not in attributes:
                    attributes[name] = int(value) if name in self._integers else value
        pod = None
        if event.kind == "Pod" and kind.startswith("job."):
            pod = PodRef(event.namespace, event.name, event.uid)
        job = None
        if event.kind not in ("Pod", *_MACHINES):
            job = JobRef(event.kind, event.namespace, event.name, event.uid)
        return Finding(
            kind,
            severity,
            attributes,
            state,
            gpu=_gpu(attributes) if kind.startswith("gpu.") else None,
            pod=pod,
            job=job,
            text=f"{event.reason}: {event.message}",
        )


def _machine(event: KubeEvent) -> str:
    """What is written about a node: its name, and its type where a monitor adds that to its message."""
    return f"{event.name} {event.message}"


def _told_lately(found: Finding, event: KubeEvent, stream: Stream) -> bool:
    """Whether the object gave this sign within ten minutes: such Events are repeated as long as it lasts."""
    told = stream.rule_state.table("kube.told", _MAX_TOLD)
    key = (stream.cluster, event.kind, event.namespace, event.name, event.reason)
    now = to_millis(event.at or stream.received_at)
    before = told.get(key)
    if before is not None and abs(now - int(before[0] or 0)) < _EACH_MS:
        return True
    told[key] = (now,)
    return False


def _gpu(attributes: Mapping[str, Attribute]) -> Gpu | None:
    pci, uuid = attributes.get("pci"), attributes.get("uuid")
    gpu = Gpu(canonical_pci(pci) if isinstance(pci, str) else None, uuid if isinstance(uuid, str) else None)
    return None if gpu == Gpu() else gpu


def _snake(name: str) -> str:
    return "_".join((match[0] or "").lower() for match in _WORDS.finditer(name))
