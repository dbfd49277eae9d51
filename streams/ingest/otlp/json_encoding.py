"""OTLP as JSON (kafkaexporter, encoding `otlp_json`; Fluent Bit's and Vector's too).

`{"resourceLogs": [{"resource": {"attributes": […]}, "scopeLogs": [{"logRecords": [{"timeUnixNano": "…", "body": {"stringValue":
…}}]}]}]}` and likewise `resourceMetrics`, `scopeMetrics`, `metrics`. 64-bit integers are texts, zeros and empty fields are
left out (opentelemetry-proto, docs/specification). Names may be written with underscores, and old collectors have
`instrumentationLibraryLogs`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from typing import Any

import orjson

from streams.ingest import timestamps
from streams.ingest.metrics.labels import bounded
from streams.ingest.otlp import otlp_records
from streams.ingest.records import JsonObject, Opened, RecordContext

_LOGS = ("resourceLogs", "resource_logs")
_METRICS = ("resourceMetrics", "resource_metrics")
_TRACES = ("resourceSpans", "resource_spans")
_SCOPE_LOGS = ("scopeLogs", "scope_logs", "instrumentationLibraryLogs")
_OF_A_LOG_RECORD = (
    *("timeUnixNano", "time_unix_nano", "observedTimeUnixNano", "observed_time_unix_nano"),
    *("severityNumber", "severity_number"),
)
_SCOPE_METRICS = ("scopeMetrics", "scope_metrics", "instrumentationLibraryMetrics")


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add lines and samples to `into`; False for any other format."""
    whole = False
    for names, single, reader in (
        (_LOGS, _SCOPE_LOGS, _read_logs),
        (_METRICS, _SCOPE_METRICS, _read_metrics),
    ):
        resources = _list(record, names)
        if not resources and _list(record, single):
            resources = [record]  # one resource by itself, as some exporters split a request
        whole = whole or bool(resources) or any(name in record for name in names)
        for resource in resources:
            reader(resource, context, into)
    if not whole and _is_log_record(record):
        _read_log(record, _place(record.get("resource")), context, into)
        return True
    if not whole and any(name in record for name in _TRACES):
        into.unreadable.append("OpenTelemetry traces are not read: send logs and metrics")
        return True
    return whole


def _read_logs(resource: JsonObject, context: RecordContext, into: Opened) -> None:
    place = _attributes(_of(resource, "resource"))
    for scope in _list(resource, _SCOPE_LOGS):
        records = _list(scope, ("logRecords", "log_records", "logs"))
        try:
            parts = [orjson.dumps(one) for one in records]
        except orjson.JSONEncodeError as error:
            into.unreadable.append(f"OTLP log records: {error}")
            continue
        for index in context.interest.parts(parts):
            if into.full():
                return
            _read_log(records[index], place, context, into)


def _read_log(one: JsonObject, place: otlp_records.Attributes, context: RecordContext, into: Opened) -> None:
    at = _at(one, "timeUnixNano", "time_unix_nano")
    at = at or _at(one, "observedTimeUnixNano", "observed_time_unix_nano")
    severity = _first(one, "severityText", "severity_text")
    known = {**place, **_place(one)}
    number = _first(one, "severityNumber", "severity_number")
    body = value_of(one.get("body"))
    otlp_records.read_log(known, body, at, str(severity or ""), number, context, into)


def _is_log_record(record: JsonObject) -> bool:
    """True for a log record by itself: some processors split a request down to it, and leave its resource beside it."""
    return value_of(record.get("body")) is not None and any(name in record for name in _OF_A_LOG_RECORD)


def _place(holder: object) -> otlp_records.Attributes:
    """The attributes of a resource or record: pairs as the protocol has them, or the map that a processor made of them."""
    if not isinstance(holder, dict):
        return {}
    attributes = holder.get("attributes")
    if isinstance(attributes, dict):
        return {str(name): value for name, value in attributes.items()}
    if isinstance(attributes, list):
        return _attributes(holder)
    # A record's own keys (`body`, `timeUnixNano`) are none of its attributes; those of a resource have dotted names.
    return {str(name): value for name, value in holder.items() if "." in str(name)}


def _read_metrics(resource: JsonObject, context: RecordContext, into: Opened) -> None:
    place = otlp_records.resource_labels(_attributes(_of(resource, "resource")))
    for scope in _list(resource, _SCOPE_METRICS):
        for metric in _list(scope, ("metrics",)):
            name = metric.get("name")
            if not isinstance(name, str) or not name or not context.interest.metric(name):
                continue
            for data in metric.values():
                for point in _list(data, ("dataPoints", "data_points")) if isinstance(data, dict) else ():
                    if into.full():
                        return
                    numbers = list(_numbers(point))
                    if numbers and not (_integer(point.get("flags")) or 0) & otlp_records.NO_VALUE:
                        labels = _labels(point)
                        at = _at(point, "timeUnixNano", "time_unix_nano")
                        into.observations += otlp_records.samples(
                            name, numbers, at, {**place, **labels}, context
                        )


def _labels(point: JsonObject) -> dict[str, str]:
    try:  # fast path: nearly always all values are texts
        return bounded([(pair["key"], pair["value"]["stringValue"]) for pair in point["attributes"]])
    except (KeyError, TypeError):
        return bounded((name, otlp_records.text(value)) for name, value in _attributes(point).items())


def _numbers(point: JsonObject) -> Iterator[tuple[str, float]]:
    value = _first(point, "asDouble", "as_double", "asInt", "as_int")
    if value is not None:
        names: tuple[tuple[str, Any], ...] = (("", value),)
    else:
        names = (("_count", point.get("count")), ("_sum", point.get("sum")))
    for suffix, number in names:
        if isinstance(number, (int, float, str)) and not isinstance(number, bool):
            try:
                yield suffix, float(number)
            except ValueError:
                continue


def value_of(value: object, depth: int = otlp_records.MAX_DEPTH) -> Any:
    """The content of an AnyValue; None when it is none, or nested too deep."""
    if not isinstance(value, dict) or not depth:
        return None
    for kind, inner in value.items():
        match kind.replace("_value", "Value"):
            case "stringValue" | "boolValue" | "doubleValue":
                return inner
            case "intValue":
                return _integer(inner)
            case "bytesValue" if isinstance(inner, str):
                return _bytes(inner)
            case "arrayValue" if isinstance(inner, dict):
                return [value_of(one, depth - 1) for one in _list(inner, ("values",))]
            case "kvlistValue" if isinstance(inner, dict):
                return _pairs(_list(inner, ("values",)), depth - 1)
    return None


def _attributes(holder: JsonObject) -> otlp_records.Attributes:
    return _pairs(_list(holder, ("attributes",)), otlp_records.MAX_DEPTH)


def _pairs(pairs: list[JsonObject], depth: int) -> otlp_records.Attributes:
    return {str(pair.get("key")): value_of(pair.get("value"), depth) for pair in pairs}


def _bytes(encoded: str) -> str:
    try:
        return base64.b64decode(encoded, validate=True).decode("utf-8", "replace")
    except (binascii.Error, ValueError):
        return encoded


def _list(holder: JsonObject, names: tuple[str, ...]) -> list[JsonObject]:
    """The objects in the first list under one of the names."""
    for name in names:
        found = holder.get(name)
        if isinstance(found, list):
            return [one for one in found if isinstance(one, dict)]
    return []


def _of(holder: JsonObject, name: str) -> JsonObject:
    found = holder.get(name)
    return found if isinstance(found, dict) else {}


def _first(holder: JsonObject, *names: str) -> Any:
    return next((holder[name] for name in names if holder.get(name) is not None), None)


def _integer(value: object) -> int | None:
    try:
        number = int(value) if isinstance(value, (int, float, str)) else None
    except (ValueError, OverflowError):
        return None
    return number if number is not None and -(2**63) <= number < 2**64 else None


def _at(holder: JsonObject, *names: str) -> Any:
    value = _first(holder, *names)
    return (
        timestamps.at_nanos(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else None
    )
