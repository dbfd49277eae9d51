"""Records wrapped by stores and event formats: Loki, Elasticsearch, CloudEvents, the clouds' log services, Redfish."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from streams.detect import Detector
from streams.ingest import RecordContext, open_record
from streams.model.record import LogLine
from streams.model.signal import SignalState
from tests.streams.detect.lines import record

NOW = datetime(2026, 11, 21, 7, 13, 20, tzinfo=UTC)
AT = datetime(2026, 11, 21, 7, 13, 15, tzinfo=UTC)
ISO = "2026-11-21T07:13:15Z"
NS = "1795245195000000000"
RECORD = {"@timestamp": ISO, "message": "hi", "host": {"name": "n1"}}


def lines(value: Any) -> list[LogLine]:
    raw = value if isinstance(value, bytes) else orjson.dumps(value)
    result = open_record(raw, RecordContext(NOW, "from-key"))
    assert not result.unreadable
    return [found for found in result.observations if isinstance(found, LogLine)]


@pytest.mark.parametrize(
    "value",
    [
        {"streams": [{"stream": {"node_name": "n1", "job": "x"}, "values": [[NS, "hi"]]}]},
        {"streams": [{"stream": {"hostname": "n1"}, "values": [[NS, "hi", {"trace_id": "1"}]]}]},
        {"streams": [{"labels": '{job="x", host="n1"}', "entries": [{"ts": ISO, "line": "hi"}]}]},
        {
            "status": "success",
            "data": {"resultType": "streams", "result": [{"stream": {"host": "n1"}, "values": [[NS, "hi"]]}]},
        },
        {"streams": [{"stream": {"host": "n1"}, "values": [[NS, '{"msg":"hi"}']]}]},
        {"_index": "logs-1", "_id": "a", "_score": 1.0, "_source": RECORD},
        {
            "took": 3,
            "hits": {"total": {"value": 1}, "hits": [{"_index": "l", "_id": "a", "_source": RECORD}]},
        },
        {"_index": "l", "_id": "a", "fields": {"@timestamp": [ISO], "message": ["hi"], "host.name": ["n1"]}},
        b'{"index":{"_index":"logs-1"}}\n' + orjson.dumps(RECORD) + b"\n",
        b'{"create":{"_index":"logs-1","_id":"a"}}\n{"doc":' + orjson.dumps(RECORD) + b"}\n",
        {"specversion": "1.0", "type": "log", "source": "/relay", "id": "1", "time": ISO, "data": RECORD},
        {
            "specversion": "1.0",
            "type": "log",
            "source": "/relay",
            "id": "1",
            "time": ISO,
            "host": "n1",
            "datacontenttype": "text/plain",
            "data": "hi",
        },
        {
            "specversion": "1.0",
            "type": "log",
            "source": "/relay",
            "id": "1",
            "data_base64": base64.b64encode(orjson.dumps(RECORD)).decode(),
        },
        {"specversion": "0.3", "type": "log", "source": "/relay", "id": "1", "datacontentencoding": "base64"}
        | {"data": base64.b64encode(b"Nov 21 07:13:15 n1 app: hi").decode()},
        [
            {
                "specversion": "1.0",
                "type": "log",
                "source": "/relay",
                "id": "1",
                "data": orjson.dumps(RECORD).decode(),
            }
        ],
    ],
    ids=lambda value: str(value)[:60],
)
def test_the_line_comes_out_with_its_host_and_time(value: Any) -> None:
    (line,) = lines(value)
    assert (line.message, line.node, line.at) == ("hi", "n1", AT)


def test_the_labels_of_a_stream_name_the_pod() -> None:
    labels = {"namespace": "ns", "pod": "train-0", "container": "main", "node_name": "n1"}
    one, two = lines({"streams": [{"stream": labels, "values": [[NS, "a"], [NS, "b"]]}]})
    assert (one.pod, one.container, one.node, two.text) == (two.pod, "main", "n1", "b")
    assert one.pod is not None
    assert one.pod.key == "ns/train-0"


def test_a_stream_of_the_kernel_is_the_kernels() -> None:
    (line,) = lines({"streams": [{"stream": {"host": "n1", "transport": "kernel"}, "values": [[NS, "hi"]]}]})
    assert line.source == "kernel"


def test_data_that_are_not_base64_are_named() -> None:
    record = {"specversion": "1.0", "type": "t", "source": "s", "id": "e7", "data_base64": "***"}
    assert "e7" in open_record(orjson.dumps(record), RecordContext(NOW)).unreadable[0]


def test_a_controllers_event_is_a_line_of_the_controller() -> None:
    events = [
        {
            "Message": "The power input for power supply 2 is lost.",
            "EventTimestamp": ISO,
            "MessageId": "PSU0003",
        },
        {"MessageId": "without a message"},
    ]
    (line,) = lines({"@odata.type": "#Event.v1_7_0.Event", "Context": "gpu-bmc", "Events": events})
    assert (line.message, line.source, line.at) == (events[0]["Message"], "redfish", AT)
    assert line.node == "from-key"


@pytest.mark.parametrize("code", ["Deassert", [{"Member": "Deassert"}]])
def test_an_entry_of_a_controllers_log_keeps_its_direction(code: Any) -> None:
    (line,) = lines(
        {
            "@odata.type": "#LogEntry.v1_3_0.LogEntry",
            "Created": ISO,
            "EntryCode": code,
            "Message": "Fan 3 RPM is less\nthan the lower critical threshold.",
            "host": "n1",
        }
    )
    assert (line.message, line.node) == (
        "Fan 3 RPM is less than the lower critical threshold. | Deasserted",
        "n1",
    )


@pytest.mark.parametrize("severity", [{"MessageSeverity": "OK"}, {"Severity": "OK"}])
def test_what_a_controller_holds_for_well_is_no_fault(severity: dict[str, str]) -> None:
    said = "Sensor 'CPU1 Temp' reading of 50 (Cel) is now below the 90 upper critical threshold."
    event = {"@odata.type": "#LogEntry.v1_9_0.LogEntry", "Created": ISO, "Message": said, "host": "n1"}
    (fault,) = Detector("c1").detect(record(orjson.dumps({**event, "Severity": "Critical"}))).signals
    (well,) = Detector("c1").detect(record(orjson.dumps({**event, **severity}))).signals
    assert (fault.state, well.state) == (SignalState.FIRING, SignalState.CLEARED)


def test_a_log_event_without_a_message_is_named() -> None:
    record = {"logGroup": "g", "logEvents": [{"id": "e7"}]}
    assert "e7" in open_record(orjson.dumps(record), RecordContext(NOW)).unreadable[0]


def test_what_was_published_and_is_not_base64_is_named() -> None:
    record = {"message": {"data": "***", "messageId": "e7"}, "subscription": "projects/p/subscriptions/s"}
    assert "e7" in open_record(orjson.dumps(record), RecordContext(NOW)).unreadable[0]


@pytest.mark.parametrize("beside", [{"records": []}, {"records": [{"step": 3}]}, {"logEvents": []}])
def test_a_line_with_a_list_of_records_beside_it_is_a_line(beside: dict[str, Any]) -> None:
    (found,) = lines({**RECORD, "level": "info", **beside})
    assert (found.text, found.node) == ("hi", "n1")
