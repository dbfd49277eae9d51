"""Log records from the clouds' own log services.

CloudWatch's subscriptions write batches: `{"messageType": "DATA_MESSAGE", "logGroup", "logStream", "logEvents": [{"id",
"timestamp", "message"}]}`. Azure's diagnostic settings write `{"records": [{"time", "category", "properties": {"Computer",
"SyslogMessage"}}]}`. A push subscription of Google's Pub/Sub wraps what was published: `{"message": {"data": base64,
"attributes"}, "subscription"}`. Shapes: CloudWatch Logs, subscription filters; Azure Monitor, resource logs; Pub/Sub, push.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from streams.ingest import timestamps
from streams.ingest.fields import fields
from streams.ingest.logs import flat_record
from streams.ingest.records import JsonObject, Opened, Origin, RecordContext, merged

HINTS = (rb'"subscription"\s{0,4}:\s{0,4}"projects/',)
"""Bytes (RE2) of records with encoded data."""

_AZURE = frozenset({"category", "properties"})


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add the records to `into.nested`; False for any other format."""
    if isinstance(events := record.get("logEvents"), list) and not _has_text(record):
        _cloudwatch(events, context, into)
    elif _are_records(records := record.get("records")) and not _has_text(record):
        into.nested.append((records, context.within(context.origin)))
    elif record.keys() >= _AZURE and isinstance(inner := record["properties"], dict):
        around = {name: value for name, value in record.items() if name not in _AZURE}
        into.nested.append(({**around, **inner}, context.within(context.origin)))
    elif isinstance(message := record.get("message"), dict) and "subscription" in record:
        return _pubsub(message, context, into)
    else:
        return False
    return True


def _are_records(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) for one in value)


def _has_text(record: JsonObject) -> bool:
    """True for a line that has a list besides: a batch has no text of its own."""
    return flat_record.text_of(fields(record)) is not None


def _cloudwatch(events: list[Any], context: RecordContext, into: Opened) -> None:
    for event in events:
        if isinstance(event, dict) and isinstance(text := event.get("message"), str):
            at = timestamps.any_form(event.get("timestamp"))
            origin = Origin(at, certain=at is not None)
            into.nested.append((text, context.within(merged(origin, context.origin))))
        else:
            into.unreadable.append(f"a CloudWatch log event without a message: {str(event)[:80]}")


def _pubsub(message: JsonObject, context: RecordContext, into: Opened) -> bool:
    if not isinstance(data := message.get("data"), str):
        return False
    try:
        inner = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        into.unreadable.append(f"Pub/Sub message {str(message.get('messageId'))[:80]!r}: data: {error}")
        return True
    attributes = message.get("attributes")
    origin = fields(attributes).origin() if isinstance(attributes, dict) else Origin()
    into.nested.append((inner, context.within(merged(origin, context.origin))))
    return True
