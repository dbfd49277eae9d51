"""Work is counted, not timed: how many calls a line takes, for lines made to take as many as they can."""

from __future__ import annotations

import orjson
import pytest

from streams.detect import Detector
from streams.ingest import MAX_LINE
from tests.streams.detect.lines import record
from tests.work import calls_counted

PIECES = [
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x, ",
    "NVRM: GPU 0000:91:00.0: GPU has fallen off the bus. ",
    "[rank3]:[E ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, ",
    "Nov 21 07:13:13 h kernel: ",
    "[ 12.345678] NVRM: Xid",
    "NodeNotReady step 1 iteration 2 epoch 3 ",
    'Xid ("',
    '{"log":"Xid (',
    "0000:3b:00.0: AER: Uncorrected error ",
    "mlx5_core 0000:3b:00.0 eth0: Link down ",
    "\x1b[31mXid (\x1b[0m",
    "日本 Xid (",
]


def calls_for(detector: Detector, text: str, *, json: bool) -> int:
    value = orjson.dumps({"log": text}) if json else text.encode()
    with calls_counted() as count:
        detector.read(record(value))
    return count[0]


@pytest.mark.parametrize("json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("piece", PIECES)
def test_work_grows_no_faster_than_the_line(piece: str, json: bool) -> None:
    detector = Detector("c1")
    lengths = [MAX_LINE // 16, MAX_LINE // 4, MAX_LINE]
    for length in lengths:
        calls_for(detector, (piece * MAX_LINE)[:length], json=json)  # what is read only once is read now
    small, middle, large = (calls_for(detector, (piece * MAX_LINE)[:length], json=json) for length in lengths)
    assert middle < 5 * small
    assert large < 5 * middle


@pytest.mark.parametrize("piece", PIECES)
def test_a_line_that_is_too_long_takes_no_more_work_than_the_longest(piece: str) -> None:
    detector = Detector("c1")
    longest, longer = ((piece * MAX_LINE)[:length] for length in (MAX_LINE, 8 * MAX_LINE))
    calls_for(detector, longer, json=False)
    assert calls_for(detector, longer, json=False) < 2 * calls_for(detector, longest, json=False)
