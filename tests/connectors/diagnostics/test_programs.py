"""What diagnostic programs print, and what is made of it: figures, faults, and never a pass for lack of proof."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.diagnostics.programs import PROGRAMS, read
from connectors.diagnostics.reading import MAX_UNPACKED, Limits

ANY = Limits()


def packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode())).decode()


def dcgm4(*results: dict[str, Any], summary: str = "Pass", name: str = "memory") -> str:
    test = {"name": name, "results": list(results), "test_summary": {"status": summary}}
    categories = [{"category": "Hardware", "tests": [test]}]
    return json.dumps({"DCGM Diagnostic": {"test_categories": categories}, "metadata": {"version": "4.2.3"}})


def gpu(number: int, status: str = "Pass", **more: Any) -> dict[str, Any]:
    return {"entity_group": "GPU", "entity_group_id": 1, "entity_id": number, "status": status, **more}


NCCL = """# nThread 1 nGpus 2 minBytes 1073741824 maxBytes 8589934592
#  Rank  0 Group  0 Pid   1234 on   gpu-01 device  0 [0x18] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid   1234 on   gpu-01 device  1 [0x2a] NVIDIA H100 80GB HBM3
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
  1073741824     268435456     float     sum      -1   4620.1  232.41  406.72      0   4618.0  232.51  406.90      0
  8589934592    2147483648     float     sum      -1  33100.0  259.51  454.15      {wrong}  33080.0  259.67  454.42      0
# Out of bounds values : {bounds}
# Avg bus bandwidth    : 430.548
#
"""

PERFTEST = """---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]
 65536      5000             {peak}             {average}               0.748
---------------------------------------------------------------------------------------
"""

BURN = """GPU 0: NVIDIA H100 80GB HBM3
10.0%  proc'd: 2790 (53184 Gflop/s) - 2790 (52310 Gflop/s)   errors: 0 - 0   temps: 61 C - 63 C
100.0%  proc'd: 9790 (53000 Gflop/s) - 9790 (41000 Gflop/s)   errors: 0 - 2   temps: 61 C - 63 C
Tested 2 GPUs:
\tGPU 0: OK
\tGPU 1: {second}
"""


def test_a_diagnostic_of_dcgm_4_passes_with_its_counts() -> None:
    found = read("dcgmi", dcgm4(gpu(0), gpu(1), gpu(2, "Skip")), 0, Limits(gpus=3))
    assert found.passed, found
    assert (found.figures["tests_pass"], found.figures["tests_skip"], found.gpus) == (2, 1, 3)


def test_a_failed_test_names_the_test_the_gpu_and_the_reason() -> None:
    why = [{"warning": "GPU 1: 3 uncorrectable errors", "error_id": 38}]
    found = read("dcgmi", dcgm4(gpu(0), gpu(1, "Fail", warnings=why), summary="Fail"), 226, ANY)
    assert not found.passed
    assert "memory on GPU 1: Fail (GPU 1: 3 uncorrectable errors)" in found.faults
    assert "exit code 226" in found.faults


def test_the_older_form_with_one_result_for_all_gpus_is_read() -> None:
    tests = [
        {"name": "Denylist", "results": [{"gpu_ids": "0,1,2,3", "status": "PASS"}]},
        {"name": "Memory", "results": [{"gpu_id": "2", "status": "WARN", "warnings": "slow"}]},
    ]
    text = json.dumps(
        {"DCGM GPU Diagnostic": {"test_categories": [{"category": "Deployment", "tests": tests}]}}
    )
    found = read("dcgmi", text, 0, Limits(gpus=4))
    assert found.faults == ("Memory on GPU 2: WARN (slow)",)
    assert read("dcgmi", text, 0, Limits(gpus=4, warnings_fail=False)).passed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no JSON"),
        ("error: cannot connect to the host engine", "no JSON"),
        (dcgm4(gpu(0))[:-40], "damaged or cut off"),
        ('{"something": {}}', "no result of dcgmi"),
        ('{"DCGM Diagnostic": {"test_categories": []}}', "no test"),
        (dcgm4(gpu(0, "Skip")), "all were skipped"),
        ('{"DCGM Diagnostic": {"runtime_error": "the driver is not loaded"}}', "the driver is not loaded"),
        (dcgm4(gpu(0, "")), "no status"),
    ],
)
def test_what_proves_nothing_is_no_pass(text: str, said: str) -> None:
    found = read("dcgmi", text, 0, ANY)
    assert not found.passed
    assert said in str(found)


def test_a_gpu_that_is_missing_in_the_result_fails_it() -> None:
    found = read("dcgmi", dcgm4(*(gpu(number) for number in range(7))), 0, Limits(gpus=8))
    assert found.faults == ("7 GPUs in the result, 8 expected",)


def test_nccl_tests_give_bus_bandwidth_both_ways_and_on_average() -> None:
    text = NCCL.format(wrong=0, bounds="0 OK")
    found = read("nccl-tests", text, 0, Limits(at_least={"busbw_avg_gb_s": 400}, gpus=2))
    assert found.passed, found
    assert found.figures == {
        "busbw_avg_gb_s": 430.548,
        "busbw_out_of_place_gb_s": 454.15,
        "busbw_in_place_gb_s": 454.42,
        "busbw_min_gb_s": 454.15,
    }
    slow = read("nccl-tests", text, 0, Limits(at_least={"busbw_min_gb_s": 460}))
    assert slow.faults == ("busbw_min_gb_s is 454.15, at least 460 expected",)


def test_wrong_elements_and_a_test_without_its_end_fail() -> None:
    wrong = read("nccl-tests", NCCL.format(wrong=7, bounds="7 FAILED"), 0, ANY)
    assert wrong.faults == ("7 wrong elements", "out of bounds values: 7 FAILED")
    half = NCCL.format(wrong=0, bounds="0 OK").partition("# Out of")[0]
    assert "did not come to its end" in str(read("nccl-tests", half, 0, ANY))
    failed = read("nccl-tests", "gpu-01: Test NCCL failure common.cu:1005 'unhandled system error'", 3, ANY)
    assert "Test NCCL failure" in str(failed)


@pytest.mark.parametrize(
    ("unit", "peak", "average", "gbit_s"),
    [
        ("Gb/sec", "392.51", "392.40", 392.40),
        ("MB/sec", "46791.5", "46778.4", 392.405),
        ("MiB/sec", "100.0", "100.0", 0.8389),
    ],
)
def test_perftest_is_in_gigabits_whatever_it_printed(
    unit: str, peak: str, average: str, gbit_s: float
) -> None:
    found = read("perftest", PERFTEST.format(unit=unit, peak=peak, average=average), 0, ANY)
    assert found.passed
    assert found.figures["bw_avg_gbit_s"] == pytest.approx(gbit_s, rel=1e-3)


def test_perftest_without_its_table_fails() -> None:
    found = read(
        "perftest", "Couldn't connect to gpu-02:18515\nUnable to init the socket connection\n", 1, ANY
    )
    assert "Couldn't connect" in str(found)
    assert not read("perftest", " #bytes #iterations\n", 0, ANY).passed


def test_gpu_burn_names_the_faulty_gpu_and_rates() -> None:
    found = read("gpu-burn", BURN.format(second="FAULTY"), 0, ANY)
    assert found.faults == ("GPU 1 is faulty",)
    assert (found.figures["gflops_min"], found.figures["gflops_avg"]) == (41000, 47000)
    assert read(
        "gpu-burn", BURN.format(second="OK"), 0, Limits(at_least={"gflops_min": 40000}, gpus=2)
    ).passed
    assert not read("gpu-burn", BURN.format(second="OK").partition("\tGPU 1")[0], 0, ANY).passed


def test_a_program_of_ones_own_is_judged_by_its_exit_code_and_quoted() -> None:
    assert read("exit-code", "all\x1b[31m fine\n", 0, ANY).passed
    failed = read("exit-code", "NIC mlx5_3 has no link\n", 4, ANY)
    assert failed.faults == ("exit code 4", "NIC mlx5_3 has no link")
    assert not read("exit-code", "", None, ANY).passed


def test_an_exit_code_other_than_0_fails_whatever_was_printed() -> None:
    assert not read("dcgmi", dcgm4(gpu(0)), 1, ANY).passed


def test_packed_output_is_unpacked_and_a_cut_one_is_no_pass() -> None:
    text = dcgm4(*(gpu(number) for number in range(8)))
    assert read("dcgmi", packed(text), 0, Limits(gpus=8)).passed
    assert "cut off" in str(read("dcgmi", packed(text)[:-8], 0, ANY))
    assert "damaged" in str(read("dcgmi", "H4sIAAAA!!!!", 0, ANY))


def test_a_bomb_is_not_unpacked() -> None:
    assert f"more than {MAX_UNPACKED} bytes" in str(read("dcgmi", packed(" " * 50_000_000), 0, ANY))


@given(st.sampled_from(sorted(PROGRAMS.keys() - {"exit-code"})), st.text(max_size=400))
def test_no_noise_passes_and_none_breaks_a_parser(program: str, noise: str) -> None:
    assert not read(program, noise, 0, ANY).passed
