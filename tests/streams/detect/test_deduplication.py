"""Repeats become counts: what is told at once, what is counted, and that nothing is lost on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.detect import Detector, deduplication
from streams.detect.deduplication import COLLAPSED, RollUp
from streams.detect.finding import Finding
from streams.detect.noise import dedup_rule, noise
from streams.detect.report import Report
from streams.model.clock import from_millis, to_millis
from streams.model.entity import Gpu, PodRef
from streams.model.record import LogLine
from streams.model.signal import Attribute, Severity, Signal, SignalState
from tests.effort import tries
from tests.streams.detect.lines import NOW, record

START = to_millis(NOW)
END = START + 3_600_000
FIRING, CLEARED = SignalState.FIRING, SignalState.CLEARED


@dataclass(frozen=True)
class Said:
    """Something that a node says so many milliseconds after the beginning."""

    after_ms: int
    node: str = "gpu-1"
    xid: int = 43
    state: SignalState = FIRING
    pid: int = 1

    def report(self, offset: int = 0) -> Report:
        finding = Finding(
            "gpu.xid",
            Severity.ERROR,
            {"xid": self.xid, "pid": self.pid},
            self.state,
            gpu=Gpu("0000:3b:00"),
        )
        return _report(finding, self.after_ms, self.node, offset=offset)


def _report(
    finding: Finding, after_ms: int, node: str = "gpu-1", pod: PodRef | None = None, *, offset: int = 0
) -> Report:
    at = from_millis(START + after_ms)
    return Report.of(finding, LogLine("a line", at, node, pod), "c1", record(b"", at=at, offset=offset))


def told(said: Iterable[Said], *, ask_every: int = 0) -> list[Signal]:
    """All that a roll-up tells of these, when it is asked for what is due after every so many, and at the end."""
    rollup = RollUp()
    found: list[Signal] = []
    for number, one in enumerate(said, 1):
        found += rollup.take(one.report(number))
        if ask_every and number % ask_every == 0:
            found += rollup.due(rollup.clock_ms, number / 100_000)
    return found + rollup.due(END, 1e9)


def at_once(found: Iterable[Signal]) -> list[str]:
    return [signal.id for signal in found if signal.first_at is None]


def test_ten_thousand_lines_a_second_are_one_signal_a_second() -> None:
    found = told([Said(n // 10, pid=n) for n in range(30_000)], ask_every=500)
    assert len(found) == 4
    assert sum(signal.count for signal in found) == 30_000
    first, *counts = found
    assert (first.count, first.first_at, first.occurred_at) == (1, None, NOW)
    for before, after in zip(found, counts, strict=False):
        assert after.first_at is not None
        assert before.occurred_at <= after.first_at <= after.occurred_at


def test_what_comes_less_often_than_the_window_is_told_each_time() -> None:
    assert len(at_once(told([Said(n * 1000) for n in range(5)]))) == 5
    assert len(at_once(told([Said(n * 60_000) for n in range(5)]))) == 5


def test_repeats_that_straddle_the_window_are_not_told_twice_in_it() -> None:
    assert len(told([Said(n * 700) for n in range(20)], ask_every=1)) == 11


def test_after_silence_it_is_told_at_once_again() -> None:
    found = told([Said(0), Said(10), Said(20), Said(5000), Said(5001)])
    assert [signal.count for signal in found] == [1, 2, 1, 1]
    assert [signal.first_at is None for signal in found] == [True, False, True, False]


def test_a_change_and_back_within_the_window_is_told_both_times() -> None:
    states = [FIRING, FIRING, CLEARED, FIRING, FIRING, CLEARED]
    found = told([Said(n, xid=154, state=state) for n, state in enumerate(states)])
    assert [signal.state for signal in found if signal.first_at is None] == [FIRING, CLEARED, FIRING, CLEARED]
    assert sum(signal.count for signal in found if signal.state is FIRING) == 4


def test_one_code_that_is_well_again_does_not_make_another_one_new() -> None:
    said = [Said(n, xid=154, state=CLEARED) if n % 2 else Said(n, xid=43) for n in range(100)]
    assert len(at_once(told(said))) == 2


def test_a_node_that_prints_random_codes_is_bounded_and_counted() -> None:
    said = [Said(n // 2, xid=n) for n in range(10_000)]
    found = told(said, ask_every=100)
    assert len(found) < 128 * 6
    assert sum(signal.count for signal in found) == 10_000
    together = [signal for signal in found if signal.attributes.get(COLLAPSED)]
    assert sum(signal.count for signal in together) > 9_000
    assert len(together) < 10


def test_a_crowd_on_one_node_hides_nothing_of_another() -> None:
    said = [Said(n // 10, xid=n) for n in range(10_000)]
    said[5000:5000] = [Said(500, node="gpu-2", xid=79)]
    assert [s.attributes["xid"] for s in told(said) if s.entity.node == "gpu-2"] == [79]


def test_a_change_is_told_in_a_crowd_too() -> None:
    said = [Said(0, xid=79), *(Said(1 + n // 100, xid=1000 + n) for n in range(10_000))]
    said.append(Said(200, xid=79, state=CLEARED))
    assert [s.state for s in told(said) if s.attributes["xid"] == 79] == [FIRING, CLEARED]


def test_what_is_kept_is_bounded_and_what_gives_way_tells_its_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deduplication, "MAX_WINDOWS", 2000)
    nodes = deduplication.MAX_WINDOWS + 500
    said = [Said(0, node=f"gpu-{n}", pid=pid) for n in range(nodes) for pid in (1, 2)]
    found = told(said)
    assert sum(signal.count for signal in found) == 2 * nodes
    assert len(at_once(found)) == nodes


def test_what_is_over_is_forgotten() -> None:
    rollup = RollUp()
    for n in range(1000):
        rollup.take(Said(n * 1000, node=f"gpu-{n}").report())
        rollup.due(rollup.clock_ms, 0)
    assert len(list(rollup.open_windows())) < 5
    assert len(rollup.places) < 5


def test_of_progress_the_newest_is_told_every_five_seconds() -> None:
    rollup = RollUp()
    pod = PodRef("ml", "llm-0")
    found: list[Signal] = []
    for step in range(1, 1001):
        finding = Finding("job.progress", Severity.INFO, {"step": step})
        found += rollup.take(_report(finding, step * 10, pod=pod))
    found += rollup.due(END, 1e9)
    assert [signal.attributes["step"] for signal in found] == [1, 501, 1000]


def test_of_a_checkpoint_in_a_hundred_shards_the_first_and_the_newest_are_told() -> None:
    rollup = RollUp()
    found: list[Signal] = []
    for shard in range(100):
        finding = Finding("job.checkpoint", Severity.INFO, {"step": 1000})
        found += rollup.take(_report(finding, shard * 50, pod=PodRef("ml", "llm-0")))
    found += rollup.due(END, 1e9)
    assert [signal.count for signal in found] == [1, 99]


def test_counts_come_by_the_readers_clock_where_no_record_does() -> None:
    rollup = RollUp()
    for n in range(3):
        rollup.take(Said(n).report())
    assert rollup.waiting
    assert rollup.due(rollup.clock_ms, 100.0) == []
    assert rollup.due(rollup.clock_ms, 101.9) == []
    (count,) = rollup.due(rollup.clock_ms, 102.0)
    assert count.count == 2
    assert not rollup.waiting
    assert rollup.due(rollup.clock_ms, 200.0) == []


SAID = st.lists(
    st.builds(
        Said,
        st.integers(-3000, 20_000),
        st.sampled_from(["gpu-1", "gpu-2"]),
        st.sampled_from([43, 79]),
        st.sampled_from([FIRING, FIRING, CLEARED]),
        st.integers(1, 3),
    ),
    max_size=60,
)


@given(SAID, st.integers(0, 7), st.booleans())
@settings(max_examples=tries(300))
def test_in_whatever_batches_it_is_read_the_first_reports_are_the_same_and_the_counts_true(
    said: list[Said], ask_every: int, in_order: bool
) -> None:
    said = sorted(said, key=lambda one: one.after_ms) if in_order else said
    found = told(said, ask_every=ask_every)
    assert at_once(found) == at_once(told(said))
    truth = Counter((one.node, one.xid, one.state) for one in said)
    counted: Counter[tuple[str | None, Attribute, SignalState]] = Counter()
    for signal in found:
        counted[signal.entity.node, signal.attributes["xid"], signal.state] += signal.count
    assert counted == truth
    rollup_ids = [signal.id for signal in found if signal.first_at is not None]
    assert len(set(rollup_ids)) == len(rollup_ids)


@given(SAID)
def test_every_change_is_told_at_once(said: list[Said]) -> None:
    changes = 0
    states: dict[tuple[str, int], SignalState] = {}
    for one in said:
        changes += states.get((one.node, one.xid)) is not one.state
        states[one.node, one.xid] = one.state
    found = [signal for signal in told(said) if signal.first_at is None]
    seen: dict[tuple[str | None, Attribute], SignalState] = {}
    told_changes = 0
    for signal in found:
        key = (signal.entity.node, signal.attributes["xid"])
        told_changes += seen.get(key) is not signal.state
        seen[key] = signal.state
    assert told_changes == changes


def test_through_the_detector_repeats_cost_no_signal_and_are_counted() -> None:
    detector, rollup = Detector("c1"), RollUp()
    results = []
    for n in range(100):
        text = f"[ 12.3] NVRM: Xid (PCI:0000:3b:00): 43, pid={n}, name=python, Ch 00000008"
        results.append(detector.read(record(text, key=b"gpu-1", at=NOW + timedelta(milliseconds=n)), rollup))
    assert [len(result.signals) for result in results] == [1] + [0] * 99
    assert [result.repeats for result in results] == [0] + [1] * 99
    assert all(result.ignored == 0 for result in results)
    (count,) = rollup.due(END, 0)
    assert (count.count, count.attributes["pid"], count.evidence[0].text[-11:]) == (99, 99, "Ch 00000008")


@pytest.mark.parametrize("kind", ["gpu.xid", "nccl.timeout", "fabric.link", "node.kernel", "job.progress"])
def test_no_volatile_attribute_tells_reports_apart(kind: str) -> None:
    volatile = {"pid", "process", "address", "registers", "elapsed_ms", "count", "seconds", "fraction"}
    assert not volatile & set(dedup_rule(kind).distinct_by)


def test_what_names_a_condition_also_tells_reports_apart() -> None:
    for rule in [noise().default, *noise().kinds.values()]:
        assert set(rule.condition) <= set(rule.distinct_by)
