"""Answers of Prometheus' HTTP API, as scripts and federating jobs ship them: whole, or one series a record.

`{"status": "success", "data": {"resultType": "vector", "result": [{"metric": {"__name__": …}, "value": [1748779200.1, "79"]}]}}`;
a range has `values`, a list of such pairs. Thanos, Mimir and VictoriaMetrics answer in the same way; what VictoriaMetrics exports
has `values` and `timestamps` side by side, the latter in milliseconds (prometheus docs, HTTP API; victoriametrics docs, export).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streams.ingest import timestamps
from streams.ingest.metrics.labels import bounded, node_of
from streams.ingest.records import JsonObject, Opened, RecordContext
from streams.model.record import Sample

_NAME = "__name__"


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add the samples to `into`; False for any other format."""
    data = record.get("data")
    if isinstance(data, dict) and "resultType" in data and isinstance(found := data.get("result"), list):
        for series in found:
            if isinstance(series, dict):
                _series(series, context, into)
        return True
    return _series(record, context, into)


def _series(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    metric = record.get("metric")
    if not isinstance(metric, dict) or not isinstance(name := metric.get(_NAME), str):
        return False
    if not ("value" in record or "values" in record):
        return False
    if not context.interest.metric(name):
        return True
    labels = bounded(
        (str(key), text) for key, text in metric.items() if isinstance(text, str) and key != _NAME
    )
    node = node_of(labels) or context.node
    for at, value in _pairs(record):
        if into.full():
            break
        try:
            number = float(value)
        except (TypeError, ValueError):
            into.unreadable.append(f"prometheus sample {name[:80]!r}: value {str(value)[:40]!r} is no number")
            continue
        into.observations.append(Sample(name, number, timestamps.any_form(at), node, labels))
    return True


def _pairs(record: JsonObject) -> Iterator[tuple[Any, Any]]:
    """Time and value of each sample."""
    values, times = record.get("values"), record.get("timestamps")
    if isinstance(values, list) and isinstance(times, list):
        yield from zip(times, values, strict=False)
        return
    for pair in [record.get("value"), *(values if isinstance(values, list) else ())]:
        if isinstance(pair, list) and len(pair) == 2:
            yield pair[0], pair[1]
