"""Records of every JSON shape with something odd in one of their places: all of it is read or named, and nothing raises."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from streams.detect import Detector
from streams.ingest import RecordContext, open_record
from tests.streams.detect.lines import record

NOW = datetime(2026, 11, 21, 7, 13, 20, tzinfo=UTC)
ISO = "2026-11-21T07:13:13Z"
XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."
DETECTOR = Detector("c1")
_ENDED = {"exitCode": 137, "reason": "OOMKilled", "finishedAt": ISO}

SHAPES: dict[str, Any] = {
    "cloudwatch": {
        "messageType": "DATA_MESSAGE",
        "logEvents": [{"id": "1", "timestamp": 1795245195000, "message": XID}],
    },
    "azure": {
        "records": [
            {"time": ISO, "category": "Syslog", "properties": {"Computer": "n1", "SyslogMessage": XID}},
        ]
    },
    "pubsub": {
        "message": {"data": base64.b64encode(XID.encode()).decode(), "attributes": {"host": "n1"}},
        "subscription": "projects/p/subscriptions/s",
    },
    "scheduled": {
        "DocumentIncarnation": 2,
        "Events": [
            {"EventType": "Redeploy", "EventStatus": "Scheduled", "NotBefore": ISO, "Resources": ["n1"]}
        ],
    },
    "eventbridge": {
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "source": "aws.ec2",
        "time": ISO,
        "detail": {"instance-id": "i-0a1b2c3d4e5f60718"},
    },
    "termination_handler": {
        "event": {"Kind": "SPOT_ITN", "NodeName": "n1"},
        "time": ISO,
        "message": "Adding new event to the event store",
    },
    "node": {
        "type": "MODIFIED",
        "object": {
            "kind": "Node",
            "metadata": {"name": "n1", "creationTimestamp": "2026-11-20T07:13:13Z"},
            "status": {
                "conditions": [
                    {
                        "lastHeartbeatTime": ISO,
                        "lastTransitionTime": ISO,
                        "type": "XidError",
                        "status": "True",
                        "reason": "79",
                        "message": "m",
                    }
                ]
            },
        },
    },
    "pod": {
        "kind": "Pod",
        "metadata": {"name": "llm-0", "namespace": "ml", "uid": "u1"},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Failed", "containerStatuses": [{"state": {"terminated": _ENDED}}]},
    },
    "fluent": [1748779200.1, {"log": XID, "host": "n1"}],
    "fluent_2.1": [[1748779200.1, {"tag": 1}], {"log": XID, "host": "n1"}],
    "fluent_forward": ["kern.log", [[1748779200.1, {"log": XID}]], {"size": 1}],
    "metricbeat": {
        "@timestamp": ISO,
        "prometheus": {"metrics": {"DCGM_FI_DEV_XID_ERRORS": 79}, "labels": {"gpu": "0", "Hostname": "n1"}},
    },
    "metricbeat_typed": {
        "@timestamp": ISO,
        "prometheus": {"DCGM_FI_DEV_XID_ERRORS": {"value": 79}, "labels": {"gpu": "0"}},
    },
    "redfish": {
        "@odata.type": "#Event.v1_7_0.Event",
        "Events": [{"Message": "Fan failure", "MessageSeverity": "Critical", "EventTimestamp": ISO}],
    },
    "redfish_entry": {
        "@odata.type": "#LogEntry.v1_19_0.LogEntry",
        "Created": ISO,
        "Message": "Fan failure",
        "EntryCode": [{"Member": "Assert"}],
    },
    "telegraf_tail": {
        "fields": {"value": XID},
        "name": "tail",
        "tags": {"host": "n1", "path": "/var/log/kern.log"},
        "timestamp": 1748779200,
    },
    "telegraf": {
        "fields": {"gauge": 61},
        "name": "DCGM_FI_DEV_GPU_TEMP",
        "tags": {"host": "n1"},
        "timestamp": 1748779200,
    },
    "flat": {"@timestamp": ISO, "message": XID, "host": "n1"},
}


def _nested(opening: str, inner: str, closing: str, times: int) -> Any:
    return json.loads(opening * times + inner + closing * times)


ODD: dict[str, Any] = {
    "none": None,
    "true": True,
    "negative": -1,
    "not a number": float("nan"),
    "infinite": float("inf"),
    "beyond 64 bits": 10**30,
    "beyond a float": -(10**400),
    "empty": "",
    "nul": "\x00",
    "half a pair": "\ud800",
    "digits": "9" * 5000,
    "superscript": "²",
    "last day": "9999-12-31T23:59:59-23:59",
    "list": [],
    "lists": [[], [None], {}, 1, "a"],
    "map": {},
    "maps": {"": {"a": [{"b": None}]}},
    "deep list": _nested("[", "1", "]", 900),
    "deep map": _nested('{"a":', "1", "}", 450),
    "long": "x" * 20_000,
}


def with_in_each_place(value: Any, odd: Any) -> Iterator[Any]:
    """The same with `odd` in one place after the other."""
    yield odd
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from ({**value, name: one} for one in with_in_each_place(inner, odd))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from ([*value[:index], one, *value[index + 1 :]] for one in with_in_each_place(inner, odd))


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_whatever_stands_in_a_record_it_is_read_or_named(shape: Any, odd: Any) -> None:
    for document in with_in_each_place(shape, odd):
        whole = json.dumps(document)
        for raw in (whole, whole[:-1] + ', "more": NaN}' if whole.endswith("}") else f"[{whole}]"):
            found = DETECTOR.read(record(raw))
            assert all(len(reason) < 2000 for reason in found.dead)


def test_a_number_that_no_float_holds_is_endless_and_no_crash() -> None:
    raw = b'{"name": "x", "value": NaN, "message": "hi", "timestamp": ' + b"9" * 5000 + b"}"
    assert open_record(raw, RecordContext(NOW)).observations


@pytest.mark.parametrize("levels", [300, 1000])
def test_a_notice_nested_without_end_is_named(levels: int) -> None:
    nested = b"[" * levels + b"]" * levels
    opened = open_record(
        b'{"source":"aws.ec2","detail-type":"x","detail":' + nested + b"}", RecordContext(NOW)
    )
    assert len(opened.unreadable) == 1
