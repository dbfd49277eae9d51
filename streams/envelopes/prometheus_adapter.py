"""prometheus-kafka-adapter, JSON: one sample a record, the value as text (`"NaN"` and `"+Inf"` included).

`{"timestamp": "2026-01-02T12:00:00Z", "value": "79", "name": "DCGM_FI_DEV_XID_ERRORS", "labels": {…}}`; seconds only,
no key by default. Shape: Telefonica/prometheus-kafka-adapter, serializers.go.
"""

from __future__ import annotations

from streams.envelopes import times
from streams.envelopes.opened import JsonObject, Opened, Outside
from streams.model.record import Sample

_NODE_LABELS = (
    "node",
    "kubernetes_node",
    "nodename",
    "hostname",
    "Hostname",
    "exported_hostname",
    "host",
    "exported_instance",
    "instance",
)
"""Where exporters put the node, the surest first; `instance` is an address and comes last."""


def read(record: JsonObject, outside: Outside, into: Opened) -> bool:
    """Add the sample to `into`; False when the record is of another shape."""
    name, labels, value = record.get("name"), record.get("labels"), record.get("value")
    if not isinstance(name, str) or not isinstance(labels, dict) or "value" not in record:
        return False
    try:
        number = float(value) if isinstance(value, (str, int, float)) else None
    except ValueError:
        number = None
    if number is None:
        into.unreadable.append(f"prometheus sample {name[:80]!r}: value {str(value)[:40]!r} is no number")
        return True
    known = {str(k): v for k, v in labels.items() if isinstance(v, str)}
    at = times.any_form(record.get("timestamp"))
    into.observations.append(Sample(name, number, at, node_of(known) or outside.node, known))
    return True


def node_of(labels: dict[str, str]) -> str | None:
    """The node that a sample's labels name, without a port; None when they name none."""
    for label in _NODE_LABELS:
        if value := labels.get(label):
            host, colon, port = value.rpartition(":")
            return host if colon and port.isdigit() and ":" not in host else value
    return None
