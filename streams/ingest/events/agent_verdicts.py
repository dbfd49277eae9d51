"""What agents on a node conclude about its health and ship as JSON, read as the line that they log for it.

NVSentinel's health event, by itself or within what its modules log of it, one or a list as its monitors send it
(`{"msg", "events": {"events": […]}}`): `{"checkName", "componentClass", "isHealthy": false}`.
GPUd's states, one list for each component: `[{"component", "states": [{"health": "Unhealthy", "reason"}]}]`, or one as
its log has it, whatever `msg` says: `{"msg", "component", "health": "Unhealthy", "reason"}`. A condition of a node, without
the node around it (`{"type", "status", "reason", "message"}`), or with its name beside it (`{"node", "condition"}`).
What an agent of the node found in the kernel's log, beside its own text: that line. So do health agents (`{"msg", "details":
{"reason", "message"}}`) and GPUd's scan (`{"msg": "known xid", "line"}`).
Shapes: NVSentinel, health_event.proto; GPUd, API v1 and its scan command; Kubernetes, NodeCondition; HyperPod's health
monitoring agent.
"""

from __future__ import annotations

import re

import orjson

from streams.ingest import header, timestamps
from streams.ingest.events import kube_objects
from streams.ingest.fields import NAMES, fields
from streams.ingest.logs import text
from streams.ingest.records import JsonObject, Opened, Origin, RecordContext

HINTS = (
    rb'"type"\s{0,2}:\s{0,2}"(?i:gpu|nvidia|accel|nic|ib|rdma|nvlink|dcgm)\w*"\s{0,2},\s{0,2}"status"',
    rb'(?:Storage|Networking|Kernel|Hardware|Runtime)Ready"\s{0,4},\s{0,4}"status"\s{0,4}:\s{0,4}"False',
)
"""Bytes (RE2) of a condition whose type and reason no family names."""

_VERDICT = frozenset({"checkName", "isHealthy"})
_BAD_VERDICT = frozenset({"checkName", "isFatal", "agent"})
"""Protobuf's JSON leaves out what is false."""
_WITHIN = 3
"""How deep a module's log line holds the event that it handles."""
_MAX_EVENTS = 64
"""Verdicts that one line may hold; hundreds are an attack."""
_FOUND = frozenset({"reason", "message"})
_KNOWN = ("known xid", "known sxid")
_CONDITION = frozenset({"type", "status", "reason", "message"})
_OF_A_CONDITION = _CONDITION | {
    "lastTransitionTime",
    "lastHeartbeatTime",
    "lastProbeTime",
    "observedGeneration",
}
_NODES = ("node", "nodeName", "node_name", "hostname", "host", "name")
_STATUS = ("True", "False", "Unknown")
_UNHEALTHY = "Unhealthy"
_UNHEALTHY_TEXTS = ("component unhealthy", "component is unhealthy", "unhealthy component")
"""What the message itself says where the line has no field for it."""
_MAX_STATES = 100
_HOST = re.compile(r"[A-Za-z0-9][\w.-]{0,252}")
_NUMBER = re.compile(r"[0-9a-f-]{16,64}")


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add the verdicts to `into`; False for any other format."""
    if events := _verdicts_in(record):
        for event in events[:_MAX_EVENTS]:
            _add_verdict(event, record, context, into)
    elif (found := _found_by(record, context)) is not None:
        text.read(found, context, into)
    elif (found := _known_error(record, context)) is not None:
        text.read(found, context, into, node=fields(record).origin().node)
    elif isinstance(record.get("component"), str) and isinstance(states := record.get("states"), list):
        _add_states(record["component"], states[:_MAX_STATES], context, into)
    elif _is_state(record):
        _add_states(record["component"], [record], context, into)
    elif (shown := _condition_of(record, context)) is not None:
        node, bare = shown
        if (condition := kube_objects.condition_of(node, bare)) is not None:
            into.observations.append(condition)
    else:
        return False
    return True


def _verdicts_in(record: JsonObject, depth: int = _WITHIN) -> list[JsonObject]:
    """The bad health events that the record is, or holds at its only place for them: one, or the list that a monitor sends."""
    keys = record.keys()
    if keys >= _VERDICT or (keys >= _BAD_VERDICT and record["isFatal"] is True):
        return [record]
    if not depth:
        return []
    for name, value in record.items():
        if "event" not in name.lower():
            continue
        held = value if isinstance(value, list) else [value]
        inner = [event for one in held if isinstance(one, dict) for event in _verdicts_in(one, depth - 1)]
        if inner:
            return inner
    return []


def _found_by(record: JsonObject, context: RecordContext) -> str | None:
    """The line in which an agent of the node found a fault; None where nobody knows who logged it."""
    if context.origin.container not in NAMES.node_agents:
        return None
    for value in record.values():
        if isinstance(value, dict) and value.keys() >= _FOUND and isinstance(value["message"], str):
            return value["message"] or None
    return None


def _known_error(record: JsonObject, context: RecordContext) -> str | None:
    """The line of the kernel that GPUd calls a known error. A scan finds those of weeks: without its own time it says nothing."""
    line = record.get("line")
    if record.get("msg") not in _KNOWN or not isinstance(line, str):
        return None
    return line if header.read(line, context.received_at).at is not None else None


def _is_state(record: JsonObject) -> bool:
    """True for a line of a log about a component that is unhealthy, with the reason: its text alone would lose both.

    Without a text it is a document of nobody's schema (`notices.py`).
    """
    text = record.get("msg", record.get("message"))
    said = (record.get("component"), record.get("reason"), text)
    is_unhealthy = record.get("health") == _UNHEALTHY or text in _UNHEALTHY_TEXTS
    return is_unhealthy and all(isinstance(one, str) and one for one in said)


def _condition_of(record: JsonObject, context: RecordContext) -> tuple[str, JsonObject] | None:
    """The condition that the record is or holds, and its node."""
    if _CONDITION <= record.keys() <= _OF_A_CONDITION and "lastTransitionTime" in record:
        return context.node or "", record
    inner = record.get("condition")
    bare = inner if isinstance(inner, dict) else record
    names = (record.get(name) for name in _NODES if name != "name" or record.get("kind") == "Node")
    node = next((name for name in names if isinstance(name, str) and name), None)
    if node is None or bare.get("status") not in _STATUS or not isinstance(bare.get("type"), str):
        return None
    return (node, bare) if "reason" in bare else None


def _add_verdict(event: JsonObject, record: JsonObject, context: RecordContext, into: Opened) -> None:
    if event.get("isHealthy") is True:
        return  # each check says so once as its monitor starts, on every node
    at = timestamps.any_form(event.get("generatedTimestamp")) or timestamps.any_form(record.get("time"))
    if event is not record and "nodeName" not in event:
        # Logged where a module of the control plane runs, of a node whose name was cut off.
        context = context._replace(node=None, origin=Origin(context.origin.at))
    try:
        line = f"health event {orjson.dumps({'isHealthy': False, **event}).decode()}"
    except orjson.JSONEncodeError as error:
        into.unreadable.append(f"a health event: {error}")
    else:
        text.read(line, context, into, at=at)


def _add_states(component: str, states: list[object], context: RecordContext, into: Opened) -> None:
    for state in states:
        if isinstance(state, dict) and (state.get("health") == _UNHEALTHY or _is_state(state)):
            reason = str(state.get("reason") or "").replace('"', "'").replace("\n", " ")
            line = f'component is unhealthy component={component} reason="{reason}"'
            known = fields(state).origin()
            at = timestamps.any_form(state.get("time")) or known.at
            text.read(line, context, into, at=at, node=known.node or _machine(state))


def _machine(state: JsonObject) -> str | None:
    """The host by GPUd's name for its machine; None where that is a number of its own."""
    name = state.get("machine_id") or state.get("machineID")
    return name if isinstance(name, str) and _HOST.fullmatch(name) and not _NUMBER.fullmatch(name) else None
