"""prometheus-kafka-adapter, JSON and Avro-JSON: one sample a record, the value as text (`"NaN"` and `"+Inf"` included).

`{"timestamp": "2026-01-02T12:00:00Z", "value": "79", "name": "DCGM_FI_DEV_XID_ERRORS", "labels": {…}}`; seconds only,
no key by default. Avro-JSON has the same fields (schemas/metric.avsc), and names the type where the schema allows
several: `{"string": "79"}`. Shape: Telefonica/prometheus-kafka-adapter, serializers.go; Avro specification, JSON encoding.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

import orjson

from streams.ingest import timestamps
from streams.ingest.metrics.labels import bounded, node_of
from streams.ingest.records import Interest, JsonObject, Opened, RecordContext
from streams.model.record import Sample

_BEGINNINGS = (b'{"labels":{', b'{"timestamp":"')
_KEYS = {"labels", "name", "timestamp", "value"}
_UNION = frozenset({"string", "double", "float", "long", "int", "map"})
_USUAL_BYTES = 4096
_ONLY_TEXT = frozenset({str})


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add the sample to `into`; False for any other format."""
    if not _KEYS - {"timestamp"} <= record.keys():
        return False
    record = {key: _of_union(record.get(key)) for key in _KEYS}
    name, labels, value = record["name"], record["labels"], record["value"]
    if not isinstance(name, str) or not isinstance(labels, dict):
        return False
    if not context.interest.metric(name):
        return True
    record["labels"] = {name: _of_union(value) for name, value in labels.items()}
    sample = _sample(record, context.node, usual=False)
    if sample is None:
        into.unreadable.append(f"prometheus sample {name[:80]!r}: value {str(value)[:40]!r} is no number")
    else:
        into.observations.append(sample)
    return True


def read_single(value: bytes, interest: Interest) -> Sample | str | None:
    """The sample of a record that is one sample, as nearly all on a topic of metrics are; only its name when no rule reads it.

    None for any other record, and for a broken one: `open_record` says what is wrong. This takes a tenth of its time.
    """
    if not value.startswith(_BEGINNINGS) or len(value) > _USUAL_BYTES:
        return None
    try:
        record = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    if record.keys() != _KEYS or not isinstance(record["labels"], dict):
        return None
    name = record["name"]
    if not isinstance(name, str):
        return None
    return _sample(record, None, usual=True) if interest.metric(name) else name


def _of_union(value: object) -> object:
    """The value of an Avro union: its JSON wraps every value in the name of its type."""
    if isinstance(value, dict) and len(value) == 1:
        ((kind, inner),) = value.items()
        return inner if kind in _UNION else value
    return value


def _sample(record: JsonObject, node: str | None, *, usual: bool) -> Sample | None:
    value = record["value"]
    try:
        number = float(value) if isinstance(value, (str, int, float)) else None
    except ValueError:
        number = None
    if number is None:
        return None
    labels = record["labels"]
    if not usual or not _ONLY_TEXT.issuperset(map(type, labels.values())):
        labels = bounded((name, text) for name, text in labels.items() if isinstance(text, str))
    at = record.get("timestamp")
    at = _at(at) if isinstance(at, str) else timestamps.any_form(at)
    return Sample(record["name"], number, at, node_of(labels) or node, labels)


@lru_cache(1024)
def _at(text: str) -> datetime | None:
    """Cached: the thousands of samples of a scrape have one time."""
    return timestamps.any_form(text)
