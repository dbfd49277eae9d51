"""OpenTelemetry logs and metrics: the meaning of resources, records and points, common to JSON and protobuf.

One Kafka record is one export request of many resources (kafkaexporter; the batch processor fills it with thousands). Resource
attributes name the place (semantic conventions: `host.name`, `k8s.node.name`, `k8s.pod.name`, …). A body is a text, or a map: the
journald receiver keeps the journal's fields, k8sobjects a whole Kubernetes Event, Fluent Bit its own record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from streams.ingest import levels
from streams.ingest.events import event_exporter
from streams.ingest.fields import fields, is_chat_record
from streams.ingest.logs import flat_record, quotation
from streams.ingest.metrics.labels import bounded, node_of
from streams.ingest.records import Opened, RecordContext, merged
from streams.model.record import Sample

Attributes = dict[str, Any]
"""Texts, numbers, booleans, lists and maps of them, by name."""

MAX_DEPTH = 12
"""Nesting of a value that is read; senders may nest deeper."""

NO_VALUE = 1
"""The flag of a point that only marks the end of its series (metrics.proto, DataPointFlags)."""

_MAX_PARTS = 1000
_WITH_PORT = re.compile(r"[^:]{1,253}:\d{1,5}")


def read_log(
    known: Attributes,
    body: object,
    at: datetime | None,
    severity: str,
    number: object,
    context: RecordContext,
    into: Opened,
) -> None:
    """Add the content of a log record to `into`; `known` are the attributes of resource and record.

    `severity` is the record's text, `number` its severity number (0 or None where it has none).
    """
    if isinstance(known.get("k8s.event.reason"), str):
        event_exporter.read(_event(known, body, at, severity), context, into)
        return
    named = fields(known)
    if body is None or body == "":
        body = flat_record.text_of(named)
    origin = named.origin()._replace(at=at, certain=at is not None)
    level = levels.of_number(number)
    if level is None:
        level = levels.of_value(severity)
    if level is not None:
        origin = origin._replace(level=level)
    if is_chat_record(known):
        origin = origin._replace(source=quotation.SOURCE)
    within = context.within(merged(origin, context.origin))
    for part in body[:_MAX_PARTS] if isinstance(body, list) else [body]:
        if isinstance(part, (str, dict)):
            into.nested.append((part, within))
        elif part is not None:
            into.nested.append((text(part), within))


def _event(known: Attributes, body: object, at: datetime | None, severity: str) -> Attributes:
    """The Event from which the k8s_events receiver made this record."""
    return {
        "reason": known["k8s.event.reason"],
        "message": body if isinstance(body, str) else "",
        "type": severity or "Normal",
        "lastTimestamp": at.isoformat() if at else None,
        "source": {"host": known.get("k8s.node.name")},
        "involvedObject": {
            "kind": known.get("k8s.object.kind"),
            "name": known.get("k8s.object.name"),
            "namespace": known.get("k8s.namespace.name"),
            "uid": known.get("k8s.object.uid"),
        },
    }


def resource_labels(attributes: Mapping[str, Any]) -> dict[str, str]:
    """The labels a resource gives to each of its points; `service.instance.id` becomes Prometheus' `instance`.

    The pod of a resource is the exporter's own and keeps its dotted name: `pod` of a point is the pod that owns the GPU.
    """
    pairs = [(name, text(value)) for name, value in attributes.items()]
    instance = attributes.get("service.instance.id")
    if isinstance(instance, str) and _WITH_PORT.fullmatch(instance):
        pairs.append(("instance", instance))
    return bounded(pairs)


def samples(
    name: str,
    numbers: Iterable[tuple[str, float]],
    at: datetime | None,
    labels: dict[str, str],
    context: RecordContext,
) -> list[Sample]:
    """The samples of one point: `numbers` are pairs of a suffix of the name and a value."""
    node = node_of(labels) or context.node
    return [Sample(name + suffix, number, at, node, labels) for suffix, number in numbers]


def text(value: object) -> str:
    """The value of an attribute as text; empty for lists and maps."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else ""
