"""Telegraf's JSON: one metric a record, or a batch of them in `metrics`.

`{"fields": {"tx_prio3_pause": 1}, "name": "ethtool", "tags": {"host": …, "interface": …}, "timestamp": 1748779200}`. Each
field is a sample of its own name; the prometheus input (metric version 1) names the metric in `name` and the field `gauge`
or `counter`. The syslog input's `message` is a line, and its `hostname` the origin: `host` is Telegraf's own (telegraf docs,
outputs.kafka, json serializer, inputs.syslog).
"""

from __future__ import annotations

from streams.envelopes import text, times
from streams.envelopes.header import KERNEL_TAGS
from streams.envelopes.opened import JsonObject, Opened, Outside
from streams.envelopes.prometheus_adapter import node_of
from streams.model.record import Sample

_UNNAMED = frozenset({"gauge", "counter", "value", "untyped"})


def read(record: JsonObject, outside: Outside, into: Opened) -> bool:
    """Add samples and lines to `into`; False when the record is of another shape."""
    batch = record.get("metrics")
    if not isinstance(batch, list) or not batch or not isinstance(batch[0], dict) or "fields" not in batch[0]:
        return _metric(record, outside, into)
    for metric in batch:
        if not isinstance(metric, dict) or not _metric(metric, outside, into):
            into.unreadable.append("a Telegraf batch holds something that is no metric")
    return True


def _metric(record: JsonObject, outside: Outside, into: Opened) -> bool:
    fields, tags, name = record.get("fields"), record.get("tags"), record.get("name")
    if not isinstance(fields, dict) or not isinstance(tags, dict) or not isinstance(name, str):
        return False
    known = {str(key): value for key, value in tags.items() if isinstance(value, str)}
    at = times.any_form(record.get("timestamp"))
    if isinstance(message := fields.get("message"), str):
        program = known.get("appname", "")
        node = known.get("hostname") or known.get("source") or known.get("host")
        source = "kernel" if program in KERNEL_TAGS else program
        text.read(message, outside, into, at=at, node=node, source=source)
        return True
    for field, value in fields.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            metric = name if field in _UNNAMED else str(field)
            into.observations.append(Sample(metric, float(value), at, node_of(known) or outside.node, known))
    return True
