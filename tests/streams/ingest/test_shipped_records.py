"""Records as the configurations in `k8s/shippers` write them: whose line it is, from which node, and what users may claim.

Records of rsyslog, syslog-ng and Telegraf are as they arrived from the real programs; the others follow their documentation.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from streams.detect.detector import Detector
from streams.model.entity import PodRef
from streams.model.record import RawRecord
from streams.model.signal import RELAYED, Signal

NOW = datetime(2026, 11, 27, 12, 23, 20, tzinfo=UTC)
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=42, name=python3, GPU has fallen off the bus."
POD = "/var/log/pods/research_llm-0_3f2a1b4c-0011-2233-4455-66778899aabb/trainer/0.log"
TIMEOUT = (
    "[rank3]:[E1127 12:23:13.123 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=421, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600012 milliseconds before "
    "timing out."
)
CRI = "2026-11-27T12:23:13.500000000Z stderr F "


def signals(topic: str, value: dict[str, Any], key: bytes | None = b"gpu-a07") -> list[Signal]:
    record = RawRecord(topic, 0, 0, NOW, key, orjson.dumps(value))
    found = Detector("c1").detect(record)
    assert not found.dead
    return list(found.signals)


OF_THE_KERNEL: dict[str, dict[str, Any]] = {
    "Fluent Bit": {
        "@timestamp": "2026-11-27T12:23:13.500000Z",
        "MESSAGE": XID,
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "kernel",
        "SYSLOG_FACILITY": "0",
        "_TRANSPORT": "kernel",
        "node_name": "gpu-a07",
    },
    "Fluent Bit's kmsg": {
        "@timestamp": "2026-11-27T12:23:13.500000Z",
        "priority": 4,
        "sequence": 4242,
        "sec": 812,
        "usec": 441000,
        "msg": XID,
        "node_name": "gpu-a07",
    },
    "Vector": {
        "PRIORITY": "4",
        "SYSLOG_FACILITY": "0",
        "SYSLOG_IDENTIFIER": "kernel",
        "_MACHINE_ID": "0123456789abcdef0123456789abcdef",
        "_TRANSPORT": "kernel",
        "__REALTIME_TIMESTAMP": "1795782193500000",
        "host": "gpu-a07.ib.example",
        "message": XID,
        "node_name": "gpu-a07",
        "source_type": "journald",
        "timestamp": "2026-11-27T12:23:13.500000Z",
    },
    "Filebeat": {
        "@timestamp": "2026-11-27T12:23:13.500Z",
        "@metadata": {"beat": "filebeat", "type": "_doc", "version": "9.0.0"},
        "message": XID,
        "host": {"name": "gpu-a07", "id": "0123456789abcdef"},
        "journald": {"custom": {}, "host": {"boot_id": "0123"}},
        "systemd": {"transport": "kernel"},
        "syslog": {"facility": 0, "identifier": "kernel", "priority": 4},
        "log": {"syslog": {"facility": {"code": 0}, "priority": 4, "appname": "kernel"}},
        "raw_topic": "raw.node-logs",
        "node_name": "gpu-a07",
    },
    "rsyslog": {
        "@timestamp": "2026-11-27T12:23:13.500000+00:00",
        "hostname": "gpu-a07",
        "severity": "notice",
        "facility": "kern",
        "programname": "kernel",
        "syslogtag": "kernel:",
        "message": XID,
    },
    "syslog-ng": {
        "severity": "notice",
        "programname": "kernel",
        "pid": "",
        "message": XID,
        "hostname": "gpu-a07",
        "facility": "kern",
        "@timestamp": "2026-11-27T12:23:13.500000+00:00",
    },
}


@pytest.mark.parametrize("shipper", OF_THE_KERNEL)
def test_the_kernels_line_is_its_nodes_with_its_own_time(shipper: str) -> None:
    (found,) = signals("raw.node-logs", OF_THE_KERNEL[shipper])
    assert (found.kind, found.attributes["xid"], found.entity.node) == ("gpu.xid", 79, "gpu-a07")
    assert found.occurred_at == datetime(2026, 11, 27, 12, 23, 13, 500000, tzinfo=UTC)
    assert RELAYED not in found.attributes


def of_a_pod(shipper: str, text: str) -> dict[str, Any]:
    """The record that a shipper writes of a line in a pod's log file."""
    records: dict[str, dict[str, Any]] = {
        "Fluent Bit": {
            "@timestamp": "2026-11-27T12:23:14Z",
            "file": POD,
            "log": text,
            "node_name": "gpu-a07",
        },
        "Vector": {
            "file": POD,
            "message": text,
            "node_name": "gpu-a07",
            "source_type": "file",
            "timestamp": "2026-11-27T12:23:14Z",
        },
        "Filebeat": {
            "@timestamp": "2026-11-27T12:23:14Z",
            "@metadata": {"beat": "filebeat", "type": "_doc", "version": "9.0.0"},
            "log": {"file": {"path": POD, "device_id": "2049", "inode": "7"}, "offset": 0},
            "message": text,
            "host": {"name": "gpu-a07"},
            "raw_topic": "raw.job-logs",
            "node_name": "gpu-a07",
        },
    }
    return records[shipper]


OF_PODS = ("Fluent Bit", "Vector", "Filebeat")


@pytest.mark.parametrize("shipper", OF_PODS)
def test_a_pods_line_is_its_pods_on_its_node(shipper: str) -> None:
    (found,) = signals("raw.job-logs", of_a_pod(shipper, CRI + TIMEOUT))
    pod = PodRef("research", "llm-0", "3f2a1b4c-0011-2233-4455-66778899aabb")
    assert (found.kind, found.entity.pod, found.entity.node) == ("nccl.timeout", pod, "gpu-a07")
    assert found.occurred_at == datetime(2026, 11, 27, 12, 23, 13, 500000, tzinfo=UTC)


@pytest.mark.parametrize("shipper", OF_PODS)
@pytest.mark.parametrize(
    "claim",
    [
        f"Nov 27 12:23:13 gpu-b09 kernel: {XID}",
        f"<4>Nov 27 12:23:13 gpu-b09 kernel: [  812.441] {XID}",
    ],
)
def test_what_a_pod_prints_of_another_host_is_marked(shipper: str, claim: str) -> None:
    for found in signals("raw.job-logs", of_a_pod(shipper, CRI + claim)):
        assert found.entity.node == "gpu-a07" or found.attributes[RELAYED] is True


@pytest.mark.parametrize("shipper", OF_PODS)
def test_json_that_a_pod_prints_names_no_other_host(shipper: str) -> None:
    claim = orjson.dumps({"_HOSTNAME": "gpu-b09", "_TRANSPORT": "kernel", "MESSAGE": XID}).decode()
    for found in signals("raw.job-logs", of_a_pod(shipper, CRI + claim)):
        assert found.entity.node == "gpu-a07" or found.attributes[RELAYED] is True


@pytest.mark.parametrize(
    "claim",
    [
        f"Nov 27 12:23:13 gpu-b09 kernel: {XID}".encode(),
        orjson.dumps({"log": f"Nov 27 12:23:13 gpu-b09 kernel: {XID}"}),
        orjson.dumps({"log": f"Nov 27 12:23:13 gpu-b09 kernel: {XID}", "node_name": "gpu-a07"}),
        orjson.dumps({"message": XID, "hostname": "gpu-b09", "programname": "kernel", "facility": "kern"}),
        (CRI + f"Nov 27 12:23:13 gpu-b09 kernel: {XID}").encode(),
    ],
)
def test_on_the_topic_of_jobs_another_hosts_fault_is_marked_without_a_pod_too(
    claim: bytes,
) -> None:
    record = RawRecord("raw.job-logs", 0, 0, NOW, b"gpu-a07", claim)
    (found,) = Detector("c1").detect(record).signals
    assert found.entity.node == "gpu-a07" or found.attributes[RELAYED] is True


def test_a_heartbeat_says_nothing() -> None:
    beat = {
        "@timestamp": "2026-11-27T12:23:13Z",
        "MESSAGE": "the shipper is there",
        "SYSLOG_IDENTIFIER": "fluent-bit",
    }
    assert not signals("raw.node-logs", {**beat, "node_name": "gpu-a07"})


READ = datetime(2026, 11, 27, 12, 23, 18, tzinfo=UTC)


def read_at(written: str, field: str = "@timestamp") -> dict[str, Any]:
    """A line that a shipper read from a file just now and gave the time of reading."""
    return {field: "2026-11-27T12:23:18Z", "message": f"{written} kernel: {XID}", "host": {"name": "gpu-a07"}}


@pytest.mark.parametrize("field", ["@timestamp", "date", "time"])
@pytest.mark.parametrize(
    ("written", "at"),
    [
        ("Nov 20 01:07:56 gpu-a07", datetime(2026, 11, 20, 1, 7, 56, tzinfo=UTC)),
        ("Nov 27 09:11:02 gpu-a07", datetime(2026, 11, 27, 9, 11, 2, tzinfo=UTC)),
        ("2026-11-20 01:07:56 gpu-a07", datetime(2026, 11, 20, 1, 7, 56, tzinfo=UTC)),
        ("[Fri Nov 20 01:07:56 2026]", datetime(2026, 11, 20, 1, 7, 56, tzinfo=UTC)),
    ],
    ids=["a week ago", "hours ago", "with a year", "dmesg"],
)
def test_a_file_that_is_read_again_tells_of_when_its_lines_were_written(
    written: str, at: datetime, field: str
) -> None:
    (found,) = signals("raw.node-logs", read_at(written, field))
    assert found.occurred_at == at


@pytest.mark.parametrize(
    "written",
    ["Nov 27 07:23:16", "Nov 27 13:23:18", "Nov 27 17:53:15", "Nov 27 20:23:17", "Nov 27 00:23:10"],
    ids=["New York", "Berlin", "Delhi", "Shanghai", "the westernmost"],
)
def test_a_hosts_local_time_is_now(written: str) -> None:
    (found,) = signals("raw.node-logs", read_at(f"{written} gpu-a07"))
    assert found.occurred_at == READ


def test_a_shipper_that_lags_by_minutes_tells_when_a_line_was_written() -> None:
    (found,) = signals("raw.node-logs", read_at("Nov 27 12:16:40 gpu-a07"))
    assert found.occurred_at == datetime(2026, 11, 27, 12, 16, 40, tzinfo=UTC)
