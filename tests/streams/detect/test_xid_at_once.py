"""The commonest form of an Xid line is read at once; what is read of it is what the piece-by-piece way reads."""

from __future__ import annotations

from itertools import product

import pytest

from streams.detect import Detector, xid
from streams.detect.finding import Finding, Stream
from streams.detect.rule_state import RuleState
from streams.model.record import LogLine
from tests.streams.detect.cases import CORPUS, cases_of, raw
from tests.streams.detect.lines import NOW, record

HEADER = "Nov 21 07:13:13 gpu-17 kernel: [ 812.33] "
HEADS = (
    "NVRM: Xid (PCI:0000:3b:00): ",
    "NVRM: Xid (PCI:0000:3B:00): ",
    "NVRM: Xid (PCI:0000:3b:00 GPU-I:05): ",
)
CODES = ("31, ", "79, ", "0, ", "08, ", "154, ", "31 ", "99999, ")
PROCESSES = (
    "pid=1942, name=python3, ",
    "pid=1942, name=ray::IDLE, ",
    "pid=1942, name=a, b, ",
    "name=python3, pid=1942, ",
    "pid='<unknown>', name=<unknown>, ",
    "pid=99999999999, name=x, ",
    "",
)
MESSAGES = (
    "Ch 00000045, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC0 GPCCLIENT_T1_7 faulted @ 0x7f7f_c0000000.",
    "GPU has fallen off the bus.",
    "no known beginning, Ch 00000045",
    "Ch 00000045 NVRM: Xid (PCI:0000:4c:00): 79, GPU has fallen off the bus.",
    "Ch 00000045, caused by previous Xid 48",
    "Ch 00000045#012NVRM: RmInitAdapter failed!",
    "Ch 0000004",
    "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
    "",
)


def found(line: LogLine) -> list[Finding]:
    stream = Stream("c1", "raw.node-logs:0", NOW, RuleState())
    return list(xid.Xid().read(line, stream))


def test_both_ways_read_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        LogLine(HEADER + "".join(parts), source=source, node="gpu-17", start=start)
        for parts in product(HEADS, CODES, PROCESSES, MESSAGES)
        for source, start in (("kernel", len(HEADER)), ("trainer", len(HEADER)), ("kernel", 0))
    ]
    at_once = [line for line in lines if xid._commonest(line) is not None]
    assert {"ray::IDLE", "python3"} == {one.attributes["process"] for line in at_once for one in found(line)}
    both = [found(line) for line in lines]
    monkeypatch.setattr(xid, "_commonest", lambda line: None)
    assert both == [found(line) for line in lines]


def test_both_ways_read_the_same_in_the_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [
        raw(one)
        for path in sorted(CORPUS.glob("*xid*.jsonl"))
        for case in cases_of(path)
        for one in case["records"]
    ]
    both = [Detector("c1").detect(record(value)).signals for value in values]
    monkeypatch.setattr(xid, "_commonest", lambda line: None)
    assert both == [Detector("c1").detect(record(value)).signals for value in values]


@pytest.mark.parametrize(
    "text",
    [
        HEADER + HEADS[0] + CODES[0] + PROCESSES[0] + MESSAGES[0],
        HEADER + HEADS[0] + CODES[1] + PROCESSES[1] + MESSAGES[1],
    ],
)
def test_the_kernels_ordinary_line_is_of_that_form(text: str) -> None:
    assert xid._commonest(LogLine(text, source="kernel", start=len(HEADER))) is not None
