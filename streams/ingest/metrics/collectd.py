"""collectd's write_kafka as JSON: arrays of value lists, each with one value for each data source of its type.

`[{"values": [61], "dstypes": ["gauge"], "dsnames": ["value"], "time": 1748779200.2, "interval": 10, "host": "n1", "plugin":
"gpu_nvidia", "plugin_instance": "0", "type": "temperature", "type_instance": "gpu"}]` (collectd.conf, write_kafka; plugins
ethstat, gpu_nvidia). The ethstat plugin has the driver's counter in `type_instance` and the interface in `plugin_instance`.
"""

from __future__ import annotations

from streams.ingest import timestamps
from streams.ingest.metrics.labels import bounded, without_port
from streams.ingest.records import JsonObject, Opened, RecordContext
from streams.model.record import Sample

_COUNTERS_BY_NAME = frozenset({"ethstat", "exec", "python"})
"""Plugins whose `type_instance` is the name of what is counted."""


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add the samples to `into`; False when the record is of another shape."""
    values, names, plugin = record.get("values"), record.get("dsnames"), record.get("plugin")
    if not isinstance(values, list) or not isinstance(names, list) or not isinstance(plugin, str):
        return False
    instance, kind = _text(record, "plugin_instance"), _text(record, "type")
    of_kind, host = _text(record, "type_instance"), _text(record, "host")
    base = (
        of_kind
        if plugin in _COUNTERS_BY_NAME and of_kind
        else "_".join(filter(None, (plugin, kind, of_kind)))
    )
    place = "gpu" if plugin == "gpu_nvidia" else "device"
    labels = bounded([(place, instance), ("host", host)])
    at = timestamps.any_form(record.get("time"))
    for source, value in zip(names, values, strict=False):
        name = base if source == "value" else f"{base}_{source}"
        if isinstance(value, (int, float)) and not isinstance(value, bool) and context.interest.metric(name):
            node = without_port(host) if host else context.node
            into.observations.append(Sample(name, float(value), at, node, labels))
    return True


def _text(record: JsonObject, name: str) -> str:
    value = record.get(name)
    return value if isinstance(value, str) else ""
