"""Redfish events of management controllers, and entries of their logs.

`{"@odata.type": "#Event.v1_7_0.Event", "Context", "Events": [{"Message", "MessageId", "MessageSeverity", "EventTimestamp"}]}` and
`{"@odata.type": "#LogEntry.v1_19_0.LogEntry", "Created", "Message", "EntryCode", "Severity"}`. Their messages are those of the
controller's event log. Collectors also write entries and their lists without a type, `{"MessageId": "PSU0003", "Severity",
"Message"}`, and those of a sensor's log, `{"sensor", "event", "dir"}`, under many names. What a message is called in its registry
(`StorageDevice.1.1.DriveFailure`) is part of what it says: some controllers send nothing else.
A part that was polled, `{"@odata.type": "#PowerSupply.v1_5_0.PowerSupply", "Status": {"State", "Health"}}`, says how it is: one
that is critical becomes such an entry.
A controller does not know the name of its node, so the collector must add it.
Shape: DMTF Redfish, schemas Event and LogEntry; Resource for Status, Power and Thermal for their lists.
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
    rb'"[Mm]essage_?I[dD]"\s{0,4}:\s{0,4}"[A-Za-z]',
    rb'"(?:event_)?(?:dir|direction|state|assertion)"\s{0,4}:\s{0,4}(?:"(?i:deas|as)sert|true)',
    rb'"event"\s{0,4}:\s{0,4}"(?:(?:Lower|Upper) (?:[Nn]on|[Cc]rit)|Power Supply|Uncorrect|Redundancy L|Failure d|Predictive)',
)
"""Bytes (RE2) of such records. Families match their messages only in lines of a controller."""

_SOURCE = "redfish"
_TYPES = ("#Event.", "#LogEntry.")
_RESOURCE = re.compile(
    r"#(?P<kind>PowerSupply|Power|PowerSubsystem|Fan|Thermal|ThermalSubsystem|Drive|Memory|Processor|LeakDetector|LeakDetection"
    r"|CoolingUnit|CoolingLoop|Pump|Port|NetworkAdapter|PCIeDevice|Sensor|Battery|Storage|StorageController)\.v\d"
)
"""Types of resources whose health is their own: a system's, a chassis' or a manager's is that of their parts."""
_LISTS = {
    "PowerSupplies": "#PowerSupply.v1",
    "Fans": "#Fan.v1",
    "Temperatures": "Temperature",
    "Voltages": "Voltage",
    "Redundancy": "Redundancy",
}
"""Parts within the resources Power and Thermal, as controllers had them before 2020.4."""
_SAID = {
    "Leak Detector": "reports a leak",
    "Leak Detection": "reports a leak",
    "Temperature": "transition to critical",
}
"""What the words of a controller's log are for a part that is critical; of all others it says that they failed."""
_PRESENT = frozenset({"Enabled", "None", "UnavailableOffline", "StandbyOffline", "InTest"})
_STATES = frozenset({"LineInputStatus", "DetectorState", "FailurePredicted", "LinkStatus", "ReadingCelsius"})
_MAX_EVENTS = 1000
_CODE = re.compile(r"[A-Z]{3,8}\d{1,6}")
_KEY = re.compile(
    r"(?!(?:Base|TaskEvent|Update|License|UserEvent)\b)[A-Za-z]\w{2,40}(?:\.\d{1,4}){1,3}\.(?P<key>\w{2,80})"
)
"""A message's name behind its registry and version: `ResourceEvent.1.0.ResourceErrorsDetected`. Some speak of requests alone."""
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])|_")
_CODES = ("MessageId", "MessageID", "messageId", "message_id")
_TEXTS = ("Message", "message", "Description")
_SEVERITIES = ("MessageSeverity", "Severity", "severity")
_SENSORS = ("sensor", "sensor_name", "Sensor", "SensorName", "sensorName", "name")
_SENSOR_TYPES = ("sensor_type", "SensorType", "sensorType", "type")
_DIRECTIONS = ("dir", "direction", "event_direction", "event_dir", "state", "assertion")
_HARMLESS = frozenset({"ok", "informational", "information", "info", "normal", "nominal"})


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add the messages to `into`, each as a line of the controller; False for any other format."""
    events = record.get("Events")
    listed = isinstance(events, list) and any(isinstance(one, dict) and _coded(one) for one in events)
    if not listed and not str(record.get("@odata.type")).startswith(_TYPES):
        if _RESOURCE.match(str(record.get("@odata.type"))) is not None:
            return _read_resource(record, context, into)
        return _read_untyped(record, context, into)
    about = fields({name: value for name, value in record.items() if name not in ("Events", "Links", "Oem")})
    node = about.origin().node
    for event in events[:_MAX_EVENTS] if isinstance(events, list) else [record]:
        if isinstance(event, dict) and (message := _message(event)):
            at = timestamps.any_form(event.get("EventTimestamp")) or timestamps.any_form(event.get("Created"))
            line = _line(event, message, at or context.received_at)
            text.read(line, context, into, at=at, node=node, source=_SOURCE)
    return True


def _read_resource(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """What a collector polled: a part that the controller calls critical, by itself or in the list of its chassis.

    One that is not there, or was switched off, is no fault; what is well is not news.
    """
    origin = fields({name: value for name, value in record.items() if name not in ("Links", "Oem")}).origin()
    bmc = record.get("bmc")
    node = origin.node or (bmc if isinstance(bmc, str) else None)
    at = origin.at or context.received_at
    found = [(str(record.get("@odata.type")), record)]
    for name, kind in _LISTS.items():
        parts = record.get(name)
        found += (
            [(kind, one) for one in parts[:_MAX_EVENTS] if isinstance(one, dict)]
            if isinstance(parts, list)
            else []
        )
    for type_, part in found:
        status = part.get("Status")
        if not isinstance(status, dict):
            continue
        health = status.get("Health")
        if health != "Critical" or str(status.get("State")) not in _PRESENT:
            continue
        known = _RESOURCE.match(type_)
        words = _WORDS.sub(" ", known["kind"]) if known is not None else type_
        name = _first(part, ("Name", "MemberId", "Id")) or ""
        said = f"{words} {name}" if words.lower() not in name.lower() else name
        seen = [f"{key} {value}" for key, value in part.items() if key in _STATES and isinstance(value, str)]
        code = "".join(words.split()) + "Health"
        text.read(
            f"{at.isoformat()} {_SOURCE}: Severity: {health}, Category: System, MessageID: {code}, "
            f"Message: {said} {_SAID.get(words, 'failed')}: {', '.join([f'Health {health}', *seen])}",
            context,
            into,
            at=at,
            node=node,
            source=_SOURCE,
        )
    return True


def _read_untyped(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """The same for an entry that a collector took out of its envelope."""
    severity = _first(record, _SEVERITIES)
    entry: str | None
    if code := _coded(record):
        message = _message(record)
        if not message:
            return False
        entry = f"Severity: {severity or 'Unknown'}, Category: System, MessageID: {code}, Message: {message}"
    else:
        entry = _of_a_sensor(record, severity)
    if entry is None:
        return False
    origin = fields(record).origin()
    at = timestamps.any_form(record.get("EventTimestamp")) or origin.at or context.received_at
    bmc = record.get("bmc")
    node = origin.node or (bmc if isinstance(bmc, str) else None)
    text.read(f"{at.isoformat()} {_SOURCE}: {entry}", context, into, at=at, node=node, source=_SOURCE)
    return True


def _of_a_sensor(record: JsonObject, severity: str | None) -> str | None:
    """`sensor | event | direction` of an entry of a sensor's log; None for any other record."""
    sensor, kind, event = (_first(record, names) for names in (_SENSORS, _SENSOR_TYPES, ("event", "Event")))
    direction: object = next((record[name] for name in _DIRECTIONS if name in record), None)
    if sensor is None or event is None:
        return None
    by_type = any(name.lower().replace("_", "") == "sensortype" for name in record)
    if isinstance(direction, bool):
        direction = "Asserted" if direction else "Deasserted"
    if direction is None and (by_type or ("sensor" in record and severity is not None)):
        direction = "Deasserted" if str(severity).lower() in _HARMLESS else "Asserted"
    if not isinstance(direction, str) or not direction.lower().startswith(("assert", "deassert")):
        return None
    named = f"{kind} {sensor}" if kind and kind.lower() not in sensor.lower() else sensor
    return f"{named} | {event} | {'Asserted' if direction.lower().startswith('assert') else 'Deasserted'}"


def _coded(record: JsonObject) -> str | None:
    """The vendor's code of an entry, or its message's name in a registry; None where it has neither."""
    code = _first(record, _CODES)
    if code is None:
        return None
    key = _KEY.fullmatch(code)
    return key["key"] if key is not None else code if _CODE.fullmatch(code) else None


def _message(record: JsonObject) -> str:
    """What an entry says: its text, and in words what its message is called and is about."""
    message = " ".join((_first(record, _TEXTS) or "").split())
    code = _coded(record)
    if code is None or _CODE.fullmatch(code):
        return message
    arguments = record.get("MessageArgs")
    if not message and isinstance(arguments, list):
        message = " ".join(str(one) for one in arguments[:8])
    return f"{message} ({_WORDS.sub(' ', code)})"


def _first(record: JsonObject, names: tuple[str, ...]) -> str | None:
    return next((value for name in names if isinstance(value := record.get(name), str) and value), None)


def _line(event: JsonObject, message: str, at: datetime) -> str:
    """The message as a line of the controller's daemon, with the direction (assert, deassert) of a log entry.

    What the controller rates OK is no fault, whatever its words: "is now below the upper critical threshold".
    """
    code: Any = event.get("EntryCode")
    if isinstance(code, list) and code and isinstance(code[0], dict):
        code = code[0].get("Member")  # as the first versions of the schema have it
    if code is None and (event.get("MessageSeverity") or event.get("Severity")) == "OK":
        code = "Deassert"
    severity, named = _first(event, _SEVERITIES), _coded(event)
    said = " ".join(message.split())
    if named is not None and severity is not None:
        said = f"Severity: {severity}, Category: System, MessageID: {named}, Message: {said}"
    line = f"{at.isoformat()} {_SOURCE}: {said}"
    return f"{line} | {code}ed" if code in ("Assert", "Deassert") else line
