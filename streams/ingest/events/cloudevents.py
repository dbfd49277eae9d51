"""CloudEvents in structured mode: the payload is in `data`, or in `data_base64` when it is not JSON.

`{"specversion": "1.0", "type", "source", "id", "time", "datacontenttype", "data"}`; in binary mode all but the data are Kafka
headers, and the value is read by itself. Version 0.3 says `datacontentencoding: base64`, version 0.1
`cloudEventsVersion` and `contentType`. Shape: cloudevents/spec, formats/json-format.md.
"""

from __future__ import annotations

import base64
import binascii

from streams.ingest import timestamps
from streams.ingest.fields import fields
from streams.ingest.records import JsonObject, Opened, Origin, RecordContext, merged

HINTS = (rb'"data_base64"\s{0,4}:', rb'"datacontentencoding"\s{0,4}:\s{0,4}"base64"')
"""Bytes (RE2) of events with encoded data."""


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add the event's data to `into.nested`; False for any other format."""
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
    """The origin in the event's own attributes, without `source`: that is a service, not a program on a host."""
    around = fields(
        {name: value for name, value in record.items() if name not in ("data", "source", "type", "subject")}
    )
    known = around.origin()
    at = timestamps.any_form(record.get("time")) or timestamps.any_form(record.get("eventTime"))
    return Origin(
        at, known.node, known.pod, known.container, known.source, certain=at is not None, sure=False
    )
