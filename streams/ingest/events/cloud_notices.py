"""Maintenance notices of the clouds, read as the line that an agent on the machine logs for them.

Azure's scheduled events, by themselves or in what a handler logs: `{"DocumentIncarnation": 2, "Events": [{"EventType":
"Redeploy", "EventStatus", "NotBefore", "Resources": […]}]}`. Amazon's EventBridge: `{"detail-type": "EC2 Spot Instance
Interruption Warning", "source": "aws.ec2", "detail": {"instance-id"}}`. aws-node-termination-handler logs JSON with the notice in
`event`, beside its message; Karpenter, with the node that it deletes for one (`{"message", "messageKind", "Node": {"name"}}`).
Google's audit log: `{"protoPayload": {"methodName": "compute.instances.hostError", "resourceName", "status"}}`, and its
metadata server `{"maintenance_status", "window_start_time"}`. Oracle's events are CloudEvents, by type: `{"eventType":
"com.oraclecloud.computeapi.instancemaintenance.begin", "data": {"resourceName"}}`. Shapes: Azure Metadata Service; EventBridge,
events of EC2 and Health; aws-node-termination-handler, pkg/logging; karpenter-provider-aws, pkg/controllers/interruption;
Cloud Audit Logs, system events; Compute Engine metadata server; OCI, events of Compute.
"""

from __future__ import annotations

from typing import Any

import orjson

from streams.ingest import timestamps
from streams.ingest.logs import text
from streams.ingest.records import JsonObject, Opened, RecordContext

_NOTED = "Adding new event to the event store"
_KARPENTERS = "initiating delete from interruption message"
_ORACLE = "com.oraclecloud.computeapi."
_MAX_EVENTS = 100
_MAX_RESOURCES = 2000


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add the notices to `into`; False for any other format."""
    document = _scheduled(record)
    if document is not None:
        for event in document["Events"][:_MAX_EVENTS]:
            if isinstance(event, dict):
                for resource in _resources(event):
                    _add(_line_of(event, resource), record, context, into)
        return True
    if str(record.get("source")).startswith("aws.") and isinstance(kind := record.get("detail-type"), str):
        _add_json(f"{kind}: ", record.get("detail"), record, context, into)
        return True
    if isinstance(audit := record.get("protoPayload"), dict) and isinstance(
        method := audit.get("methodName"), str
    ):
        _add(_audited(method, audit), record, context, into)
        return True
    if isinstance(kind := record.get("eventType"), str) and kind.startswith(_ORACLE):
        _add_json(f"{kind}: ", record.get("data"), record, context, into)
        return True
    if "maintenance_status" in record and "window_start_time" in record:
        _add_json("upcomingMaintenance: ", record, record, context, into)
        return True
    if record.get("message") == _NOTED and isinstance(event := record.get("event"), dict):
        _add_json(f"{_NOTED} event=", event, record, context, into)
        return True
    if record.get("message") == _KARPENTERS and (node := _karpenters_node(record)) is not None:
        notice = {"messageKind": record.get("messageKind"), "NodeName": node}
        _add_json(f"{_KARPENTERS}: ", notice, record, context, into)
        return True
    return False


def _karpenters_node(record: JsonObject) -> str | None:
    """The node that it deletes; None where it logs a NodeClaim alone, which is no node's name."""
    node = record.get("Node", record.get("node"))
    name = node.get("name") if isinstance(node, dict) else node
    return name if isinstance(name, str) and name else None


def _scheduled(record: JsonObject) -> dict[str, Any] | None:
    for part in (record, *record.values()):
        if isinstance(part, dict) and "DocumentIncarnation" in part and isinstance(part.get("Events"), list):
            return part
    return None


def _resources(event: JsonObject) -> list[str]:
    """The machines of an event, each of which gets a line of its own: one for all, where it names none."""
    resources = event.get("Resources")
    return list(map(str, resources[:_MAX_RESOURCES])) if isinstance(resources, list) and resources else [""]


def _line_of(event: JsonObject, resource: str) -> str:
    due = str(event.get("NotBefore") or "").replace('"', "")
    return (
        f"EventType={event.get('EventType')} EventStatus={event.get('EventStatus')} "
        f'NotBefore="{due}" Resources=[{resource}]'
    )


def _audited(method: str, audit: JsonObject) -> str:
    status = audit.get("status")
    said = status.get("message") if isinstance(status, dict) else None
    return f"{method} {audit.get('resourceName') or ''}: {said or ''}"


def _add(line: str, record: JsonObject, context: RecordContext, into: Opened) -> None:
    at = timestamps.any_form(record.get("time")) or timestamps.any_form(record.get("@timestamp"))
    at = at or timestamps.any_form(record.get("eventTime")) or timestamps.any_form(record.get("timestamp"))
    text.read(line.replace("\n", " "), context, into, at=at)


def _add_json(prefix: str, notice: object, record: JsonObject, context: RecordContext, into: Opened) -> None:
    try:
        line = prefix + orjson.dumps(notice).decode()
    except orjson.JSONEncodeError as error:
        into.unreadable.append(f"a notice of a cloud: {error}")
    else:
        _add(line, record, context, into)
