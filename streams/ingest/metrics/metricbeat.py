"""Metricbeat's prometheus module: the samples of one set of labels in one record.

`{"@timestamp", "prometheus": {"metrics": {"DCGM_FI_DEV_GPU_TEMP": 61}, "labels": {"gpu": "0"}}}`; with `use_types` each
metric has its own map, `{"prometheus": {"DCGM_FI_DEV_GPU_TEMP": {"value": 61}, "labels": …}}`, a counter under `counter`.
The record's `host` is Metricbeat's own. Shape: Metricbeat reference, prometheus.collector and prometheus.remote_write.
"""

from __future__ import annotations

from collections.abc import Iterator

from streams.ingest import timestamps
from streams.ingest.metrics.labels import bounded, node_of
from streams.ingest.records import JsonObject, Opened, RecordContext
from streams.model.record import Sample

_TYPED = ("value", "counter")


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add the samples to `into`; False for any other format."""
    scraped = record.get("prometheus")
    if not isinstance(scraped, dict) or not isinstance(labels := scraped.get("labels"), dict):
        return False
    known = bounded((str(name), text) for name, text in labels.items() if isinstance(text, str))
    node, at = node_of(known) or context.node, timestamps.any_form(record.get("@timestamp"))
    into.observations += [
        Sample(name, value, at, node, known)
        for name, value in _numbers(scraped)
        if context.interest.metric(name)
    ]
    return True


def _numbers(scraped: JsonObject) -> Iterator[tuple[str, float]]:
    metrics = scraped.get("metrics")
    for name, value in (metrics if isinstance(metrics, dict) else scraped).items():
        if isinstance(value, dict):
            value = next((value[kind] for kind in _TYPED if kind in value), None)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield name, float(value)
