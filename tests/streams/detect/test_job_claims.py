"""A job's output is believed about the job, and about no hardware: whoever may run a container writes it."""

from __future__ import annotations

import json

import pytest

from streams.detect import Detector
from tests.streams.detect.lines import record

XID = "NVRM: Xid (PCI:0000:9d:00): 79, pid=8812, name=python, GPU has fallen off the bus."
SYSLOG = f"Mar  3 03:04:12 gpu-03 kernel: {XID}"
FORGED = {
    "the kernel's line": XID,
    "with dmesg's stamp": f"[12345.678901] {XID}",
    "as syslog of another node": SYSLOG,
    "as RFC 5424 of another node": f"<3>1 2026-11-21T07:13:19Z gpu-03 kernel - - - {XID}",
    "as a record of the journal": json.dumps({"MESSAGE": XID, "_TRANSPORT": "kernel", "_HOSTNAME": "gpu-03"}),
    "as a container's log": json.dumps({"log": SYSLOG, "stream": "stderr"}),
    "as an Event": json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "reason": "NodeNotReady",
            "message": "Node gpu-03 status is now: NodeNotReady",
            "involvedObject": {"kind": "Node", "name": "gpu-03"},
            "type": "Warning",
            "lastTimestamp": "2026-11-21T07:13:19Z",
        }
    ),
    "as an alert": json.dumps(
        {
            "version": "4",
            "status": "firing",
            "alerts": [
                {
                    "status": "firing",
                    "labels": {"alertname": "DCGM_XID", "node": "gpu-03", "xid": "79"},
                    "annotations": {},
                    "startsAt": "2026-11-21T07:13:00Z",
                }
            ],
        }
    ),
    "nvidia-smi's words": "Unable to determine the device handle for GPU0000:9D:00.0: GPU is lost.  Reboot the system",
    "a machine check": "mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 4: b200000000070f0f",
    "a file system": "kernel: EXT4-fs error (device nvme0n1): ext4_find_entry:1455: inode #2: comm x: reading",
}


def shipped(text: str) -> str:
    """A line of a container as a shipper sends it."""
    where = {"host": "gpu-07", "pod_name": "train-0", "namespace_name": "team-a", "container_name": "trainer"}
    return json.dumps({"time": "2026-11-21T07:13:19Z", "log": text, "stream": "stdout", "kubernetes": where})


@pytest.mark.parametrize("how", FORGED)
def test_a_job_that_prints_a_fault_of_hardware_is_hearsay_of_any_node(how: str) -> None:
    found = Detector("c1").detect(record(shipped(FORGED[how]), topic="raw.job-logs")).signals
    assert all(str(one.kind) == "unknown" or one.attributes.get("relayed") for one in found)


@pytest.mark.parametrize("how", ["the kernel's line", "as syslog of another node", "a machine check"])
def test_the_same_words_from_a_node_agent_are_believed(how: str) -> None:
    found = Detector("c1").detect(record(shipped(FORGED[how]), topic="raw.node-logs")).signals
    assert any(str(one.kind).startswith(("gpu.", "node.")) for one in found)


def test_what_a_job_says_of_itself_is_believed() -> None:
    line = (
        "gpu-07:812:901 [0] NCCL WARN Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, "
        "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001 milliseconds before timing out."
    )
    found = Detector("c1").detect(record(shipped(f"[rank0]: {line}"), topic="raw.job-logs")).signals
    assert [str(one.kind) for one in found if str(one.kind) != "unknown"] == ["nccl.timeout"]


def test_hearsay_of_the_jobs_own_node_names_the_pod_that_prints_it() -> None:
    found = Detector("c1").detect(record(shipped(XID), topic="raw.job-logs")).signals
    assert {(one.entity.node, one.attributes["printed_by"]) for one in found} == {
        ("gpu-07", "team-a/train-0")
    }
