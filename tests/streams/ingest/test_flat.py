"""Maps with a text in them, as each shipper spells their fields: the same line, host, program and pod from all of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from streams.ingest import Opened, RecordContext, open_record
from streams.model.entity import PodRef
from streams.model.record import LogLine

NOW = datetime(2026, 11, 21, 7, 13, 20, tzinfo=UTC)
AT = datetime(2026, 11, 21, 7, 13, 15, tzinfo=UTC)
ISO = "2026-11-21T07:13:15Z"


def opened(value: Any, node: str | None = "from-key") -> Opened:
    raw = value if isinstance(value, bytes) else orjson.dumps(value)
    return open_record(raw, RecordContext(NOW, node))


def line(value: Any, node: str | None = "from-key") -> LogLine:
    result = opened(value, node)
    assert not result.unreadable
    (found,) = result.observations
    assert isinstance(found, LogLine)
    return found


JOURNAL = {
    "__CURSOR": "s=1;i=2",
    "__REALTIME_TIMESTAMP": "1795245195000000",
    "__MONOTONIC_TIMESTAMP": "41",
    "_BOOT_ID": "b",
    "PRIORITY": "4",
    "_HOSTNAME": "n1",
}

NODE_RECORDS: dict[str, tuple[dict[str, Any], str, str]] = {
    "journalctl -o json": (JOURNAL | {"MESSAGE": "hi", "_TRANSPORT": "kernel"}, "n1", "kernel"),
    "journal bytes": (
        JOURNAL | {"MESSAGE": list(b"hi"), "SYSLOG_IDENTIFIER": "lsmd"},
        "n1",
        "lsmd",
    ),
    "journal repeated fields": (
        JOURNAL | {"MESSAGE": ["hi"], "SYSLOG_IDENTIFIER": ["a", "b"], "_HOSTNAME": ["n1", "n1"]},
        "n1",
        "",
    ),
    "vector journald": (
        {
            "host": "n1",
            "message": "hi",
            "timestamp": ISO,
            "source_type": "journald",
            "SYSLOG_IDENTIFIER": "kernel",
            "_TRANSPORT": "kernel",
        },
        "n1",
        "kernel",
    ),
    "vector syslog through a relay": (
        {
            "appname": "orchagent",
            "facility": "local4",
            "host": "relay",
            "hostname": "leaf-1",
            "message": "hi",
            "severity": "notice",
            "source_ip": "10.0.0.9",
            "source_type": "syslog",
            "timestamp": ISO,
        },
        "leaf-1",
        "orchagent",
    ),
    "vector file": (
        {"file": "/var/log/kern.log", "host": "n1", "message": "hi", "source_type": "file", "timestamp": ISO},
        "n1",
        "",
    ),
    "vector native_json": ({"log": {"host": "n1", "message": "hi", "timestamp": ISO}}, "n1", ""),
    "filebeat": (
        {
            "@timestamp": ISO,
            "@metadata": {"beat": "filebeat", "version": "8.15.0"},
            "agent": {"name": "n1", "type": "filebeat", "hostname": "n1"},
            "ecs": {"version": "8.0.0"},
            "host": {"name": "n1", "ip": ["10.0.0.5"]},
            "input": {"type": "log"},
            "log": {"file": {"path": "/var/log/kern.log"}, "offset": 12},
            "message": "hi",
        },
        "n1",
        "",
    ),
    "filebeat syslog": (
        {
            "@timestamp": ISO,
            "host": {"name": "relay"},
            "log": {"syslog": {"appname": "orchagent", "hostname": "leaf-1", "facility": {"code": 20}}},
            "message": "hi",
        },
        "leaf-1",
        "orchagent",
    ),
    "rsyslog by properties": (
        {
            "@timestamp": ISO,
            "host": "n1",
            "severity": "warning",
            "facility": "kern",
            "tag": "kernel:",
            "msg": "hi",
        },
        "n1",
        "kernel",
    ),
    "rsyslog with a tag and a process": (
        {"timereported": ISO, "hostname": "n1", "syslogtag": "lsmd[12]:", "message": "hi"},
        "n1",
        "lsmd",
    ),
    "rsyslog jsonmesg": (
        {
            "msg": "hi",
            "rawmsg": "<4>Nov 21 07:13:15 n1 kernel: hi",
            "timereported": ISO,
            "hostname": "n1",
            "syslogtag": "kernel:",
            "programname": "kernel",
            "fromhost-ip": "10.0.0.5",
            "syslogfacility-text": "kern",
        },
        "n1",
        "kernel",
    ),
    "fluentd syslog": (
        {
            "host": "leaf-1",
            "ident": "orchagent",
            "pid": "44",
            "message": "hi",
            "time": "2026-11-21 07:13:15 +0000",
        },
        "leaf-1",
        "orchagent",
    ),
    "milliseconds as text": ({"log": "hi", "hostname": "n1", "timestamp": "1795245195000"}, "n1", ""),
    "nanoseconds": ({"log": "hi", "hostname": "n1", "time": 1795245195000000000}, "n1", ""),
    "upper case": ({"Message": "hi", "HostName": "n1", "Timestamp": ISO}, "n1", ""),
    "a text of another type before the text": (
        {"message": None, "log": "hi", "node": "n1", "ts": ISO},
        "n1",
        "",
    ),
    "an empty text before the text": ({"message": "", "log": "hi", "node": "n1", "ts": ISO}, "n1", ""),
}


@pytest.mark.parametrize("name", NODE_RECORDS)
def test_a_nodes_record_is_its_line_whoever_shipped_it(name: str) -> None:
    record, node, source = NODE_RECORDS[name]
    found = line(record)
    assert (found.message, found.node, found.at) == ("hi", node, AT)
    assert found.source == (source or found.source)


POD_RECORDS: dict[str, dict[str, Any]] = {
    "fluent bit": {
        "log": "hi\n",
        "kubernetes": {
            "pod_name": "train-0",
            "namespace_name": "ns",
            "pod_id": "0a1b2c3d-1",
            "host": "n1",
            "container_name": "main",
            "labels": {"host": "wrong", "app": "x"},
        },
    },
    "fluent bit lifted": {
        "log": "hi",
        "kubernetes_pod_name": "train-0",
        "kubernetes_namespace_name": "ns",
        "kubernetes_pod_id": "0a1b2c3d-1",
        "kubernetes_host": "n1",
        "kubernetes_container_name": "main",
    },
    "dotted": {
        "message": "hi",
        "kubernetes.pod.name": "train-0",
        "kubernetes.namespace": "ns",
        "kubernetes.pod.uid": "0a1b2c3d-1",
        "kubernetes.node.name": "n1",
        "kubernetes.container.name": "main",
    },
    "vector": {
        "file": "/var/log/pods/ns_train-0_0a1b2c3d-1/main/0.log",
        "host": "vector-x7",
        "kubernetes": {
            "pod_name": "train-0",
            "pod_namespace": "ns",
            "pod_uid": "0a1b2c3d-1",
            "pod_node_name": "n1",
            "container_name": "main",
            "pod_labels": {},
        },
        "message": "hi",
        "source_type": "kubernetes_logs",
        "stream": "stderr",
    },
    "filebeat": {
        "message": "hi",
        "host": {"name": "filebeat-x7"},
        "kubernetes": {
            "pod": {"name": "train-0", "uid": "0a1b2c3d-1"},
            "namespace": "ns",
            "node": {"name": "n1"},
            "container": {"name": "main"},
        },
    },
    "by the file's name": {
        "message": "hi",
        "node": "n1",
        "file": "/var/log/pods/ns_train-0_0a1b2c3d-1/main/0.log",
    },
}


@pytest.mark.parametrize("name", POD_RECORDS)
def test_a_pods_record_keeps_pod_container_and_node_whoever_shipped_it(name: str) -> None:
    found = line(POD_RECORDS[name])
    assert found.pod is not None
    assert (found.message, found.node, found.pod.key, found.pod.uid) == (
        "hi",
        "n1",
        "ns/train-0",
        "0a1b2c3d-1",
    )
    assert (found.container, found.source) == ("main", "container")


def test_a_tag_of_fluent_bit_names_the_pod() -> None:
    tag = "kube.var.log.containers.train-0_ns_main-" + "ab" * 32 + ".log"
    found = line({"log": "hi", "tag": tag})
    assert found.pod is not None
    assert (found.pod.key, found.container, found.node) == ("ns/train-0", "main", None)


def test_json_within_a_text_is_read_as_the_record_that_it_is() -> None:
    inner = orjson.dumps(JOURNAL | {"MESSAGE": "hi", "_TRANSPORT": "kernel"}).decode()
    found = line({"message": inner, "host": "collector", "@timestamp": ISO})
    assert (found.text, found.node, found.source, found.at) == ("hi", "n1", "kernel", AT)
    twice = orjson.dumps(
        {"log": orjson.dumps({"level": "warn", "msg": "hi", "host": "db-1"}).decode()}
    ).decode()
    assert (line({"message": twice, "hostname": "n1"}).text, line({"log": twice, "hostname": "n1"}).node) == (
        "hi",
        "n1",
    )


def test_json_behind_a_header_is_the_message_of_the_headers_host() -> None:
    found = line(b'<14>1 2026-11-21T07:13:15Z n1 trainer 7 - - {"level":"error","msg":"hi"}')
    assert (found.text, found.node, found.source, found.at) == ("hi", "n1", "trainer", AT)
    assert line(b'Nov 21 07:13:15 n1 app: @cee: {"msg":"hi"}').text == "hi"
    assert line(b'2026-11-21T07:13:15.1Z stderr F {"msg":"hi","hostname":"n1"}').node == "n1"


@pytest.mark.parametrize(
    "value",
    [
        b"\xef\xbb\xbf" + b'{"msg":"hi"}',
        '\ufeff{"msg":"hi"}'.encode("utf-16-le"),
        '{"msg":"hi there"}'.encode("utf-16-be"),
        "hi".encode("utf-16"),
        b"\x00\x00\x00\x00hi\r\n",
        b'{"msg":"h\\u0000i"}',
        b'{"msg":"hi\\r\\n"}\r\n',
        b'{"msg":"hi","x":NaN}',
        b'{"msg":"hi","x":"\\ud800"}',
        b'{"msg":"hi","x":"\x01\xff"}',
    ],
    ids=repr,
)
def test_the_text_is_found_in_any_encoding(value: bytes) -> None:
    assert line(value).message.replace(" there", "") == "hi"


@pytest.mark.parametrize(
    "value", [b'{"msg":"h\\ud83d i"}', b'{"msg":"h\\ud83d i"}{"a":1}', b'{"msg":"h\\ud83d i","x']
)
def test_halves_of_surrogate_pairs_go_no_further(value: bytes) -> None:
    (found, *_) = opened(value).observations
    assert isinstance(found, LogLine)
    assert found.text.encode() == "h\ufffd i".encode()


@pytest.mark.parametrize(
    "batch",
    [
        b'[{"msg":"a"},{"msg":"b"},{"msg":"c"}]',
        b'{"msg":"a"}\n{"msg":"b"}\r\n\r\n{"msg":"c"}\n',
        b'{"msg":"a"}{"msg":"b"} {"msg":"c"}',
        b'{"msg":"a"}\nb\n{"msg":"c"}',
        b'{\n  "msg": "a"\n}\n{\n  "msg": "b"\n}\n{"msg":"c"}',
        b'a\n{"msg":"b"}\nc',
        b'[{"msg":"a"},\n{"msg":"b"},\n{"msg":"c"}]',
    ],
    ids=repr,
)
def test_a_batch_gives_its_lines_in_order(batch: bytes) -> None:
    result = opened(batch)
    assert [found.message for found in result.observations if isinstance(found, LogLine)] == ["a", "b", "c"]
    assert not result.unreadable


@pytest.mark.parametrize("cut", range(12, 60))
def test_a_cut_object_gives_what_is_left_and_says_so(cut: int) -> None:
    whole = orjson.dumps({"host": "n1", "msg": "hello world", "at": [1, 2, {"a": "b"}]})
    result = opened(whole[:cut])
    if cut >= len(whole):
        return
    assert len(result.unreadable) == 1
    assert all(
        found.message.removesuffix("…") in "hello world"
        for found in result.observations
        if isinstance(found, LogLine)
    )
    if cut > whole.index(b"hello") + 5:
        assert result.observations


def test_a_text_wrapped_again_and_again_is_read_as_far_as_that_is_bounded() -> None:
    record: Any = {"msg": "hi"}
    for _ in range(4):
        record = {"log": orjson.dumps(record).decode()}
    assert line(record).text == "hi"
    for _ in range(8):
        record = {"log": orjson.dumps(record).decode()}
    assert opened(record).observations


def test_a_record_wrapped_too_often_is_named() -> None:
    inside = opened_at_depth(9)
    assert "wrapped more than" in inside.unreadable[0]


def opened_at_depth(depth: int) -> Opened:
    return open_record(b'{"msg":"hi"}', RecordContext(NOW, depth=depth))


@pytest.mark.parametrize(
    ("record", "job"),
    [
        ({"fields": {"slurm_job_id": "4242"}}, "4242"),
        ({"SLURM_JOB_ID": 4242}, "4242"),
        ({"log": {"file": {"path": "/home/ada/runs/slurm-4242.out"}}}, "4242"),
        ({"filename": "/home/ada/slurm-4242_7.err"}, "4242_7"),
        ({"path": "/scratch/slurm-logs/pretrain-4242.out"}, "4242"),
        ({"file": "/run/slurm-logs/4242/vlm.task044.out"}, "4242"),
        ({"file": "/var/log/slurm/jobs/4242/gpu-07.err"}, "4242"),
        ({"path": "/var/log/slurm/slurmd.log"}, None),
        ({"path": "/var/log/app/request-4242.log"}, None),
        ({"fields": {"slurm_job_id": "none"}}, None),
        ({"path": "/var/log/slurm/slurmctld.log.20261121.log"}, None),
    ],
)
def test_the_output_of_a_slurm_job_is_known_by_a_field_or_its_file(
    record: dict[str, object], job: str | None
) -> None:
    shipped = {"message": "3: step 12 done", "host": {"name": "gpu-017"}, **record}
    (line,) = open_record(orjson.dumps(shipped), RecordContext(NOW)).observations
    assert isinstance(line, LogLine)
    assert line.pod == (PodRef("slurm", job) if job else None)
    assert line.node == "gpu-017"


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"level": "ERROR", "error": {"message": "the quark is gone"}}, "the quark is gone"),
        ({"level": "ERROR", "message": "", "error": {"message": "the quark is gone"}}, "the quark is gone"),
        ({"level": "warn", "msg": "alarm raised", "alarm": "QUARK", "from": "9"}, "alarm raised alarm=QUARK"),
    ],
)
def test_what_a_record_leaves_to_fields_beside_its_text_is_read(record: dict[str, Any], said: str) -> None:
    assert said in [found.text for found in opened(record).observations if isinstance(found, LogLine)]


@pytest.mark.parametrize("record", [{"level": "INFO", "error": "no quark at all"}, {"error": {"code": 9}}])
def test_a_record_without_a_text_and_an_error_in_words_is_no_line(record: dict[str, Any]) -> None:
    assert not opened(record).observations


COMPONENT = {
    "ts": ISO,
    "msg": "checked",
    "component": "quark-9",
    "health": "Unhealthy",
    "reason": "two are missing",
}


@pytest.mark.parametrize(
    ("machine", "node"),
    [
        ({"machine_id": "gpu-9"}, "gpu-9"),
        ({"machine_id": "6d5f2c1e-1111-4222-8333-9a8b7c6d5e4f"}, "from-key"),
        ({"hostname": "gpu-7", "machine_id": "gpu-9"}, "gpu-7"),
    ],
)
def test_a_component_that_its_agent_calls_unhealthy_is_a_verdict_whatever_its_text(
    machine: dict[str, str], node: str
) -> None:
    found = line(COMPONENT | machine)
    assert (found.node, found.at) == (node, AT)
    assert found.text == 'component is unhealthy component=quark-9 reason="two are missing"'


@pytest.mark.parametrize("health", ["Healthy", "Initializing"])
def test_a_component_that_is_well_is_what_its_text_says(health: str) -> None:
    assert line(COMPONENT | {"health": health}).text == "checked"
