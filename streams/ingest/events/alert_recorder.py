"""What Alertmanager's event recorder writes (feature `event-recorder`, from 0.33; output `kafka`, format `json`).

`{"@timestamp", "instance", "clusterPosition", "data": {KIND: {…}}}` with one kind of event. Alerts are in `alertCreated.alert`,
in `alertResolved.alert.details` and in the `details` of `notification.alerts`; labels are an object, or a list of pairs as 0.33
and 0.34 write them. Events that repeat these or tell of silences and of the process itself are known and hold nothing: an alert
is a fact whether or not somebody wants to be told of it. Shape: prometheus/alertmanager, eventrecorderpb/eventrecorder.proto.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streams.ingest.events.alertmanager import add_alert
from streams.ingest.records import JsonObject, Opened, RecordContext

_KINDS = frozenset(
    {
        "alertCreated",
        "alertResolved",
        "alertGrouped",
        "notification",
        "silenceCreated",
        "silenceUpdated",
        "silenceMutedAlert",
        "inhibitionMutedAlert",
        "alertmanagerStartupEvent",
        "alertmanagerShutdownEvent",
    }
)


def read(record: JsonObject, context: RecordContext, into: Opened) -> bool:
    """Add each alert of the event to `into`; False for any other format."""
    data = record.get("data")
    if not isinstance(data, dict) or "@timestamp" not in record or not (data.keys() & _KINDS):
        return False
    for kind, event in data.items():
        for alert in _alerts(kind, event):
            add_alert(
                {
                    **alert,
                    # A field that is false is not written.
                    "status": "resolved" if alert.get("resolved") is True else "firing",
                    "labels": _labels(alert.get("labels")),
                    "annotations": _labels(alert.get("annotations")),
                },
                {},
                context,
                into,
            )
    return True


def _alerts(kind: str, event: Any) -> Iterator[JsonObject]:
    if not isinstance(event, dict):
        return
    alert = event.get("alert")
    match kind:
        case "alertCreated":
            if isinstance(alert, dict):
                yield alert
        case "alertResolved":
            yield from _details(alert)
        case "notification":
            alerts = event.get("alerts")
            for one in alerts if isinstance(alerts, list) else ():
                yield from _details(one)


def _details(grouped: Any) -> Iterator[JsonObject]:
    """The alert in a reference to it; often there is only its hash."""
    details = grouped.get("details") if isinstance(grouped, dict) else None
    if isinstance(details, dict):
        yield details


def _labels(value: Any) -> JsonObject:
    """Labels as an object, of either form."""
    pairs = value.get("labels") if isinstance(value, dict) else None
    if isinstance(pairs, list):
        return {
            str(pair["key"]): pair.get("value", "")
            for pair in pairs
            if isinstance(pair, dict) and "key" in pair
        }
    return value if isinstance(value, dict) else {}
