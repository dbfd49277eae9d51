"""Kubernetes Events: kubernetes-event-exporter's flattened JSON, and raw Events of core/v1 and events.k8s.io/v1.

The exporter writes a core/v1 Event with `clusterName` added (resmoio/kubernetes-event-exporter, pkg/kube/event.go); a watch wraps
it as `{"type", "object"}`, eventrouter as `{"verb", "event"}`. Custom layouts of the exporter are read in `event_layouts.py`.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from streams.ingest import timestamps
from streams.ingest.events.event_layouts import kind_by
from streams.ingest.json_documents import string
from streams.ingest.records import JsonObject, Opened, RecordContext
from streams.model.record import KubeEvent

_EVENT_NAME = re.compile(r"(?P<object>[a-z0-9][a-z0-9.-]{0,252})\.[0-9a-f]{8,20}$")
"""The name of an Event: that of its object, and a number."""


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add the event to `into`; False for any other format. Deletions of Event objects are skipped."""
    for wrapper in ("object", "event"):
        inner = record.get(wrapper)
        if isinstance(inner, dict) and about(inner) is not None:
            if record.get("type") == "DELETED" or record.get("verb") == "DELETED":
                return True
            record = inner
            break
    object_ = about(record)
    if object_ is None:
        return False
    reason, name = record.get("reason"), string(object_.get("name")) or _object_name(record)
    if not isinstance(reason, str) or not reason or name is None:
        into.unreadable.append("Kubernetes event without a reason or without an object's name")
        return True
    source = record.get("source") or record.get("deprecatedSource")
    into.observations.append(
        KubeEvent(
            reason=reason,
            message=string(record.get("message")) or string(record.get("note")) or "",
            kind=string(object_.get("kind")) or kind_by(reason),
            name=name,
            namespace=string(object_.get("namespace")) or "",
            uid=string(object_.get("uid")),
            type=string(record.get("type")) or "Normal",
            at=_last_time(record) or context.origin.at,
            host=string(source.get("host")) if isinstance(source, dict) else None,
            cluster=string(record.get("clusterName")),
        )
    )
    return True


def about(record: JsonObject) -> dict[str, Any] | None:
    """The object an Event is about; None for a record that is no Event."""
    named = record.get("involvedObject") or record.get("regarding")
    return named if isinstance(named, dict) and "reason" in record else None


def _object_name(record: JsonObject) -> str | None:
    metadata = record.get("metadata")
    named = string(metadata.get("name")) if isinstance(metadata, dict) else None
    match = _EVENT_NAME.match(named) if named else None
    return match["object"] if match is not None else None


def _last_time(record: JsonObject) -> datetime | None:
    """The last time of an Event. Events of events.k8s.io/v1 have no first and last time but others."""
    series, metadata = record.get("series"), record.get("metadata")
    candidates = (
        record.get("lastTimestamp"),
        series.get("lastObservedTime") if isinstance(series, dict) else None,
        record.get("eventTime"),
        record.get("firstTimestamp"),
        metadata.get("creationTimestamp") if isinstance(metadata, dict) else None,
    )
    return next((at for value in candidates if (at := timestamps.any_form(value))), None)
