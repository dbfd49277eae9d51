"""Kubernetes Events under every layout, and alerts however a gateway splits them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from streams.ingest import Opened, RecordContext, open_record
from streams.model.record import Alert, KubeEvent

NOW = datetime(2026, 11, 21, 7, 13, 20, tzinfo=UTC)
AT = datetime(2026, 11, 21, 7, 13, 15, tzinfo=UTC)
ISO = "2026-11-21T07:13:15Z"
MESSAGE = "Node n1 status is now: NodeNotReady"


def opened(value: Any) -> Opened:
    return open_record(orjson.dumps(value), RecordContext(NOW))


LAYOUTS: dict[str, dict[str, Any]] = {
    "flat": {
        "cluster": "c9",
        "type": "Warning",
        "reason": "NodeNotReady",
        "message": MESSAGE,
        "kind": "Node",
        "name": "n1",
        "lastTimestamp": ISO,
    },
    "details": {
        "eventType": "kube-event",
        "createdAt": "1795245195000",
        "details": {
            "message": MESSAGE,
            "reason": "NodeNotReady",
            "type": "Warning",
            "count": "1",
            "kind": "Node",
            "name": "n1",
            "namespace": "default",
            "component": "node-controller",
        },
    },
    "camel": {
        "eventReason": "NodeNotReady",
        "eventMessage": MESSAGE,
        "eventType": "Warning",
        "involvedObjectKind": "Node",
        "involvedObjectName": "n1",
        "lastTimestamp": ISO,
    },
    "lower": {
        "reason": "NodeNotReady",
        "message": MESSAGE,
        "type": "Warning",
        "involvedobject": {"kind": "Node", "name": "n1"},
        "metadata": {"name": "n1.17f3a0b1c2d3e4f5", "namespace": "default"},
        "lasttimestamp": ISO,
    },
    "snake": {
        "reason": "NodeNotReady",
        "message": MESSAGE,
        "severity": "WARNING",
        "involved_object_kind": "Node",
        "involved_object_name": "n1",
        "timestamp": ISO,
    },
    "one word": {
        "time": ISO,
        "type": "Warning",
        "reason": "NodeNotReady",
        "object": "node/n1",
        "message": MESSAGE,
    },
    "core without a kind": {
        "metadata": {"name": "n1.17f3a0b1c2d3e4f5"},
        "involvedObject": {"namespace": ""},
        "reason": "NodeNotReady",
        "type": "Warning",
        "message": MESSAGE,
        "lastTimestamp": ISO,
    },
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("wrap", ["bare", "list", "watch", "cloudevent"])
def test_an_event_is_read_under_every_layout(name: str, wrap: str) -> None:
    record = LAYOUTS[name]
    if wrap == "watch" and "involvedObject" not in record:
        return
    wrapped = {
        "bare": record,
        "list": [record],
        "watch": {"type": "ADDED", "object": record},
        "cloudevent": {"specversion": "1.0", "type": "k8s", "source": "/x", "id": "1", "data": record},
    }[wrap]
    (event,) = opened(wrapped).observations
    assert isinstance(event, KubeEvent)
    assert (event.reason, event.kind, event.name, event.type, event.message, event.at) == (
        "NodeNotReady",
        "Node",
        "n1",
        "Warning",
        MESSAGE,
        AT,
    )


def test_a_list_of_events_is_its_events() -> None:
    core = {"reason": "A", "involvedObject": {"kind": "Pod", "name": "p", "namespace": "ns"}}
    result = opened({"kind": "EventList", "apiVersion": "v1", "items": [core, core | {"reason": "B"}]})
    assert [event.reason for event in result.observations if isinstance(event, KubeEvent)] == ["A", "B"]


@pytest.mark.parametrize(
    "record",
    [
        {"level": "warning", "reason": "Timeout", "kind": "Http", "name": "x", "msg": "hi"},
        {"type": "Warning", "reason": "disk was slow", "name": "n1", "kind": "Node", "msg": "hi"},
        {"type": "Normal", "reason": "Started", "msg": "hi"},
    ],
)
def test_a_programs_record_with_a_reason_is_a_line(record: dict[str, Any]) -> None:
    assert not any(isinstance(found, KubeEvent) for found in opened(record).observations)


ALERT = {
    "status": "firing",
    "labels": {"alertname": "GpuFell", "node": "n1", "severity": "critical"},
    "annotations": {"summary": "gone"},
    "startsAt": "2026-11-21T07:13:15.000Z",
    "endsAt": "0001-01-01T00:00:00Z",
    "generatorURL": "http://prometheus.example/graph",
    "fingerprint": "ab12",
}
RESOLVED = ALERT | {"status": "resolved", "startsAt": "2026-11-21T07:00:00Z", "endsAt": ISO}
GROUP = {
    "receiver": "faultline",
    "version": "4",
    "groupKey": "{}:{}",
    "status": "firing",
    "groupLabels": {"alertname": "GpuFell"},
    "commonLabels": {"alertname": "GpuFell", "cluster": "c9"},
    "commonAnnotations": {"runbook": "x"},
    "externalURL": "http://alertmanager.example",
    "truncatedAlerts": 0,
}


def alerts(value: Any) -> list[Alert]:
    result = opened(value)
    assert not result.unreadable
    return [found for found in result.observations if isinstance(found, Alert)]


def test_a_webhook_is_an_alert_for_each_of_its_alerts() -> None:
    firing, resolved = alerts(GROUP | {"alerts": [ALERT, RESOLVED]})
    assert (firing.name, firing.firing, firing.at) == ("GpuFell", True, AT)
    assert (resolved.name, resolved.firing, resolved.at) == ("GpuFell", False, AT)
    assert firing.labels == {"alertname": "GpuFell", "cluster": "c9", "node": "n1", "severity": "critical"}
    assert firing.annotations == {"runbook": "x", "summary": "gone"}


@pytest.mark.parametrize(
    ("alert", "firing"),
    [
        (ALERT, True),
        (RESOLVED, False),
        ({name: ALERT[name] for name in ("labels", "annotations", "startsAt")}, True),
        ({"labels": ALERT["labels"], "startsAt": ISO, "endsAt": "2026-11-21T07:13:18Z"}, False),
        ({"labels": ALERT["labels"], "startsAt": ISO, "endsAt": "2026-11-21T07:17:18Z"}, True),
        (
            {
                "labels": ALERT["labels"],
                "annotations": {},
                "state": "firing",
                "activeAt": ISO,
                "value": "1e0",
            },
            True,
        ),
        (ALERT | {"status": {"state": "active", "inhibitedBy": [], "silencedBy": []}}, True),
        ({"labels": ALERT["labels"], "status": "firing"}, True),
    ],
)
def test_an_alert_by_itself_is_an_alert(alert: dict[str, Any], firing: bool) -> None:
    (found,) = alerts(alert)
    assert (found.name, found.firing, found.labels["node"]) == ("GpuFell", firing, "n1")
    assert alerts([alert])[0] == found


def test_a_pending_alert_is_none() -> None:
    assert alerts({"labels": ALERT["labels"], "annotations": {}, "state": "pending", "activeAt": ISO}) == []


def test_an_alert_without_a_name_is_named_as_unreadable() -> None:
    result = opened(GROUP | {"commonLabels": {}, "alerts": [{"labels": {"node": "n1"}, "startsAt": ISO}, 7]})
    assert "alertname" in result.unreadable[0]
    assert "alert 2" in result.unreadable[1]


def recorded(kind: str, event: Any) -> dict[str, Any]:
    """An event of Alertmanager's event recorder, as protobuf's JSON writes it."""
    return {
        "@timestamp": "2026-11-21T07:13:16.004Z",
        "instance": "am-0",
        "clusterPosition": 1,
        "data": {kind: event},
    }


def recorded_alert(*, as_pairs: bool, **changes: Any) -> dict[str, Any]:
    labels, annotations = {"alertname": "GpuFell", "node": "n1"}, {"summary": "GPU 3 is gone"}

    def written(values: dict[str, str]) -> Any:
        return {"labels": [{"key": k, "value": v} for k, v in values.items()]} if as_pairs else values

    return {
        "fingerprint": "11400714819323198485",
        "name": "GpuFell",
        "labels": written(labels),
        "annotations": written(annotations),
        "startsAt": ISO,
        "endsAt": "2026-11-21T07:18:15Z",
        **changes,
    }


@pytest.mark.parametrize("as_pairs", [True, False])
@pytest.mark.parametrize(
    ("kind", "inside"),
    [
        ("alertCreated", lambda alert: {"alert": alert}),
        (
            "alertResolved",
            lambda alert: {"alert": {"hash": "7", "details": alert}, "groupInfo": {"groupKey": "{}"}},
        ),
        (
            "notification",
            lambda alert: {"alerts": [{"hash": "7", "details": alert}, {"hash": "8"}], "flushId": "3"},
        ),
    ],
)
def test_an_alert_that_alertmanager_records_is_that_alert(
    as_pairs: bool, kind: str, inside: Callable[[Any], Any]
) -> None:
    ended = {"resolved": True, "endsAt": "2026-11-21T07:13:15Z"} if kind == "alertResolved" else {}
    (found,) = alerts(recorded(kind, inside(recorded_alert(as_pairs=as_pairs, **ended))))
    assert (found.name, found.firing, found.at) == ("GpuFell", not ended, AT)
    assert found.labels == {"alertname": "GpuFell", "node": "n1"}
    assert found.annotations == {"summary": "GPU 3 is gone"}


@pytest.mark.parametrize(
    ("kind", "event"),
    [
        ("alertGrouped", {"alert": {"hash": "7", "details": recorded_alert(as_pairs=True)}}),
        ("silenceCreated", {"silence": {"id": "s-1", "createdBy": "ann", "comment": "node n1 is out"}}),
        ("silenceMutedAlert", {"mutedAlert": {"labels": {"labels": []}}}),
        ("inhibitionMutedAlert", {"mutedAlert": {"labels": {}}}),
        ("alertmanagerStartupEvent", {"version": "0.34.0"}),
        ("alertmanagerShutdownEvent", {}),
        ("alertCreated", {}),
        ("alertResolved", {"alert": {"hash": "7"}}),
        ("notification", {"alerts": "odd"}),
        ("notification", "odd"),
    ],
)
def test_what_else_alertmanager_records_is_known_and_holds_nothing(kind: str, event: Any) -> None:
    result = opened(recorded(kind, event))
    assert (result.observations, result.unreadable) == ([], [])


def test_another_document_with_data_is_not_taken_for_a_recorded_event() -> None:
    result = opened({"@timestamp": ISO, "message": MESSAGE, "data": {"other": {}}})
    assert len(result.observations) == 1
