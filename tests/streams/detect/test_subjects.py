"""What an error that no row knows speaks of: its kind, its mark, and that it takes nothing from signals that rows know."""

from __future__ import annotations

import pytest

from streams.detect import Detector
from streams.detect.deduplication import RollUp
from streams.detect.noise import dedup_rule
from streams.detect.subjects import SubjectRow, sheet
from streams.model.signal import BY_SUBJECT, Severity, Signal
from tests.streams.detect.lines import record, signals


@pytest.mark.parametrize("row", sheet().rows, ids=lambda row: row.id)
def test_a_row_is_reached_by_its_samples(row: SubjectRow) -> None:
    for text in row.samples:
        found = [s for s in signals(text) if (s.kind, s.attributes.get("subtype")) == (row.kind, row.subtype)]
        assert found, (text, signals(text))
        assert all(BY_SUBJECT in s.attributes and s.severity is Severity.INFO for s in found)


SPOKEN = {
    # Words of their own for what rows know in others.
    "Nov 21 07:13:13 gpu-7 nv-hostengine[81]: Memory: Failure: 4 double-bit errors in GPU 6": "gpu.ecc",
    "gpu-7 dcgm-health[81]: Thermal: Failure: clock events by a thermal violation in GPU 2": "gpu.thermal",
    "Nov 21 07:13:13 gpu-7 quark-checks[81]: CRITICAL nvme4n1: media of the drive is worn out": "node.storage",
    "Nov 21 07:13:13 gpu-7 quark-checks[81]: ERROR mlx5_4: tx_pause_duration grew for 15 s": "fabric.pfc_storm",
    '{"level": "error", "node": "gpu-7", "message": "the NVLinks changed on GPU-0a1b2c3d-0000-1111-2222-333344445555"}':
        "gpu.nvlink",
    "Nov 21 07:13:13 leaf-9 dn_alm[81]: quark: power supply 2 is in a critical state": "node.power",
    "<9>1 2026-11-21T07:13:13Z gpu-7 iLO6 - - - Critical: Quark Overheating (Sensor 9, Temperature 47C)": "node.thermal",
    "Nov 21 07:13:13.1 leaf-2 ERR syncd#syncd: [none] SAI_QUARK:_quark_cb:9 fatal parity quark, unit 0": "node.condition",
    "Nov 21 07:13:13 gpu-7 kernel: habanalabs hl3: heartbeat of the quark failed!": "gpu.driver",
    "I1121 07:13:13.000001       1 node_lifecycle_controller.go:9] node gpu-7 hasn't been updated for 41.7s. Last Ready is: nil":
        "node.not_ready",
    "11/21/2026 07:13:13;0004;Server@quark1;Node;gpu-7;attributes set: state = offline": "node.not_ready",
    'E1121 07:13:13.000001     812 quark.go:9] "Error syncing pod, skipping" err="cannot create its sandbox"': "node.condition",
    # Programs, of themselves.
    "Nov 21 07:13:13 gpu-7 kernel: pt_autograd_0[4411]: segfault at 9 ip 00007f sp 00007f error 4 in libtorch_cpu.so[7f+1]":
        "job.failed",
    '{"event": "the quark run looks stalled: no step for 900 s", "level": "error", "logger": "quark.watch"}': "job.stalled",
    "W 11-21 07:13:13 quark_timer.py:9] slow rank: rank 9 took 4.2 s, the median is 2.1 s": "job.stalled",
    "[rank0]:ERROR:quark: failed to save checkpoint 9: its writer process 3 died": "job.failed",
    "MPICH ERROR [Rank 9] - Abort(9): Fatal error in PMPI_Quark: error stack": "nccl.error",
}  # fmt: skip


@pytest.mark.parametrize(("line", "kind"), SPOKEN.items(), ids=lambda text: text[:60])
def test_a_line_is_of_the_kind_that_it_speaks_of(line: str, kind: str) -> None:
    (signal,) = signals(line)
    assert (signal.kind, BY_SUBJECT in signal.attributes) == (kind, True)


@pytest.mark.parametrize(
    "line",
    [
        "Nov 21 07:13:13 gpu-7 quark-checks[81]: INFO mlx5_4: tx_pause_duration grew for 15 s",
        "Nov 21 07:13:13 gpu-7 web[81]: ERROR the page of spare power supplies was not found",
        "ERROR mlx5_4 what does it mean that tx_pause_duration grew?",
        "Nov 21 07:13:13 gpu-7 MR_MONITOR[81]: <MRMON113> Controller ID: 0 Unexpected sense cleared",
        '{"level": "info", "node": "gpu-7", "message": "NVLink errors of GPU-0a1b2c3d-0000-1111-2222-333344445555"}',
        "gpu-7 dcgm-health[81]: Thermal: Healthy: no violation in GPU 2",
        "step-9 loss[81]: 2.3",
        "Nov 21 07:13:13 gpu-7 kernel: bash[4411]: segfault at 9 ip 00007f sp 00007f error 4 in libc.so.6[7f+1]",
    ],
)
def test_what_is_no_error_has_no_subject(line: str) -> None:
    assert not signals(line)


def test_a_program_that_quotes_hardware_has_failed_and_names_it() -> None:
    (signal,) = signals("RuntimeError: quark kernel stopped: uncorrectable ECC memory fault on GPU 3")
    assert (signal.kind, signal.attributes["hardware"]) == ("job.failed", "gpu.ecc")


def test_one_author_and_place_may_speak_of_two_subjects() -> None:
    of_power = "Nov 21 07:13:13 leaf-9 dn_alm[81]: quark: power supply 2 is in a critical state"
    detector = Detector("c1")
    told = [
        signal.kind
        for number, text in enumerate((of_power, of_power, of_power.replace("power supply", "fan")))
        for signal in detector.detect(record(text, offset=number)).signals
    ]
    assert told == ["node.power", "node.thermal"]


def test_it_fills_no_windows_of_the_signals_that_rows_know() -> None:
    """A kind has so many windows for each place: beyond them different reports are counted as one."""
    rollup, detector = RollUp(), Detector("c1")

    def told(text: str, offset: int) -> list[Signal]:
        return list(detector.read(record(text, offset=offset), rollup).signals)

    fans = dedup_rule("node.thermal").variants + 8
    for number in range(fans):
        told(f"gpu-7 quark-checks[81]: ERROR nvme{number % 99}: temperature of drive {number} is bad", number)
    (firm,) = told(
        "gpu-7 SEL: 1f | 11/21/2026 | 07:13:13 | Fan FAN3 | Lower Critical going low | Asserted", 10**4
    )
    assert "collapsed" not in firm.attributes
    assert len(rollup.places) > 1
