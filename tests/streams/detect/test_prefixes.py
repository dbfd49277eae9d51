"""The same message behind every header a logger may put before it: always found, always the same."""

from __future__ import annotations

import pytest

from tests.streams.detect.lines import firm, signals

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
KERNEL = [
    ("", None),
    ("[ 123.456789] ", None),
    ("[  130.45] [ T1946] ", None),
    ("[  130.45] [    C3] ", None),
    ("Feb 01 14:25:31 gpu-11 kernel: ", "gpu-11"),
    ("Feb  1 14:25:31 gpu-11 kernel: [  12.345678] ", "gpu-11"),
    ("Nov 21 07:13:13.123456 gpu-11.example kernel: [  12.345678] [ T7] ", "gpu-11.example"),
    ("<4>Feb 01 14:25:31 gpu-11 kernel: ", "gpu-11"),
    ("<4>1 2026-11-21T07:13:13.1+01:00 gpu-11 kernel - - - ", "gpu-11"),
    ('<4>1 2026-11-21T07:13:13.1Z gpu-11 kernel 0 - [meta sequenceId="1"] ', "gpu-11"),
    ("2026-11-21T07:13:13.123456+00:00 gpu-11 kernel: ", "gpu-11"),
    ("2026-11-21T07:13:13.123456789Z gpu-11 kernel: [1.2] ", "gpu-11"),
    ("2026-11-21 07:13:13 gpu-11 kernel: ", "gpu-11"),
    ("[Sat Nov 21 07:13:13 2026] ", None),
    ("[2026-11-21T07:13:13+0000] ", None),
    ("kern: warning: [2026-11-21T07:13:13.1Z]: ", None),
    ("10.0.0.7: kern:  err: [2026-11-21T07:13:13.1Z]: ", "10.0.0.7"),
    ("4,123,6781741548779,-;", None),
    ("4,123,6781741548779,-,caller=T1946;", None),
    ("gpu-11: [ 12.3] ", "gpu-11"),
    ("gpu-11 kernel: ", "gpu-11"),
    ("kernel: ", None),
    ("dmesg-0  | [ 12.3] ", None),
    ("2026-11-21T07:13:13.123456789Z stdout F [ 12.3] ", None),
    ("2026-11-21T07:13:13.1Z stderr F Nov 21 07:13:12 gpu-11 kernel: ", "gpu-11"),
    ("   ", None),
]


@pytest.mark.parametrize(("prefix", "host"), KERNEL, ids=lambda value: repr(value)[:40])
def test_a_kernel_line_is_found_behind_any_header(prefix: str, host: str | None) -> None:
    (signal,) = signals(prefix + XID)
    assert signal.attributes["xid"] == 79
    assert signal.entity.node == host
    assert signal.entity.gpu is not None
    assert signal.entity.gpu.pci == "0000:3b:00"


WATCHDOG = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=31, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
    "Timeout(ms)=600000) ran for 600009 milliseconds before timing out."
)
RANKS = [
    "[E ProcessGroupNCCL.cpp:474] [Rank 2] ",
    "[rank2]:[E ProcessGroupNCCL.cpp:537] [Rank 2] ",
    "[rank2]:[E1109 16:13:20.222288244 ProcessGroupNCCL.cpp:616] [PG 3 Rank 5] ",
    "[rank2]:[E129 16:13:20.222288244 ProcessGroupNCCL.cpp:616] [PG ID 2 PG GUID 3 Rank 0] ",
    "[default0]:[rank2]:[E1109 16:13:20.2 ProcessGroupNCCL.cpp:616] [PG ID 0 PG GUID 0(default_pg) Rank 2] ",
    "2: [rank2]:[E1109 16:13:20.2 ProcessGroupNCCL.cpp:616] [Rank 2] ",
    "(RayWorkerWrapper pid=812, ip=10.4.0.9) [rank2]:[E1109 16:13:20.2 ProcessGroupNCCL.cpp:616] [Rank 2] ",
    "llm-worker-1 | [rank2]:[E1109 16:13:20.2 ProcessGroupNCCL.cpp:616] [Rank 2] ",
    "2026-11-21T07:13:13.1Z stderr F [rank2]:[E1109 16:13:20.2 ProcessGroupNCCL.cpp:616] [Rank 2] ",
    "Nov 21 07:13:13 gpu-11 python3[4410]: [rank2]:[E1109 16:13:20.2 ProcessGroupNCCL.cpp:616] [Rank 2] ",
    "[rank2]:[E1109 16:13:20.2 ProcessGroupNCCL.cpp:1537] [PG ID 0 PG GUID 0 Rank 2] Process group watchdog thread "
    "terminated with exception: [Rank 2] ",
    "  what():  [PG ID 0 PG GUID 0(default_pg) Rank 2] ",
]


@pytest.mark.parametrize("prefix", RANKS, ids=lambda value: value[:50])
def test_a_watchdog_line_names_its_rank_behind_any_prefix(prefix: str) -> None:
    (signal,) = signals(prefix + WATCHDOG)
    assert signal.kind == "nccl.timeout"
    assert signal.attributes["rank"] == 2
    assert (signal.attributes["seq"], signal.attributes["elapsed_ms"]) == (31, 600009)


def test_two_ranks_glued_into_one_line_keep_their_ranks() -> None:
    line = (
        "[rank{0}]:[E1120 04:43:20.1 ProcessGroupNCCL.cpp:616] [PG ID 0 PG GUID 0(default_pg) Rank {0}] "
        + WATCHDOG
    )
    assert [s.attributes["rank"] for s in signals(line.format(5) + line.format(6))] == [5, 6]


@pytest.mark.parametrize("message", [XID, "[Rank 2] " + WATCHDOG], ids=["xid", "watchdog"])
@pytest.mark.parametrize(
    "around",
    [
        '10:14 <dana> has anyone seen "{}"?',
        "dana: yesterday we got {}",
        "raise ValueError('{}')",
        "RuntimeError: {}",
        '    assert "{}" in text',
        "> {}",
        "`{}` is what the driver prints",
        "see the runbook for {}",
        "Please search the logs for {}",
        '{{"level":"info","question":"what is {}"',
        "What does {} mean?",
        "2026-11-21 07:13:13,001 INFO chatbot: user asked about {}",
        "+ echo {}",
    ],
)
def test_a_quoted_line_raises_nothing(around: str, message: str) -> None:
    assert not firm(signals(around.format(message)))


def test_every_prefix_of_a_line_is_read_or_left_but_never_misread() -> None:
    line = "[ 12.3] " + XID
    for cut in range(len(line)):
        found = signals(line[:cut])
        assert all(signal.attributes["xid"] in (7, 79) for signal in found)
        assert bool(found) == (cut > line.index("): 7") + 3), line[:cut]
