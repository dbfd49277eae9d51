"""OpenTelemetry's requests, as protobuf and as JSON: the same lines and samples from both."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from google.protobuf.json_format import MessageToJson
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from streams.detect import Detector
from streams.ingest import Opened, RecordContext, open_record
from streams.model.record import KubeEvent, LogLine, Sample
from tests.effort import tries
from tests.streams.detect.lines import record
from tests.streams.ingest import wire

NOW = datetime(2026, 11, 21, 7, 13, 20, tzinfo=UTC)
AT = datetime(2026, 11, 21, 7, 13, 15, 250_000, tzinfo=UTC)
NANOS = int(AT.timestamp() * 1000) * 1_000_000
OUTSIDE = RecordContext(NOW, "from-key")


def as_json(message: Any) -> bytes:
    text: str = MessageToJson(message)
    return text.encode()


def as_old_json(message: Any) -> bytes:
    text: str = MessageToJson(message, preserving_proto_field_name=True, indent=None)
    return text.encode()


def as_proto(message: Any) -> bytes:
    raw: bytes = message.SerializeToString()
    return raw


WAYS = pytest.mark.parametrize("way", [as_json, as_old_json, as_proto], ids=["json", "old json", "proto"])
Way = Callable[[Any], bytes]


def any_value(value: Any) -> AnyValue:
    made = AnyValue()
    if isinstance(value, dict):
        made.kvlist_value.SetInParent()
        made.kvlist_value.values.extend(KeyValue(key=k, value=any_value(v)) for k, v in value.items())
    elif isinstance(value, list):
        made.array_value.SetInParent()
        made.array_value.values.extend(any_value(one) for one in value)
    elif value is not None:
        kinds = {str: "string", bool: "bool", int: "int", float: "double", bytes: "bytes"}
        setattr(made, f"{kinds[type(value)]}_value", value)
    return made


def pairs(attributes: dict[str, Any]) -> list[KeyValue]:
    return [KeyValue(key=key, value=any_value(value)) for key, value in attributes.items()]


def logs(resource: dict[str, Any], *records: dict[str, Any]) -> ExportLogsServiceRequest:
    request = ExportLogsServiceRequest()
    one = request.resource_logs.add()
    one.resource.attributes.extend(pairs(resource))
    scope = one.scope_logs.add()
    scope.scope.name = "otelcol/filelog"
    for fields in records:
        made = scope.log_records.add()
        made.time_unix_nano = fields.get("time", 0)
        made.observed_time_unix_nano = fields.get("observed", 0)
        made.severity_text = fields.get("severity", "")
        made.attributes.extend(pairs(fields.get("attributes", {})))
        made.body.CopyFrom(any_value(fields.get("body")))
    return request


def opened(raw: bytes) -> Opened:
    result = open_record(raw, OUTSIDE)
    assert not result.unreadable
    return result


def all_of(raw: bytes) -> list[Any]:
    return list(opened(raw).observations)


def one(raw: bytes) -> Any:
    (observation,) = all_of(raw)
    return observation


POD = {
    "k8s.node.name": "n1",
    "k8s.pod.name": "p-0",
    "k8s.namespace.name": "ml",
    "k8s.pod.uid": "u-1",
    "k8s.container.name": "train",
}


@WAYS
def test_a_record_is_a_line_of_its_host(way: Way) -> None:
    line = one(way(logs({"host.name": "n1", "os.type": "linux"}, {"body": "hi", "time": NANOS})))
    assert isinstance(line, LogLine)
    assert (line.message, line.node, line.at, line.pod) == ("hi", "n1", AT, None)


@WAYS
def test_a_record_without_a_time_has_the_time_it_was_observed(way: Way) -> None:
    assert one(way(logs({}, {"body": "hi", "observed": NANOS}))).at == AT
    assert one(way(logs({}, {"body": "hi", "observed": NANOS}))).node == "from-key"


@WAYS
def test_the_attributes_of_kubernetes_name_pod_node_and_container(way: Way) -> None:
    line = one(way(logs(POD | {"host.name": "collector-7"}, {"body": "hi", "time": NANOS})))
    assert line.pod is not None
    assert (line.pod.key, line.pod.uid, line.container, line.node) == ("ml/p-0", "u-1", "train", "n1")


@WAYS
def test_the_path_of_a_file_names_the_pod_where_nothing_else_does(way: Way) -> None:
    path = "/var/log/pods/ml_p-0_0f4d5d1c-9b7e-4c7e-8d8e-0c2f7a1b2c3d/train/0.log"
    line = one(way(logs({"k8s.node.name": "n1"}, {"body": "hi", "attributes": {"log.file.path": path}})))
    assert line.pod is not None
    assert (line.pod.key, line.container, line.node) == ("ml/p-0", "train", "n1")


@WAYS
def test_a_relayed_syslog_line_is_of_the_host_that_wrote_it(way: Way) -> None:
    attributes = {"hostname": "leaf-2", "appname": "swss#orchagent", "facility": 3, "priority": 29}
    line = one(way(logs({"host.name": "collector"}, {"body": "hi", "attributes": attributes})))
    assert (line.node, line.source) == ("leaf-2", "swss#orchagent")
    kernel = one(way(logs({"host.name": "n1"}, {"body": "hi", "attributes": {"facility": 0}})))
    assert (kernel.node, kernel.source) == ("n1", "kernel")


@WAYS
def test_a_whole_syslog_line_in_the_body_keeps_its_header(way: Way) -> None:
    line = one(way(logs({}, {"body": "<4>Nov 21 07:13:15 n7 kernel: hi", "time": NANOS})))
    assert (line.message, line.node, line.source) == ("hi", "n7", "kernel")


@WAYS
def test_a_body_of_the_journal_is_read_as_the_journal(way: Way) -> None:
    body = {"MESSAGE": "hi", "_HOSTNAME": "n3", "_TRANSPORT": "kernel", "PRIORITY": "4"}
    line = one(way(logs({"host.name": "collector"}, {"body": body, "time": NANOS})))
    assert (line.text, line.node, line.source, line.at) == ("hi", "n3", "kernel", AT)


@WAYS
def test_a_body_of_bytes_is_text(way: Way) -> None:
    # A hint of the prefilter cannot be seen in base64, so bytes are read wherever the record is read at all.
    assert one(way(logs({}, {"body": "hi é".encode()}))).text == "hi é"


@WAYS
def test_a_body_of_several_texts_is_several_lines(way: Way) -> None:
    assert [line.text for line in all_of(way(logs({}, {"body": ["a", "b"]})))] == ["a", "b"]


@WAYS
def test_a_map_of_unknown_names_is_one_line(way: Way) -> None:
    line = one(way(logs({"host.name": "n1"}, {"body": {"step": 12, "loss": 2.5}})))
    assert (line.text, line.node) == ("step=12 loss=2.5", "n1")


@WAYS
def test_a_watched_event_is_an_event(way: Way) -> None:
    event = {
        "reason": "NodeNotReady",
        "message": "Node n1 status is now: NodeNotReady",
        "type": "Normal",
        "lastTimestamp": "2026-11-21T07:13:15Z",
        "involvedObject": {"kind": "Node", "name": "n1"},
    }
    for body in (event, {"type": "ADDED", "object": event}):
        found = one(way(logs({}, {"body": body})))
        assert isinstance(found, KubeEvent)
        assert (found.reason, found.kind, found.name) == ("NodeNotReady", "Node", "n1")


@WAYS
def test_what_the_events_receiver_flattens_is_an_event(way: Way) -> None:
    resource = {"k8s.node.name": "n1", "k8s.object.kind": "Node", "k8s.object.name": "n1"}
    attributes = {"k8s.event.reason": "NodeNotReady", "k8s.event.count": 1, "k8s.namespace.name": "default"}
    fields = {"body": "Node n1 ...", "severity": "Warning", "time": NANOS, "attributes": attributes}
    found = one(way(logs(resource, fields)))
    assert isinstance(found, KubeEvent)
    assert (found.reason, found.message, found.kind, found.name, found.namespace, found.type, found.at) == (
        ("NodeNotReady", "Node n1 ...", "Node", "n1", "default", "Warning", AT)
    )


def metrics(resource: dict[str, Any], name: str) -> tuple[ExportMetricsServiceRequest, Any]:
    request = ExportMetricsServiceRequest()
    one_ = request.resource_metrics.add()
    one_.resource.attributes.extend(pairs(resource))
    metric = one_.scope_metrics.add().metrics.add()
    metric.name = name
    return request, metric


@WAYS
def test_a_point_is_a_sample_with_the_labels_of_point_and_resource(way: Way) -> None:
    resource = {"service.name": "dcgm", "service.instance.id": "10.0.0.5:9400", "k8s.pod.name": "exporter-x"}
    request, metric = metrics(resource, "DCGM_FI_DEV_GPU_TEMP")
    point = metric.gauge.data_points.add(time_unix_nano=NANOS, as_double=61.5)
    point.attributes.extend(pairs({"gpu": 3, "Hostname": "n1", "UUID": "GPU-1", "pod": "p-0"}))
    sample = one(way(request))
    assert isinstance(sample, Sample)
    assert (sample.name, sample.value, sample.at, sample.node) == ("DCGM_FI_DEV_GPU_TEMP", 61.5, AT, "n1")
    wanted = {"gpu": "3", "UUID": "GPU-1", "pod": "p-0", "instance": "10.0.0.5:9400"}
    assert wanted.items() <= sample.labels.items()


@WAYS
@pytest.mark.parametrize(
    ("resource", "node"),
    [
        ({"k8s.node.name": "n2", "host.name": "collector"}, "n2"),
        ({"host.name": "n3", "service.instance.id": "10.0.0.5:9400"}, "n3"),
        ({"service.instance.id": "10.0.0.5:9400"}, "10.0.0.5"),
        ({"server.address": "n4", "service.instance.id": "d1f0a5c2-0000-4000-8000-000000000000"}, "n4"),
        ({}, "from-key"),
    ],
)
def test_a_resource_names_the_node(way: Way, resource: dict[str, str], node: str) -> None:
    request, metric = metrics(resource, "x")
    metric.sum.data_points.add(as_int=7)
    assert (one(way(request)).node, one(way(request)).value) == (node, 7.0)


@WAYS
@pytest.mark.parametrize("kind", ["histogram", "exponential_histogram", "summary"])
def test_a_distribution_is_its_count_and_its_sum(way: Way, kind: str) -> None:
    request, metric = metrics({}, "x")
    getattr(metric, kind).data_points.add(count=4, sum=10.5)
    assert [(s.name, s.value) for s in all_of(way(request))] == [("x_count", 4), ("x_sum", 10.5)]


@WAYS
def test_a_point_that_only_ends_its_series_is_no_sample(way: Way) -> None:
    request, metric = metrics({}, "x")
    metric.gauge.data_points.add(flags=1, as_double=1.0)
    assert not opened(way(request)).observations


@WAYS
def test_traces_are_refused_by_name(way: Way) -> None:
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add(trace_id=b"t" * 16, span_id=b"s" * 8)
    span.name, span.start_time_unix_nano = "step", NANOS
    (reason,) = open_record(way(request), OUTSIDE).unreadable
    assert "traces" in reason


XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python3, GPU has fallen off the bus."


@WAYS
def test_of_a_thousand_records_only_those_of_interest_are_opened(way: Way) -> None:
    noise = [{"body": f"audit: type=1400 pid={n}", "time": NANOS} for n in range(500)]
    request = logs({"host.name": "n1"}, *noise, {"body": XID, "time": NANOS}, *noise)
    found = Detector("c1").detect(record(way(request)))
    assert (found.observations, [signal.entity.node for signal in found.signals]) == (1, ["n1"])


def test_metrics_that_no_rule_reads_are_not_opened() -> None:
    request, metric = metrics({"host.name": "n1"}, "DCGM_FI_DEV_XID_ERRORS")
    metric.gauge.data_points.add(as_double=0)
    other = request.resource_metrics[0].scope_metrics[0].metrics.add(name="up")
    other.gauge.data_points.add(as_double=0)
    assert Detector("c1").detect(record(as_proto(request))).observations == 1


value = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(), st.binary()
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=6,
)
names = st.one_of(st.text(), st.sampled_from([*POD, "host.name", "log.file.path", "facility", "__name__"]))
attributes = st.dictionaries(names, value, max_size=4)


@WAYS
@settings(max_examples=tries(80))
@given(attributes, attributes, value, st.integers(0, 2**64 - 1))
def test_any_request_of_logs_is_read(
    way: Way, resource: dict[str, Any], inside: dict[str, Any], body: Any, nanos: int
) -> None:
    raw = way(logs(resource, {"body": body, "attributes": inside, "time": nanos}, {"body": "last"}))
    assert open_record(raw, OUTSIDE).observations[-1].text == "last"  # type: ignore[union-attr]


@settings(max_examples=tries(80))
@given(attributes, attributes, st.one_of(st.floats(), st.integers(-(2**63), 2**63 - 1)))
def test_any_point_is_one_sample_of_bounded_labels(
    resource: dict[str, Any], inside: dict[str, Any], number: float
) -> None:
    request, metric = metrics(resource, "x")
    point = metric.gauge.data_points.add()
    point.attributes.extend(pairs(inside))
    setattr(point, "as_int" if isinstance(number, int) else "as_double", number)
    sample = one(as_proto(request))
    assert sample.value == float(number) or number != number
    assert all(len(text) <= 512 for text in sample.labels.values())


def deep(levels: int) -> bytes:
    """A body of lists within lists."""
    body = wire.message(1, "x")
    for _ in range(levels):
        body = wire.message(5, wire.message(1, body))
    record_ = b"\x09" + bytes(8) + wire.message(5, body)
    return wire.message(1, wire.message(2, wire.message(2, record_)))


@pytest.mark.parametrize("levels", [5, 60, 5000])
def test_nesting_without_end_is_no_crash(levels: int) -> None:
    assert len(open_record(deep(levels), OUTSIDE).observations) <= 1
    nested: Any = {"stringValue": "x"}
    for _ in range(min(levels, 60)):
        nested = {"arrayValue": {"values": [nested]}}
    document = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": nested}]}]}]}
    assert len(open_record(orjson.dumps(document), OUTSIDE).observations) <= 1


@settings(max_examples=tries(400))
@given(st.binary(max_size=300), st.sampled_from([b"\n", b"\x1a", b'"\x00']), st.integers(0, 400))
def test_any_bytes_that_begin_like_a_message_are_read_or_refused(tail: bytes, begin: bytes, cut: int) -> None:
    open_record(begin + tail, OUTSIDE)
    whole = as_proto(
        logs(POD, {"body": XID, "time": NANOS}, {"body": "hi", "attributes": {"a": [1, {"b": 2.5}]}})
    )
    open_record(whole[:cut], OUTSIDE)
    open_record(whole[:cut] + tail, OUTSIDE)


def test_json_nested_as_deep_as_can_be_parsed_is_no_crash() -> None:
    opening, closing = '{"arrayValue":{"values":[', "]}}"
    for levels in (80, 330):
        nested = opening * levels + '{"stringValue":"x"}' + closing * levels
        document = '{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":' + nested + "}]}]}]}"
        assert len(Detector("c1").read(record(document.encode())).dead) == (levels > 300)


def test_a_text_that_begins_with_an_empty_line_is_text() -> None:
    for text in ("\nhi", "\n\nhi\n", "\n\x02hi", "\n" * 11, '"\nhi'):
        assert not open_record(text.encode(), OUTSIDE).unreadable


def test_a_record_gives_no_more_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.ingest.records.MAX_OBSERVATIONS", 100)
    for way in (as_json, as_proto):
        result = open_record(way(logs({}, *[{"body": "hi"}] * 300)), OUTSIDE)
        assert len(result.observations) == 100
        assert result.unreadable == ["more than 100 lines or samples; only the first ones were read"]


@pytest.mark.parametrize(
    "resource",
    [
        {"attributes": [{"key": "k8s.node.name", "value": {"stringValue": "n1"}}]},
        {"attributes": {"k8s.node.name": "n1"}},
        {"k8s.node.name": "n1"},
    ],
    ids=["pairs", "a map", "names"],
)
def test_a_log_record_by_itself_is_a_line_of_its_resource(resource: dict[str, Any]) -> None:
    alone = {
        "timeUnixNano": str(NANOS),
        "severityNumber": 17,
        "body": {"stringValue": "hi"},
        "resource": resource,
    }
    line = one(orjson.dumps(alone))
    assert (line.message, line.node, line.at, line.level) == ("hi", "n1", AT, 3)
