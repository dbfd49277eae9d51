"""Vector's metrics as JSON, by themselves or wrapped in `metric` (codecs `json` and `native_json`).

`{"name": "DCGM_FI_DEV_GPU_TEMP", "tags": {"gpu": "0"}, "timestamp": "…Z", "kind": "absolute", "gauge": {"value": 61.0}}`; a tag
may have several values (`metric_tag_values = "full"`). An `incremental` metric counts since the last record, so it is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streams.ingest import timestamps
from streams.ingest.metrics.labels import bounded, node_of
from streams.ingest.records import JsonObject, Opened, RecordContext
from streams.model.record import Sample

_SINGLE = ("gauge", "counter")
_DISTRIBUTIONS = ("aggregated_histogram", "aggregated_summary")


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add the samples to `into`; False for any other format."""
    wrapped = record.get("metric")
    metric = wrapped if isinstance(wrapped, dict) else record
    name, kind = metric.get("name"), metric.get("kind")
    if not isinstance(name, str) or kind not in ("absolute", "incremental"):
        return False
    if kind == "absolute" and context.interest.metric(name):
        tags = metric.get("tags")
        labels = bounded(_tags(tags if isinstance(tags, dict) else {}))
        node, at = node_of(labels) or context.node, timestamps.any_form(metric.get("timestamp"))
        into.observations += [
            Sample(name + suffix, value, at, node, labels) for suffix, value in _numbers(metric)
        ]
    return True


def _numbers(metric: JsonObject) -> Iterator[tuple[str, float]]:
    for kind, parts in ((_SINGLE, {"value": ""}), (_DISTRIBUTIONS, {"count": "_count", "sum": "_sum"})):
        for name in kind:
            if isinstance(holder := metric.get(name), dict):
                for part, suffix in parts.items():
                    value = holder.get(part)
                    if isinstance(value, (int, float)) and not isinstance(value, bool):
                        yield suffix, float(value)


def _tags(tags: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in tags.items():
        texts = (one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str))
        if (first := next(texts, None)) is not None:
            yield str(name), first
