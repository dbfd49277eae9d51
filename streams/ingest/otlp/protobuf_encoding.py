"""OTLP as protobuf, the default of OpenTelemetry's kafkaexporter (`otlp_proto`).

Parsed with the classes that the OpenTelemetry project generates; their parser is written in C and bounded in depth. They are
imported with the first such record, so that a detector without any starts faster.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf.message import DecodeError

from streams.ingest import timestamps
from streams.ingest.metrics.labels import bounded
from streams.ingest.otlp import otlp_records
from streams.ingest.records import Opened, RecordContext


def read_logs(value: bytes, context: RecordContext, into: Opened) -> None:
    """Add the lines of an ExportLogsServiceRequest."""
    request = _parsed(_classes()[0], value, into)
    for resource in request.resource_logs if request is not None else ():
        place = _pairs(resource.resource.attributes)
        for scope in resource.scope_logs:
            records = scope.log_records
            for index in context.interest.parts([record.SerializeToString() for record in records]):
                if into.full():
                    return
                record = records[index]
                at = timestamps.at_nanos(record.time_unix_nano or record.observed_time_unix_nano)
                known = {**place, **_pairs(record.attributes)}
                body, severity = value_of(record.body), record.severity_text
                number = int(record.severity_number)
                otlp_records.read_log(known, body, at, severity, number, context, into)


def read_metrics(value: bytes, context: RecordContext, into: Opened) -> None:
    """Add the samples of an ExportMetricsServiceRequest."""
    request = _parsed(_classes()[1], value, into)
    for resource in request.resource_metrics if request is not None else ():
        place = otlp_records.resource_labels(_pairs(resource.resource.attributes))
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                if not context.interest.metric(metric.name):
                    continue
                kind = metric.WhichOneof("data")
                if kind is not None and into.full():
                    return
                for point in getattr(metric, kind).data_points if kind else ():
                    if not point.flags & otlp_records.NO_VALUE:
                        _read_point(metric.name, kind, point, place, context, into)


def _read_point(
    name: str, kind: str, point: Any, place: dict[str, str], context: RecordContext, into: Opened
) -> None:
    pairs = ((pair.key, pair.value) for pair in point.attributes)
    labels = bounded((key, value.string_value or otlp_records.text(value_of(value))) for key, value in pairs)
    numbers: tuple[tuple[str, float], ...]
    if kind in ("gauge", "sum"):
        numbers = (("", point.as_double or float(point.as_int)),)
    else:
        numbers = (("_count", float(point.count)), ("_sum", point.sum))
    at = timestamps.at_nanos(point.time_unix_nano)
    into.observations += otlp_records.samples(name, numbers, at, {**place, **labels}, context)


def value_of(value: Any, depth: int = otlp_records.MAX_DEPTH) -> Any:
    """The content of an AnyValue; None when it is none, or nested too deep."""
    kind = value.WhichOneof("value")
    if kind is None or not depth:
        return None
    inner = getattr(value, kind)
    match kind:
        case "bytes_value":
            return inner.decode("utf-8", "replace")
        case "array_value":
            return [value_of(one, depth - 1) for one in inner.values]
        case "kvlist_value":
            return {pair.key: value_of(pair.value, depth - 1) for pair in inner.values}
        case _:
            return inner


def _pairs(pairs: Any) -> otlp_records.Attributes:
    return {pair.key: pair.value.string_value or value_of(pair.value) for pair in pairs}


def _parsed(message: Any, value: bytes, into: Opened) -> Any:
    try:
        return message.FromString(value)
    except DecodeError as error:
        into.unreadable.append(f"OTLP protobuf: {error}")
        return None


@cache
def _classes() -> tuple[Any, Any]:
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    return ExportLogsServiceRequest, ExportMetricsServiceRequest
