"""The corpus' records as other bytes that say the same: OTLP as protobuf, anything compressed."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any

import cramjam
import zstandard
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

_REQUESTS: dict[str, Any] = {
    "resourceLogs": ExportLogsServiceRequest,
    "resourceMetrics": ExportMetricsServiceRequest,
}


def as_protobuf(document: Any) -> bytes | None:
    """The same request as the OpenTelemetry project's own classes write it; None for what is no request."""
    for name, request in _REQUESTS.items():
        if isinstance(document, dict) and name in document:
            written: bytes = ParseDict(document, request()).SerializeToString()
            return written
    return None


def compressed(value: bytes) -> Iterator[bytes]:
    """The value as each shipper compresses it."""
    yield gzip.compress(value)
    yield zstandard.compress(value)
    yield bytes(cramjam.lz4.compress(value))
    yield bytes(cramjam.snappy.compress(value))
    yield gzip.compress(zstandard.compress(value))
