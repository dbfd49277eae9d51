"""Lines from a file or standard input: each signal with a reference to its line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson

from streams.detect import cli_records
from tests.streams.detect.lines import NOW

XID = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


def found(*lines: Any) -> list[tuple[Any, str, str]]:
    text = [line if isinstance(line, str) else orjson.dumps(line).decode() for line in lines]
    return [(ref, s.kind, s.entity.key) for ref, s in cli_records(text, cluster="c1", now=NOW)]


def test_raw_lines_are_referred_to_by_their_number() -> None:
    assert found("all is well\n", "\n", f"Nov 21 07:13:13 gpu-1 kernel: {XID}\n", "{broken\n") == [
        (3, "gpu.xid", "gpu/gpu-1/0000:3b:00")
    ]


def test_a_json_line_is_referred_to_by_its_id_and_may_hold_several_lines() -> None:
    three = (
        "NVRM: The NVIDIA GPU 0000:18:00.0\nNVRM: (PCI ID: 10de:2901) installed in this system has\n"
        "NVRM: fallen off the bus and is not responding to commands."
    )
    assert found({"id": "a", "text": three, "node": "gpu-7"}, {"id": 5, "text": XID}, {"text": XID}) == [
        ("a", "gpu.off_bus", "gpu/gpu-7/0000:18:00"),
        (5, "gpu.xid", "cluster"),
        (3, "gpu.xid", "cluster"),
    ]


def test_the_given_node_and_time_count() -> None:
    line = {"id": 1, "text": XID, "node": "gpu-7", "time": "2026-01-02T03:04:05Z", "source": "kmsg"}
    ((_, signal),) = cli_records([orjson.dumps(line).decode()], cluster="c1", now=NOW)
    assert signal.entity.node == "gpu-7"
    assert signal.occurred_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    ((_, undated),) = cli_records([XID], cluster="c1", now=NOW)
    assert undated.occurred_at == NOW


def test_one_records_line_never_completes_anothers() -> None:
    first = {"id": 1, "text": "NVRM: The NVIDIA GPU 0000:18:00.0"}
    last = {"id": 2, "text": "NVRM: fallen off the bus and is not responding to commands."}
    assert found(first, last) == [(2, "gpu.off_bus", "cluster")]
    assert found(first | {"node": "n"}, last | {"node": "n"}) == [(2, "gpu.off_bus", "gpu/n/0000:18:00")]


def test_a_shippers_record_is_read_as_one() -> None:
    assert found({"MESSAGE": XID, "_HOSTNAME": "gpu-2", "_TRANSPORT": "kernel"}) == [
        (1, "gpu.xid", "gpu/gpu-2/0000:3b:00")
    ]


def test_the_source_of_a_record_lets_the_kernel_speak_in_full() -> None:
    odd = f"mlx5_core 0000:5c:00.0: something {XID}"
    assert found({"id": 1, "text": odd, "source": "kernel"}) == [(1, "gpu.xid", "cluster")]
    assert found({"id": 1, "text": odd}) == []


def test_what_people_write_is_no_report() -> None:
    assert found({"id": 1, "text": XID, "source": "slack"}) == []
    watchdog = "[Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=31, OpType=ALLREDUCE"
    assert found(f"Nov 21 07:13:13 h slackbot[3]: dana: {watchdog}") == []
    assert found(f"Nov 21 07:13:13 h python3[3]: {watchdog}") != []


def test_what_people_said_is_known_by_the_records_other_fields() -> None:
    assert found({"id": 1, "text": XID, "user": "U1", "channel": "C1"}) == []


def test_half_of_a_surrogate_pair_or_bytes_before_the_line_lose_no_report() -> None:
    assert [
        kind for _, kind, _ in found('{"id": 1, "text": "' + XID + ' \\ud800"}', "a\x00\ufffd" + XID)
    ] == [
        "gpu.xid",
        "gpu.xid",
    ]


def test_a_nested_line_without_end_is_no_json_and_no_error() -> None:
    assert found('{"text":' + "[" * 100_000) == []
