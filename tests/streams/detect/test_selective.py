"""Every hint is looked for in every byte of the cluster, so each must leave ordinary lines alone."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from datetime import timedelta
from itertools import islice
from pathlib import Path

import pytest

from bench.chatter import LINE_BYTES, ORDINARY, faults, ordinary, samples
from streams.detect import Detector
from streams.detect.families import event_families, line_families, sample_families
from streams.detect.matching.prefilter import Prefilter
from streams.ingest import ENVELOPE_HINTS
from tests.effort import tries
from tests.streams.detect.lines import NOW, firm, record

LINES = list(islice(ordinary(7, NOW - timedelta(hours=1)), tries(20_000, quick=6_000)))
FAMILIES = (*line_families(), *sample_families(), *event_families())
HINTS = sorted({hint for family in FAMILIES for hint in family.hints})


def test_a_hint_passes_over_ordinary_lines() -> None:
    kept = {hint: [LINES[index] for index in Prefilter([hint]).select(LINES)] for hint in HINTS}
    assert {hint: lines[:3] for hint, lines in kept.items() if len(lines) >= len(LINES) / 1000} == {}


def test_all_hints_together_pass_over_ordinary_lines() -> None:
    kept = [LINES[index] for index in Detector("c1").select(LINES)]
    assert len(kept) < len(LINES) / 1000, kept[:10]


def test_ordinary_lines_are_of_all_sorts_and_say_nothing() -> None:
    assert {len(line) for line in LINES} == {LINE_BYTES}
    text = b"\n".join(LINES)
    assert all(program.partition("[")[0].encode() in text for program, _ in ORDINARY)
    detector = Detector("c1")
    assert not [
        line for number, line in enumerate(LINES) if detector.read(record(line, offset=number)).signals
    ]


def test_each_fault_of_the_bench_is_one_signal() -> None:
    detector = Detector("c1")
    for number, line in enumerate(islice(faults(7, NOW - timedelta(hours=1), 10**6), 2_000)):
        assert len(detector.detect(record(line, offset=number)).signals) == 1, line


def test_a_scrape_gives_a_signal_for_each_gauge_that_changed() -> None:
    detector = Detector("c1")
    scrape = 64 * 8 * 12
    found = [
        firm(detector.detect(record(value, topic="raw.metrics", offset=number)).signals)
        for number, value in enumerate(
            samples(7, 3 * scrape, begin=NOW - timedelta(minutes=1), changing=0.01)
        )
    ]
    assert not any(found[:scrape])
    assert 3 < sum(map(len, found)) < 30


def test_all_hints_together_are_matched_at_full_speed(capfd: pytest.CaptureFixture[str]) -> None:
    """RE2 falls back to something a hundred times slower when a pattern outgrows its memory, and only says so on stderr."""
    prefilter = Detector("c1").select
    assert prefilter(
        [b"NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", b"DCGM_FI_DEV_GPU_TEMP"]
    ) == [0, 1]
    assert "out of memory" not in capfd.readouterr().err


def test_the_program_of_all_hints_stays_short() -> None:
    """Without a clock: every state of the automaton is built from the whole program, and `x{1,99}` puts 99 times `x` into it.
    It may grow with what is written, not beyond."""
    hints = [*HINTS, *ENVELOPE_HINTS]
    assert Prefilter(hints).instructions < sum(map(len, hints))
    long = [hint for hint in hints if Prefilter([hint]).instructions > len(hint) + 80]
    # The number of a GPU and a time, where nothing less will do.
    assert [
        hint for hint in long if b"GPU-[0-9a-f]{8}" not in hint and b"[0-9TZ:.+-]{20,40}" not in hint
    ] == []


_GROWN = """
import ctypes
from datetime import UTC, datetime
from itertools import islice
from bench.chatter import faults, ordinary
from streams.detect import Detector

class Heap(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]

mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Heap
begin = datetime(2026, 11, 21, tzinfo=UTC)
lines = [*islice(ordinary(7, begin), 6_000), *islice(faults(7, begin, 10**6), 1_000)]
batches = [lines[at : at + 500] for at in range(0, len(lines), 500)]
select = Detector("c1").select
before = mallinfo().uordblks
for batch in batches:
    select(batch)
print(mallinfo().uordblks - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="asks glibc how much is allocated")
def test_the_automaton_of_all_hints_stays_far_below_its_memory() -> None:
    """RE2 forgets all states when they fill two thirds of 64 MB, and gives the automaton up when that happens too often.

    A gap of any characters after a frequent word doubles the states of all that follows; in a process of its own, for states are
    built once.
    """
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", _GROWN], cwd=root, capture_output=True, text=True, check=True
    )
    assert 0 < int(done.stdout) < 5_000_000
