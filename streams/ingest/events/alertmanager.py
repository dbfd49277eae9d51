"""Alerts: Alertmanager's webhook (version 4), single alerts as gateways split it, and the lists that Prometheus posts.

`{"version": "4", "status", "commonLabels", "alerts": [{"status", "labels", "annotations", "startsAt", "endsAt"}]}`.
Alertmanager's API has the state in `status.state`, Prometheus' own in `state` with `activeAt`; Grafana's webhook is
Alertmanager's with more in it. Shapes: prometheus/alertmanager, template/template.go and api/v2/openapi.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from streams.ingest import timestamps
from streams.ingest.json_documents import string
from streams.ingest.records import JsonObject, Opened, RecordContext
from streams.model.record import Alert

_NEVER = 2000
"""Times before this year are unknown: Alertmanager writes the year 1 for an open end."""

_PENDING = frozenset({"pending", "inactive", "normal", "nodata"})


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add each alert to `into`; False for any other format. Pending alerts are skipped."""
    alerts = record.get("alerts")
    if isinstance(alerts, list) and (not alerts or any(_is_alert(alert) for alert in alerts)):
        if not alerts and "receiver" not in record and "groupLabels" not in record:
            return False
        for number, alert in enumerate(alerts, 1):
            if isinstance(alert, dict):
                add_alert(alert, record, context, into)
            else:
                into.unreadable.append(f"alert {number} of a webhook is no object")
        return True
    if not _is_alert(record):
        return False
    add_alert(record, {}, context, into)
    return True


def _is_alert(alert: object) -> bool:
    if not isinstance(alert, dict) or not isinstance(labels := alert.get("labels"), dict):
        return False
    timed = "startsAt" in alert or "activeAt" in alert or "endsAt" in alert or "fingerprint" in alert
    return timed or (
        "alertname" in labels and ("annotations" in alert or "status" in alert or "state" in alert)
    )


def add_alert(alert: JsonObject, group: JsonObject, context: RecordContext, into: Opened) -> None:
    """Add an alert with the labels it shares with its `group`, unless it is pending."""
    labels = {**_texts(group.get("commonLabels")), **_texts(alert.get("labels"))}
    annotations = {**_texts(group.get("commonAnnotations")), **_texts(alert.get("annotations"))}
    name = labels.get("alertname") or string(alert.get("alertname")) or string(alert.get("name"))
    if not name:
        into.unreadable.append(
            f"an alert without the label alertname, with the labels: {', '.join(sorted(labels))[:200]}"
        )
        return
    state = _state(alert) or (string(group.get("status")) or "").lower()
    if state in _PENDING:
        return
    starts = _time(alert.get("startsAt")) or _time(alert.get("activeAt")) or context.origin.at
    ends = _time(alert.get("endsAt"))
    # Prometheus posts alerts without a state: resolved ones have an end in the past, the others in the future.
    firing = state not in ("resolved", "ok") if state else ends is None or ends > context.received_at
    into.observations.append(Alert(name, firing, starts if firing else ends or starts, labels, annotations))


def _state(alert: JsonObject) -> str:
    status = alert.get("status")
    if isinstance(status, dict):
        status = status.get("state")
    return (string(status) or string(alert.get("state")) or "").lower()


def _time(value: object) -> datetime | None:
    at = timestamps.any_form(value)
    return at if at is not None and at.year >= _NEVER else None


def _texts(mapping: Any) -> Mapping[str, str]:
    if not isinstance(mapping, dict):
        return {}
    return {
        str(name): value if isinstance(value, str) else f"{value}"
        for name, value in mapping.items()
        if value is not None
    }
