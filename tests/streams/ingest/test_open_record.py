"""Records of every shipper, opened: what the lines are, when they were written and where."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from streams.ingest import MAX_LINE, RecordContext, open_record
from streams.model.record import KubeEvent, LogLine, Sample

NOW = datetime(2026, 11, 21, 7, 13, 20, tzinfo=UTC)
AT = datetime(2026, 11, 21, 7, 13, 15, tzinfo=UTC)
OUTSIDE = RecordContext(NOW, "from-key")


def opened(value: Any) -> Any:
    raw = value if isinstance(value, bytes) else orjson.dumps(value)
    result = open_record(raw, OUTSIDE)
    assert not result.unreadable
    (observation,) = result.observations
    return observation


@pytest.mark.parametrize(
    ("record", "text", "node", "source"),
    [
        (
            {"@timestamp": AT.timestamp(), "priority": 4, "sequence": 1, "sec": 1, "usec": 2, "msg": "hi"},
            "hi",
            "from-key",
            "kernel",
        ),
        (
            {
                "@timestamp": AT.timestamp(),
                "MESSAGE": "hi",
                "_HOSTNAME": "n1",
                "SYSLOG_IDENTIFIER": "sshd",
                "PRIORITY": "4",
            },
            "hi",
            "n1",
            "sshd",
        ),
        (
            {
                "@timestamp": "2026-11-21T07:13:15Z",
                "message": "hi",
                "_hostname": "n1",
                "_transport": "kernel",
            },
            "hi",
            "n1",
            "kernel",
        ),
        (
            {
                "@timestamp": "2026-11-21T07:13:15.000000000Z",
                "MESSAGE": "hi",
                "HOSTNAME": "n1",
                "TRANSPORT": "kernel",
            },
            "hi",
            "n1",
            "kernel",
        ),
        ({"date": AT.timestamp() * 1000, "log": "hi\n", "hostname": "n1"}, "hi", "n1", ""),
        (
            {"@timestamp": AT.timestamp(), "message": "hi", "host": "leaf-1", "ident": "swss#orchagent"},
            "hi",
            "leaf-1",
            "swss#orchagent",
        ),
        ({"timestamp": "2026-11-21T07:13:15Z", "message": "hi", "host": {"name": "n1"}}, "hi", "n1", ""),
        (
            {
                "@timestamp": AT.timestamp(),
                "log": "Nov 21 07:13:15 leaf-2 NOTICE swss#orchagent: hi",
                "hostname": "collector",
            },
            "hi",
            "leaf-2",
            "swss#orchagent",
        ),
    ],
)
def test_a_flat_record_is_one_line(record: dict[str, Any], text: str, node: str, source: str) -> None:
    line = opened(record)
    assert isinstance(line, LogLine)
    assert (line.message, line.node, line.source, line.at) == (text, node, source, AT)


def test_a_pods_record_keeps_the_shippers_node_whatever_the_pod_prints() -> None:
    kubernetes = {
        "pod_name": "p",
        "namespace_name": "ns",
        "pod_id": "u",
        "host": "n1",
        "container_name": "train",
        "labels": {},
    }
    line = opened(
        {"@timestamp": AT.timestamp(), "log": "Nov 21 07:13:15 elsewhere app: hi\n", "kubernetes": kubernetes}
    )
    assert line.pod is not None
    assert (line.node, line.pod.key, line.pod.uid, line.container, line.source) == (
        "n1",
        "ns/p",
        "u",
        "train",
        "container",
    )


def test_a_pod_without_a_node_does_not_take_the_key_for_one() -> None:
    line = opened({"log": "hi", "kubernetes": {"pod_name": "p", "namespace_name": "ns"}})
    assert line.node is None


@pytest.mark.parametrize(
    ("stamp", "shipped", "expected"),
    [
        ("Nov 21 07:13:14 h app: x", AT, AT.replace(second=14)),
        ("Nov 21 14:13:14 h app: x", AT, AT),
        ("Nov 21 00:13:14 h app: x", AT, AT),
        ("2026-11-21T00:13:14-07:00 h app: x", AT, AT.replace(second=14)),
    ],
    ids=["near", "a zone ahead", "a zone behind", "with its offset"],
)
def test_a_time_without_a_zone_is_believed_only_near_the_shippers(
    stamp: str, shipped: datetime, expected: datetime
) -> None:
    assert opened({"@timestamp": shipped.timestamp(), "log": stamp}).at == expected


@pytest.mark.parametrize(
    ("labels", "node"),
    [
        ({"instance": "10.0.0.5:9400"}, "10.0.0.5"),
        ({"instance": "10.0.0.5:9400", "Hostname": "n1"}, "n1"),
        ({"instance": "x:1", "hostname": "n2"}, "n2"),
        ({"instance": "x:1", "node": "n3", "hostname": "pod-7"}, "n3"),
        ({"instance": "[fe80::1]:9100"}, "[fe80::1]:9100"),
        ({}, "from-key"),
    ],
)
def test_a_sample_names_its_node_by_the_surest_label(labels: dict[str, str], node: str) -> None:
    sample = opened({"timestamp": "2026-11-21T07:13:15Z", "value": "1e3", "name": "m", "labels": labels})
    assert isinstance(sample, Sample)
    assert (sample.name, sample.value, sample.at, sample.node) == ("m", 1000.0, AT, node)


EVENT = {
    "metadata": {"name": "n1.17", "namespace": "default", "creationTimestamp": "2026-11-21T07:13:11Z"},
    "reason": "NodeNotReady",
    "message": "Node n1 status is now: NodeNotReady",
    "source": {"component": "node-controller"},
    "firstTimestamp": "2026-11-21T07:13:12Z",
    "lastTimestamp": "2026-11-21T07:13:15Z",
    "type": "Normal",
    "clusterName": "c9",
    "involvedObject": {"kind": "Node", "name": "n1", "uid": "n1", "labels": {}},
}


@pytest.mark.parametrize(
    ("changes", "second"),
    [
        ({}, 15),
        ({"lastTimestamp": None, "eventTime": "2026-11-21T07:13:14.000000Z"}, 14),
        ({"lastTimestamp": None, "series": {"lastObservedTime": "2026-11-21T07:13:13Z"}}, 13),
        ({"lastTimestamp": None}, 12),
        ({"lastTimestamp": None, "firstTimestamp": None}, 11),
    ],
)
def test_an_events_time_is_the_latest_that_its_writer_set(changes: dict[str, Any], second: int) -> None:
    event = opened(EVENT | changes)
    assert isinstance(event, KubeEvent)
    assert (event.reason, event.kind, event.name, event.cluster) == ("NodeNotReady", "Node", "n1", "c9")
    assert event.at == AT.replace(second=second)


@pytest.mark.parametrize("wrapped", [{"type": "ADDED", "object": EVENT}, {"verb": "ADDED", "event": EVENT}])
def test_a_watchs_wrapper_is_taken_off(wrapped: dict[str, Any]) -> None:
    assert opened(wrapped).name == "n1"


def test_a_new_style_event_is_an_event() -> None:
    event = {
        "reason": "NodeReady",
        "note": "well",
        "regarding": {"kind": "Node", "name": "n1"},
        "eventTime": "2026-11-21T07:13:15Z",
    }
    assert (opened(event).message, opened(event).at) == ("well", AT)


def test_a_long_line_is_read_up_to_its_bound_and_counted() -> None:
    result = open_record(b"x" * (MAX_LINE + 1) + b"\nshort", OUTSIDE)
    assert [len(line.text) for line in result.observations if isinstance(line, LogLine)] == [MAX_LINE + 1, 5]
    assert result.cut == 1


def test_a_dmesg_line_is_no_json_array() -> None:
    assert opened(b"[   12.5] eth0: up").message == "eth0: up"


def test_reasons_are_bounded_too() -> None:
    result = open_record(b'{"a":\n' * 1000, OUTSIDE)
    assert len(result.unreadable) == 21
    assert "980 more" in result.unreadable[-1]
