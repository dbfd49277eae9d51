"""Every hint is looked for in every byte of the cluster, so each must leave ordinary lines alone."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice

import pytest

from bench.chatter import LINE_BYTES, ORDINARY, faults, ordinary, samples
from streams.detect import Detector
from streams.detect.families import event_families, line_families, sample_families
from streams.detect.matching.prefilter import Prefilter
from tests.effort import tries
from tests.streams.detect.lines import NOW, record

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
        detector.detect(record(value, topic="raw.metrics", offset=number)).signals
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
