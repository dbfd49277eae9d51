"""Codes of DCGM's checks, as agents hand them on in Events, conditions and lines."""

from __future__ import annotations

from collections import Counter

import orjson
import pytest

from streams.detect import Detector, dcgm_codes
from streams.model.signal import Signal
from tests.streams.detect.lines import record, signals

NODE = "Name:               gpu-7\nRoles:              worker\n"
CONDITION = (
    "  {type}   True    Sat, 21 Nov 2026 07:12:12 +0000   Sat, 21 Nov 2026 07:12:10 +0000   {type}IsNotHealthy   "
    "ErrorCode:{code} PCI:0000:b9:00 GPU_UUID:GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52 Recommended Action=RESTART_BM;"
)


def event(reason: str, message: str, node: str = "gpu-7") -> bytes:
    about = {"kind": "Node", "name": node}
    times = {"lastTimestamp": "2026-11-21T07:13:13Z"}
    return orjson.dumps(
        {"reason": reason, "message": message, "type": "Warning", "involvedObject": about, **times}
    )


def shown(found: tuple[Signal, ...]) -> list[tuple[str, str]]:
    return [(signal.kind, signal.severity) for signal in found]


def test_no_code_has_two_rows() -> None:
    names = Counter(key for row in dcgm_codes.sheet().rows for key in (*row.codes, *row.codes.values()))
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize(
    ("number", "kind", "severity"),
    [
        (4, "gpu.ecc", "warning"),
        (14, "gpu.nvlink", "warning"),
        (46, "node.pcie", "warning"),
        (95, "gpu.driver", "warning"),
        (48, "gpu.driver", "info"),
        (122, "gpu.nvlink", "info"),
        (777, "gpu.driver", "warning"),
    ],
)
def test_the_number_in_a_reason_says_what_is_ill(number: int, kind: str, severity: str) -> None:
    found = signals(event(f"DCGMHealthCode{number}", f"DCGM detected issues with error code {number}"))
    assert shown(found) == [(kind, severity)]
    assert (found[0].entity.node, found[0].attributes["code"]) == ("gpu-7", number)


@pytest.mark.parametrize(
    ("message", "severity"),
    [
        ("ErrorCode:DCGM_FR_IMEX_UNHEALTHY GPU:0 IMEX daemon status is -3 (not READY)", "info"),
        ("ErrorCode:DCGM_FR_IMEX_UNHEALTHY GPU:0 (node.kubernetes.io/instance-type=p5.48xlarge)", "info"),
        ("ErrorCode:DCGM_FR_IMEX_UNHEALTHY GPU:0 (instance-type=p6e-gb200.36xlarge)", "warning"),
        ("ErrorCode:DCGM_FR_IMEX_UNHEALTHY GPU:0 a; ErrorCode:DCGM_FR_NVLINK_DOWN GPU:0 b", "warning"),
    ],
)
def test_imex_is_nobodys_fault_where_nvlink_ends_within_the_machine(message: str, severity: str) -> None:
    assert shown(signals(event("GpuNvlinkWatchIsNotHealthy", message))) == [("gpu.nvlink", severity)]


@pytest.mark.parametrize(
    ("line", "kind", "severity"),
    [
        ("ErrorCode:DCGM_FR_NVLINK_DOWN GPU:3", "gpu.nvlink", "warning"),
        ("ErrorCode:DCGM_FR_IMEX_UNHEALTHY GPU:3", "gpu.nvlink", "info"),
        ("ErrorCode:DCGM_FR_QUARK GPU:3", "gpu.driver", "warning"),
        (
            'health event {"agent":"m","componentClass":"GPU","checkName":"GpuMemWatch","isFatal":true,"isHealthy":false,'
            '"errorCode":["DCGM_FR_VOLATILE_DBE_DETECTED"],"entitiesImpacted":[{"entityType":"GPU","entityValue":"3"}]}',
            "gpu.ecc",
            "warning",
        ),
    ],
)
def test_the_name_in_an_agents_line_says_what_is_ill(line: str, kind: str, severity: str) -> None:
    found = signals(f"Nov 21 07:13:13 gpu-17 gpu-health-monitor[9]: {line}")
    assert shown(found) == [(kind, severity)]
    assert (found[0].entity.node, found[0].entity.gpu and found[0].entity.gpu.index) == ("gpu-17", 3)


@pytest.mark.parametrize(
    ("type_", "code", "kind", "severity"),
    [
        ("SysLogsXIDError", "79", "gpu.driver", "error"),
        ("GpuNvlinkWatch", "DCGM_FR_NVLINK_DOWN", "gpu.nvlink", "error"),
        ("GpuNvlinkWatch", "DCGM_FR_IMEX_UNHEALTHY", "gpu.nvlink", "info"),
    ],
)
def test_a_described_condition_is_of_the_gpu_in_it(type_: str, code: str, kind: str, severity: str) -> None:
    found = signals(NODE + CONDITION.format(type=type_, code=code))
    assert shown(found) == [(kind, severity)]
    assert found[0].entity.key == "gpu/gpu-7/0000:b9:00"


def test_a_condition_by_itself_is_of_its_records_node_among_api_objects_alone() -> None:
    row = CONDITION.format(type="SysLogsXIDError", code="79")
    (found,) = Detector("c1").detect(record(row, topic="raw.k8s-events", key=b"gpu-9")).signals
    assert (found.entity.node, found.attributes["xid"]) == ("gpu-9", 79)
    assert not Detector("c1").detect(record(row, topic="raw.node-logs", key=b"gpu-9")).signals


def test_a_gpud_line_without_a_field_for_its_health_is_a_verdict() -> None:
    line = {"level": "warn", "ts": "2026-11-21T07:13:13Z", "msg": "component unhealthy"}
    line |= {"component": "accelerator-nvidia-hw-slowdown", "reason": "hw slowdown events exceeded threshold"}
    (found,) = Detector("c1").detect(record(orjson.dumps(line), key=b"gpu-9")).signals
    assert (found.kind, found.severity, found.entity.node) == ("gpu.thermal", "warning", "gpu-9")
    line["msg"] = "component checked"
    assert all(one.severity == "info" for one in signals(orjson.dumps(line)))
