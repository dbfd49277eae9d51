"""Signs that say too little to act on: each row finds its samples, once in a while, and nothing else is one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from streams.detect import Detector
from streams.detect.weak_signs import SignRow, sheets
from streams.model.kinds import SignalKind
from streams.model.signal import Severity, Signal
from tests.streams.detect.lines import NOW, is_unknown, record, signals

ROWS = [
    pytest.param(area, row, id=f"{area}-{row.id}") for area, sheet in sheets().items() for row in sheet.rows
]


@pytest.mark.parametrize(("area", "row"), ROWS)
def test_a_sign_is_context_of_its_area(area: str, row: SignRow) -> None:
    for text in row.samples:
        found = signals(text)
        assert found, text
        assert all(is_unknown(one) for one in found), text


@pytest.mark.parametrize(("area", "row"), ROWS)
def test_what_only_looks_like_a_sign_says_nothing(area: str, row: SignRow) -> None:
    for text in row.look_alikes:
        assert not signals(text), text


def told(*lines: tuple[str, timedelta]) -> list[Signal]:
    detector = Detector("c1")
    return [
        signal
        for number, (text, after) in enumerate(lines)
        for signal in detector.detect(record(text, at=NOW + after, offset=number)).signals
    ]


def test_a_place_gives_the_same_sign_once_in_a_while() -> None:
    crash = "quark-{}: GPU 3: FAULTY"
    assert len(told(*((crash.format(second), timedelta(seconds=second)) for second in (0, 1, 300, 700)))) == 2


def test_a_table_of_nodes_speaks_of_the_nodes_it_names() -> None:
    found = told(("Quark task failed    root      2026-11-21T07:13:13 gpu[061-062]", timedelta()))
    assert [signal.entity.node for signal in found] == ["gpu061", "gpu062"]


def test_what_people_write_is_no_sign() -> None:
    assert not signals("we saw that the worker group died with exit code 9 and asked why")
    assert not signals("what does 'GPU 3: FAULTY' mean?")


def test_the_first_value_of_a_series_that_must_be_zero_is_a_sign_once() -> None:
    scrape = 'DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{gpu="3",Hostname="gpu-7"}} {}'
    assert not told((scrape.format(0), timedelta()))
    (sign,) = told(*((scrape.format(1), timedelta(seconds=second)) for second in (0, 15)))[:1]
    assert (sign.kind, sign.severity, sign.entity.node) == (SignalKind.UNKNOWN, Severity.INFO, "gpu-7")
    again = [
        one
        for one in told(*((scrape.format(1), timedelta(seconds=second)) for second in (0, 15, 30)))
        if one.kind == SignalKind.UNKNOWN
    ]
    assert len(again) == 1


@pytest.mark.parametrize(
    ("series", "well", "bad"),
    [
        ('ipmi_fan_speed_state{id="9",name="FAN9",instance="gpu-7"}', 1, 2),
        ('DCGM_EXP_GPU_HEALTH_STATUS{gpu="3",Hostname="gpu-7",health_watch="MEM"}', 0, 20),
        ('DCGM_FI_DEV_CLOCKS_EVENT_REASONS{gpu="3",Hostname="gpu-7"}', 4, 132),
    ],
)
def test_a_state_that_is_bad_when_first_seen_is_a_sign(series: str, well: int, bad: int) -> None:
    assert not told((f"{series} {well}", timedelta()))
    (sign,) = told((f"{series} {bad}", timedelta()))
    assert (sign.kind, sign.severity, sign.entity.node) == (SignalKind.UNKNOWN, Severity.INFO, "gpu-7")


def test_a_verdict_in_json_of_any_schema_is_about_the_machine_it_names() -> None:
    (sign,) = signals(
        '{"check": "quark", "verdict": "degraded", "details": {"hostname": "gpu-7", "left": 6}}'
    )
    assert (is_unknown(sign), sign.entity.node) == (True, "gpu-7")
    assert not signals('{"check": "quark", "verdict": "degraded", "team": "web"}')
    assert not signals('{"state": "failed", "host": "gpu-7", "log": "a line of a program"}')


def test_a_notice_with_a_text_is_read_as_a_line_too() -> None:
    said = '{"host": "gpu-7", "state": "critical", "message": "NVRM: Xid (PCI:0000:3b:00): 79, gone"}'
    assert {signal.kind for signal in signals(said)} >= {SignalKind.GPU_XID}


def test_a_condition_with_its_node_beside_it_is_the_nodes() -> None:
    inner = '{"type": "GPUMissing", "status": "True", "reason": "Quark", "message": "6 of 8"}'
    (signal,) = signals(f'{{"kind": "Node", "name": "gpu-7", "condition": {inner}}}')
    assert (signal.kind, signal.entity.node) == (SignalKind.GPU_DRIVER, "gpu-7")
    assert not signals(f'{{"kind": "Node", "name": "gpu-7", "condition": {inner.replace("True", "False")}}}')


def test_a_severity_counts_only_without_a_text() -> None:
    (sign,) = signals('{"type": "QuarkDry", "severity": "MAJOR", "params": {"hostname": "gpu-7"}}')
    assert (is_unknown(sign), sign.entity.node) == (True, "gpu-7")
    assert not signals('{"severity": "critical", "hostname": "gpu-7", "message": "the quark is well"}')
