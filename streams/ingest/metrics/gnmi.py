"""gnmic's output to Kafka, as events (format `event`, mostly in arrays) and as its JSON; and SONiC's own events.

`[{"name": "sub1", "timestamp": 1748779200000000000, "tags": {"interface_name": "Ethernet112", "source": "leaf-2:57400",
"subscription-name": "sub1"}, "values": {"/interfaces/interface/state/counters/in-pkts": "17"}}]`; the JSON format has `source`,
`timestamp` and `updates` of `{"Path", "values"}` (gnmic user guide, outputs and event format). Numbers are often texts.
Alarms and events, which have a severity and a text, are lines of the device.
"""

from __future__ import annotations

from typing import Any

from streams.ingest import lldp, timestamps
from streams.ingest.metrics import devices
from streams.ingest.metrics.labels import without_port
from streams.ingest.records import JsonObject, Opened, RecordContext

HINTS = (b"sonic-events-swss:(?:pfc-storm|if-state)",)
"""Bytes (RE2) of events that are read as lines: hints match those lines, not the events."""


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add samples and lines to `into`; False for any other format."""
    values, tags, source = record.get("values"), record.get("tags"), record.get("source")
    at = timestamps.any_form(record.get("timestamp"))
    if isinstance(tags, dict) and "source" in tags and ("values" in record or "deletes" in record):
        known = {str(name): value for name, value in tags.items() if isinstance(value, str)}
        device = devices.of_tags({"subscription-name": "", **known})
        _add(device, values, at, context, into)
        return True
    if isinstance(source, str) and isinstance(updates := record.get("updates"), list):
        for update in updates:
            if isinstance(update, dict) and isinstance(path := update.get("Path", ""), str):
                device = devices.of_tags({"source": source, "path": path})
                _add(device, update.get("values"), at, context, into)
        return True
    return _sonic(record, context, into)


def _add(device: devices.Device | None, values: Any, at: Any, context: RecordContext, into: Opened) -> None:
    if device is not None and isinstance(values, dict):
        if any("lldp" in str(path) for path in values) and lldp.read_fields(
            device.node, device.labels.get("interface"), values, at, into
        ):
            return
        if devices.add_alarm(device, values, at, into):
            return
        device = devices.with_admin_state(device, values)
        for path, value in values.items():
            devices.add(device, str(path), value, at, context, into)


def _sonic(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    found = False
    for name, event in record.items():
        if isinstance(event, dict) and name.startswith("sonic-events-"):
            source = record.get("source") or record.get("host")
            node = without_port(source) if isinstance(source, str) else None
            devices.add_event(node, name, event, timestamps.any_form(event.get("timestamp")), context, into)
            found = True
    return found
