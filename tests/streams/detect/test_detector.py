"""The detector as a whole: places, times, state between records, and what it does with what it cannot read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import orjson
import pytest

from streams.detect import Detector
from streams.model.signal import SignalState
from tests.streams.detect.lines import NOW, detect, record, signals

XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


def kmsg(text: str, **more: object) -> bytes:
    return orjson.dumps(
        {
            "@timestamp": 1795245195.25,
            "priority": 4,
            "sequence": 9,
            "sec": 6781741,
            "usec": 548779,
            "msg": text,
            **more,
        }
    )


def test_fluent_bits_kmsg_has_no_host_so_the_key_names_it() -> None:
    (signal,) = detect(kmsg(XID), key=b"gpu-11").signals
    assert signal.entity.key == "gpu/gpu-11/0000:3b:00"
    assert signal.occurred_at == datetime(2026, 11, 21, 7, 13, 15, 250000, UTC)


def test_a_field_of_the_record_names_the_host_before_the_key_does() -> None:
    (signal,) = detect(kmsg(XID, hostname="gpu-12"), key=b"gpu-11").signals
    assert signal.entity.node == "gpu-12"


def test_a_key_that_is_an_id_is_no_host() -> None:
    (signal,) = detect(kmsg(XID), key=b"0b6fbb4e-7c1f-4c55-9a39-0a7e5d6f1c11").signals
    assert signal.entity.node is None
    assert signal.attributes["pci"] == "0000:3b:00"


def test_a_key_that_is_json_names_the_host() -> None:
    (signal,) = detect(kmsg(XID), key=b'{"host":"gpu-11"}').signals
    assert signal.entity.node == "gpu-11"
    (signal,) = detect(kmsg(XID), key=b'{"partition":3}').signals
    assert signal.entity.node is None


def test_a_header_names_the_cluster() -> None:
    raw = record(kmsg(XID), headers=(("faultline-cluster", b"west"), ("host", b"gpu-9")))
    (signal,) = Detector("c1").detect(raw).signals
    assert (signal.entity.cluster, signal.entity.node) == ("west", "gpu-9")


def test_a_pods_line_knows_pod_and_node_and_rank() -> None:
    value = orjson.dumps(
        {
            "@timestamp": "2026-11-21T07:13:15.250Z",
            "log": "[rank9]:[E1121 07:13:15.2 ProcessGroupNCCL.cpp:616] [PG ID 2 PG GUID 3 Rank 1] Watchdog caught collective "
            "operation timeout: WorkNCCL(SeqNum=31, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for "
            "600009 milliseconds before timing out.\n",
            "stream": "stderr",
            "kubernetes": {"pod_name": "llm-w-1", "namespace_name": "ml", "pod_id": "u-1", "host": "gpu-2"},
        }
    )
    (signal,) = signals(value)
    assert signal.entity.pod is not None
    assert (signal.entity.key, signal.entity.node, signal.entity.pod.uid) == (
        "rank/ml/llm-w-1/9",
        "gpu-2",
        "u-1",
    )


def test_the_same_line_shipped_twice_is_one_signal() -> None:
    line = "Nov 21 07:13:13.5 gpu-11 kernel: " + XID
    once = Detector("c1").detect(record(line, offset=1)).signals[0]
    again = Detector("c1").detect(record(line, offset=2, at=NOW + timedelta(seconds=4))).signals[0]
    assert once.id == again.id


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        (datetime(2026, 11, 21, 7, 13, 20, tzinfo=UTC), datetime(2026, 11, 21, 7, 13, 13, tzinfo=UTC)),
        (datetime(2027, 1, 1, 0, 0, 5, tzinfo=UTC), datetime(2026, 11, 21, 7, 13, 13, tzinfo=UTC)),
    ],
)
def test_a_time_without_a_year_is_the_last_one_before_the_record(
    received: datetime, expected: datetime
) -> None:
    (signal,) = Detector("c").detect(record("Nov 21 07:13:13 gpu-11 kernel: " + XID, at=received)).signals
    assert signal.occurred_at == expected


def test_new_years_eve_belongs_to_the_old_year_and_a_clock_ahead_is_not_believed() -> None:
    received = datetime(2027, 1, 1, 0, 0, 2, tzinfo=UTC)
    (late,) = Detector("c").detect(record("Dec 31 23:59:59 gpu-1 kernel: " + XID, at=received)).signals
    assert late.occurred_at == datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)
    (ahead,) = Detector("c").detect(record(f"2027-01-01T09:00:00Z gpu-1 kernel: {XID}", at=received)).signals
    assert ahead.occurred_at == received


def test_a_clock_of_another_zone_is_not_taken_for_last_year() -> None:
    (signal,) = signals("Nov 21 14:13:13 gpu-11 kernel: " + XID)
    assert signal.occurred_at == NOW


def test_a_gpus_uuid_is_known_from_the_drivers_banner() -> None:
    detector = Detector("c1")
    uuid = "GPU-7c1a2f30-0f3c-4f6e-9a39-3f1f8d5b2a10"
    assert not detector.detect(record(f"gpu-1 kernel: NVRM: GPU at PCI:0000:3b:00: {uuid}")).signals
    (here,) = detector.detect(record("gpu-1 kernel: " + XID)).signals
    (elsewhere,) = detector.detect(record("gpu-2 kernel: " + XID)).signals
    assert here.entity.gpu is not None
    assert elsewhere.entity.gpu is not None
    assert (here.entity.gpu.uuid, elsewhere.entity.gpu.uuid) == (uuid, None)


LINES = (
    "NVRM: The NVIDIA GPU 0000:18:00.0",
    "NVRM: (PCI ID: 10de:2901) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
)


def test_three_lines_in_three_records_are_one_gpu_off_the_bus() -> None:
    detector = Detector("c1")
    found = [s for line in LINES for s in detector.detect(record(kmsg(line), key=b"gpu-3")).signals]
    assert [(s.kind, s.entity.key) for s in found] == [("gpu.off_bus", "gpu/gpu-3/0000:18:00")]


def test_without_its_first_line_the_node_still_lost_a_gpu() -> None:
    (signal,) = detect(kmsg(LINES[2]), key=b"gpu-3").signals
    assert (signal.kind, signal.entity.key) == ("gpu.off_bus", "node/gpu-3")


def test_another_nodes_first_line_is_not_taken() -> None:
    detector = Detector("c1")
    detector.detect(record(kmsg(LINES[0]), key=b"gpu-4"))
    (signal,) = detector.detect(record(kmsg(LINES[2]), key=b"gpu-3")).signals
    assert signal.entity.gpu is None


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.",
        "[ 4.2] NVRM: GPU at PCI:0000:91:00: GPU has fallen off the bus.",
        "NVRM: The NVIDIA GPU 0000:91:00.0 (PCI ID: 10de:2901) installed in this system has fallen off the bus and is not "
        "responding to commands.",
    ],
)
def test_one_line_without_an_xid_tells_that_a_gpu_is_off_the_bus(line: str) -> None:
    (signal,) = signals(line)
    assert signal.kind == "gpu.off_bus"
    assert signal.attributes["pci"] == "0000:91:00"


def test_a_storm_belongs_to_the_switch_and_its_restore_clears_it() -> None:
    head = "Nov 21 07:13:13.1 leaf-2 NOTICE swss#orchagent: :- "
    tail = "on port Ethernet112, queue index 3, queue id 0x15 and port id 0x10"
    (storm,) = signals(f"{head}startWdActionOnQueue: PFC Watchdog detected PFC storm {tail}")
    (over,) = signals(f"{head}storm restored: PFC Watchdog storm restored {tail}.")
    assert storm.entity.key == over.entity.key == "port/leaf-2/Ethernet112"
    assert (storm.state, over.state) == (SignalState.FIRING, SignalState.CLEARED)
    assert (storm.attributes["queue"], storm.attributes["direction"]) == (3, "received_by_switch")


@pytest.mark.parametrize(
    "head",
    [
        "Nov 21 07:13:13.1 leaf-2 NOTICE swss#orchagent: :- report_pfc_storm: ",
        "Nov 21 07:13:13 leaf-2 swss#orchagent: ",
        "Nov 21 07:13:13 leaf-2 ",
        "2026 Nov 21 07:13:13.123456 leaf-2 NOTICE swss#orchagent[61]: :- ",
        "<133>1 2026-11-21T07:13:13.1Z leaf-2 swss#orchagent 61 - - :- ",
        "<133>Nov 21 07:13:13 leaf-2 NOTICE swss#orchagent: ",
        "2026-11-21T07:13:13.1+00:00 leaf-2 NOTICE swss#orchagent: ",
        "leaf-2 NOTICE swss#orchagent: ",
    ],
)
def test_a_switchs_line_names_the_switch_behind_any_header(head: str) -> None:
    (signal,) = signals(
        head + "PFC Watchdog detected PFC storm on port Ethernet112, queue index 3, queue id 0x15"
    )
    assert signal.entity.key == "port/leaf-2/Ethernet112"


def test_going_back_to_no_recovery_action_clears() -> None:
    (signal,) = signals(
        "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)"
    )
    assert signal.state is SignalState.CLEARED


def test_a_journals_byte_array_is_text() -> None:
    value = orjson.dumps({"MESSAGE": [*XID.encode(), 0xFF], "_HOSTNAME": "gpu-5", "_TRANSPORT": "kernel"})
    (signal,) = signals(value)
    assert signal.entity.node == "gpu-5"


@pytest.mark.parametrize("joint", [b"\n", b","], ids=["one object a line", "array"])
def test_a_batch_in_one_record_is_read_line_by_line(joint: bytes) -> None:
    objects = [
        kmsg("usb 1-1: new device", hostname="gpu-1"),
        kmsg(XID, hostname="gpu-1"),
        kmsg(XID, hostname="gpu-2"),
    ]
    body = joint.join(objects)
    found = detect(b"[" + body + b"]" if joint == b"," else body)
    assert [s.entity.node for s in found.signals] == ["gpu-1", "gpu-2"]
    assert (found.observations, found.ignored, found.dead) == (3, 1, ())


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"log": "cut in the mid', "not JSON"),
        (b'{"a": "NVRM: Xid (PCI:0000:3b:00): 79"}', "an unknown format"),
        (b'{"MESSAGE": [', "not JSON"),
        (b'{"x":' * 5000 + b'"NVRM: Xid (PCI:0000:3b:00): 79"' + b"}" * 5000, "not JSON"),
        (b"x" * 5_000_000 + b"NVRM: Xid (PCI:0000:3b:00): 79", "more than 16384"),
        (b'{"name":"DCGM_FI_DEV_XID_ERRORS","labels":{},"value":"many"}', "no number"),
        (b'{"reason":"NodeNotReady","involvedObject":{"kind":"Node"}}', "without"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_cannot_be_read_is_given_a_reason(value: bytes, reason: str) -> None:
    found = detect(value)
    assert not found.signals
    assert len(found.dead) == 1
    assert reason in found.dead[0]


def test_an_object_that_was_cut_says_what_is_left_of_it_and_is_told_to_be_cut() -> None:
    found = detect(kmsg(XID)[:-9])
    assert [signal.attributes["xid"] for signal in found.signals] == [79]
    assert "not JSON" in found.dead[0]


def test_bytes_that_are_not_utf_8_do_not_hide_the_text_around_them() -> None:
    found = detect(b'{"log":"\xff\xfeNVRM: Xid (PCI:0000:3b:00): 79"}')
    assert [signal.attributes["xid"] for signal in found.signals] == [79]
    assert not found.dead


@pytest.mark.parametrize(
    "value", [None, b"", b"\x00" * 100, b"\xff" * 100, b"[" * 100_000, b"{}", b"null", b"[[[]]]"]
)
def test_garbage_without_a_meaning_is_ignored(value: bytes | None) -> None:
    found = Detector("c").detect(record(value))
    assert not found.signals
    assert not found.dead


def test_an_exporters_own_cluster_name_does_not_move_a_node() -> None:
    event = {
        "reason": "NodeNotReady",
        "message": "Node gpu-1 status is now: NodeNotReady",
        "type": "Normal",
        "involvedObject": {"kind": "Node", "name": "gpu-1"},
        "clusterName": "as-the-exporter-calls-it",
    }
    (signal,) = signals(orjson.dumps(event))
    assert signal.entity.key == "node/gpu-1"
    assert signal.entity.cluster == "c1"
