"""CloudEvents in their structured form: what happened is in `data`, or in `data_base64` when it is not JSON.

`{"specversion": "1.0", "type", "source", "id", "time", "datacontenttype", "data"}`; in the binary form all but the data are
Kafka headers, and the value is read as what it is. Version 0.3 says `datacontentencoding: base64`, version 0.1
`cloudEventsVersion` and `contentType`. Shape: cloudevents/spec, formats/json-format.md.
"""

from __future__ import annotations

import base64
import binascii

from streams.ingest import timestamps
from streams.ingest.fields import fields
from streams.ingest.records import JsonObject, Opened, Origin, RecordContext, merged

HINTS = (rb'"data_base64"\s{0,4}:', rb'"datacontentencoding"\s{0,4}:\s{0,4}"base64"')
"""Bytes (RE2) of events whose data do not show in them."""


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add the event's data to what is opened next; False when the record is of another shape."""
    if not ({"specversion", "cloudEventsVersion"} & record.keys()) or not (
        {"type", "eventType"} & record.keys()
    ):
        return False
    data = record.get("data")
    encoded = record.get("data_base64")
    if encoded is None and record.get("datacontentencoding") == "base64":
        encoded = data
    if isinstance(encoded, str):
        try:
            data = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError) as error:
            into.unreadable.append(f"CloudEvent {str(record.get('id'))[:80]!r}: data_base64: {error}")
            return True
    if isinstance(data, (dict, list, str, bytes)):
        into.nested.append((data, context.within(merged(_origin(record), context.origin))))
    return True


def _origin(record: JsonObject) -> Origin:
    """What the event's own attributes say; its `source` names a service, not a program on a host."""
    around = fields(
        {name: value for name, value in record.items() if name not in ("data", "source", "type", "subject")}
    )
    said = around.origin()
    at = timestamps.any_form(record.get("time")) or timestamps.any_form(record.get("eventTime"))
    return Origin(at, said.node, said.pod, said.container, said.source, certain=at is not None, sure=False)
