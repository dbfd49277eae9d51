"""collectd's write_kafka as JSON: arrays of value lists, each with one value for each data source of its type.

`[{"values": [61], "dstypes": ["gauge"], "dsnames": ["value"], "time": 1748779200.2, "interval": 10, "host": "n1", "plugin":
"gpu_nvidia", "plugin_instance": "0", "type": "temperature", "type_instance": "gpu"}]` (collectd.conf, write_kafka; plugins
ethstat, gpu_nvidia). The ethstat plugin has the driver's counter in `type_instance` and the interface in `plugin_instance`.
"""

from __future__ import annotations

from streams.ingest import timestamps
from streams.ingest.json_documents import string
from streams.ingest.metrics.labels import bounded, without_port
from streams.ingest.records import JsonObject, Opened, RecordContext
from streams.model.record import Sample

_COUNTERS_BY_NAME = frozenset({"ethstat", "exec", "python"})
"""Plugins whose `type_instance` is the name of the counter."""


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add the samples to `into`; False for any other format."""
    values, names, plugin = record.get("values"), record.get("dsnames"), record.get("plugin")
    if not isinstance(values, list) or not isinstance(names, list) or not isinstance(plugin, str):
        return False
    instance, kind = string(record.get("plugin_instance")) or "", string(record.get("type")) or ""
    of_kind, host = string(record.get("type_instance")) or "", string(record.get("host")) or ""
    own_name = plugin in _COUNTERS_BY_NAME and of_kind
    base = own_name or "_".join(filter(None, (plugin, kind, of_kind)))
    place = "gpu" if plugin == "gpu_nvidia" else "device"
    labels = bounded([(place, instance), ("host", host)])
    at = timestamps.any_form(record.get("time"))
    node = without_port(host) if host else context.node
    for source, value in zip(names, values, strict=False):
        name = base if source == "value" else f"{base}_{source}"
        if isinstance(value, (int, float)) and not isinstance(value, bool) and context.interest.metric(name):
            into.observations.append(Sample(name, float(value), at, node, labels))
    return True
