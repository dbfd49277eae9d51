"""Telegraf's metrics, as JSON (one a record, or a batch of them in `metrics`) and, through `influx.py`, as line protocol.

`{"fields": {"tx_prio3_pause": 1}, "name": "ethtool", "tags": {"host": …, "interface": …}, "timestamp": 1748779200}`. Each
field is a sample of its own name; the prometheus input (metric version 1) names the metric in `name` and the field `gauge` or
`counter`. The syslog input's `message` is a line of the host `hostname`; `host` is Telegraf's own host, also in what the gnmi and
snmp inputs fetch from switches. The tail input has a line of the file `path` in `value` (telegraf docs, outputs.kafka,
inputs.syslog, inputs.tail, inputs.gnmi, inputs.snmp).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from streams.ingest import lldp, timestamps
from streams.ingest.events import slurm_jobs
from streams.ingest.header import KERNEL_TAGS
from streams.ingest.logs import text
from streams.ingest.metrics import devices
from streams.ingest.metrics.labels import bounded, node_of, without_port
from streams.ingest.records import JsonObject, Opened, RecordContext
from streams.model.record import Sample

_UNNAMED = frozenset({"gauge", "counter", "value", "untyped"})


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add samples and lines to `into`; False for any other format."""
    batch = record.get("metrics")
    if not isinstance(batch, list) or not batch or not isinstance(batch[0], dict) or "fields" not in batch[0]:
        return _metric(record, context, into)
    for metric in batch:
        if not isinstance(metric, dict) or not _metric(metric, context, into):
            into.unreadable.append("something in a Telegraf batch that is no metric")
    return True


def _metric(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    fields, tags, name = record.get("fields"), record.get("tags"), record.get("name")
    if not isinstance(fields, dict) or not isinstance(tags, dict) or not isinstance(name, str):
        return False
    known = {str(key): value for key, value in tags.items() if isinstance(value, str)}
    read_metric(name, known, fields, timestamps.any_form(record.get("timestamp")), context, into)
    return True


def read_metric(
    name: str,
    tags: dict[str, str],
    fields: Mapping[str, Any],
    at: datetime | None,
    context: RecordContext,
    into: Opened,
) -> None:
    """Add the samples of a metric, or the line it holds."""
    if isinstance(message := fields.get("message"), str):
        program = tags.get("appname", "")
        node = tags.get("hostname") or tags.get("source") or tags.get("host")
        source = "kernel" if program in KERNEL_TAGS else program
        text.read(message, context, into, at=at, node=node, source=source)
        return
    if slurm_jobs.of_labels({**fields, **tags, "jobname": tags.get("name")}, at, context, into):
        return
    device = devices.of_tags(tags)
    if "lldp" in name.lower() or "lldp" in tags.get("path", ""):
        # Without its path the source is still the switch, and the host is the collector's.
        by_name = tags.get("hostname") or tags.get("source") or tags.get("host") or ""
        heard_by = device.node if device is not None else without_port(by_name)
        port = (device.labels if device is not None else tags).get("interface") or tags.get("ifname")
        if lldp.read_fields(heard_by, port or tags.get("name"), tags | dict(fields), at, into):
            return
    if device is not None:
        if devices.add_alarm(device, fields, at, into):
            return
        device = devices.with_admin_state(device, fields)
        for field, value in fields.items():
            devices.add(device, str(field), value, at, context, into)
        return
    # Tags get lost, `path` too, so text in `value` is always taken for a line.
    if isinstance(line := fields.get("value"), str):
        text.read(line, context, into, at=at, node=tags.get("host"))
    wanted = [
        (name if field in _UNNAMED else str(field), value)
        for field, value in fields.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    wanted = [(metric, value) for metric, value in wanted if context.interest.metric(metric)]
    if wanted and not into.full():
        labels = bounded(tags.items())
        node = node_of(labels) or context.node
        into.observations += [Sample(metric, float(value), at, node, labels) for metric, value in wanted]
