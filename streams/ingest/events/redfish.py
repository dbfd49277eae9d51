"""Redfish events of management controllers, and entries of their logs.

`{"@odata.type": "#Event.v1_7_0.Event", "Context", "Events": [{"Message", "MessageId", "MessageSeverity", "EventTimestamp"}]}` and
`{"@odata.type": "#LogEntry.v1_19_0.LogEntry", "Created", "Message", "EntryCode", "Severity"}`. Their messages are those of the
controller's event log. Collectors also write entries without a type, `{"MessageId": "PSU0003", "Severity", "Message"}`,
and those of a sensor's log, `{"sensor", "event", "dir"}`.
A controller does not know the name of its node, so the collector must add it.
Shape: DMTF Redfish, schemas Event and LogEntry.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from streams.ingest import timestamps
from streams.ingest.fields import fields
from streams.ingest.logs import text
from streams.ingest.records import JsonObject, Opened, RecordContext

HINTS = (
    rb'"@odata\.type"\s{0,4}:\s{0,4}"#(?:Event|LogEntry)\.',
    rb'"MessageId"\s{0,4}:\s{0,4}"[A-Z]{3}\d',
    rb'"dir"\s{0,4}:\s{0,4}"(?:Deas|As)sert',
)
"""Bytes (RE2) of such records. Families match their messages only in lines of a controller."""

_SOURCE = "redfish"
_TYPES = ("#Event.", "#LogEntry.")
_MAX_EVENTS = 1000
_CODE = re.compile(r"[A-Z]{3,8}\d{1,6}")


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add the messages to `into`, each as a line of the controller; False for any other format."""
    if not str(record.get("@odata.type")).startswith(_TYPES):
        return _read_untyped(record, context, into)
    events = record.get("Events")
    about = fields({name: value for name, value in record.items() if name not in ("Events", "Links", "Oem")})
    node = about.origin().node
    for event in events[:_MAX_EVENTS] if isinstance(events, list) else [record]:
        if isinstance(event, dict) and isinstance(message := event.get("Message"), str):
            at = timestamps.any_form(event.get("EventTimestamp")) or timestamps.any_form(event.get("Created"))
            line = _line(event, message, at or context.received_at)
            text.read(line, context, into, at=at, node=node, source=_SOURCE)
    return True


def _read_untyped(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """The same for an entry that a collector took out of its envelope."""
    code, message, severity = (record.get(name) for name in ("MessageId", "Message", "Severity"))
    sensor, event, direction = (record.get(name) for name in ("sensor", "event", "dir"))
    if isinstance(code, str) and isinstance(message, str) and isinstance(severity, str):
        if _CODE.fullmatch(code) is None:
            return False
        entry = (
            f"Severity: {severity}, Category: System, MessageID: {code}, Message: {' '.join(message.split())}"
        )
    elif isinstance(sensor, str) and isinstance(event, str) and direction in ("Asserted", "Deasserted"):
        entry = f"{sensor} | {event} | {direction}"
    else:
        return False
    origin = fields(record).origin()
    at = timestamps.any_form(record.get("EventTimestamp")) or origin.at or context.received_at
    bmc = record.get("bmc")
    node = origin.node or (bmc if isinstance(bmc, str) else None)
    text.read(f"{at.isoformat()} {_SOURCE}: {entry}", context, into, at=at, node=node, source=_SOURCE)
    return True


def _line(event: JsonObject, message: str, at: datetime) -> str:
    """The message as a line of the controller's daemon, with the direction (assert, deassert) of a log entry.

    What the controller rates OK is no fault, whatever its words: "is now below the upper critical threshold".
    """
    code: Any = event.get("EntryCode")
    if isinstance(code, list) and code and isinstance(code[0], dict):
        code = code[0].get("Member")  # as the first versions of the schema have it
    if code is None and (event.get("MessageSeverity") or event.get("Severity")) == "OK":
        code = "Deassert"
    line = f"{at.isoformat()} {_SOURCE}: {' '.join(message.split())}"
    return f"{line} | {code}ed" if code in ("Assert", "Deassert") else line
