"""What is remembered, written down and read back: whoever reads on from it comes to the same conclusions."""

from __future__ import annotations

import orjson
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.detect.deduplication import RollUp
from streams.detect.rule_state import Dropped, RuleState
from streams.detect.snapshot import FORMAT, ROWS_PER_BLOCK, Snapshot
from streams.model.errors import BadInput
from streams.model.signal import Signal
from tests.effort import tries
from tests.streams.detect.test_deduplication import END, SAID, Said, at_once

SOURCE = "raw.node-logs/3"


def copied(rule_state: RuleState, rollup: RollUp) -> Snapshot:
    """Written and read back."""
    read = Snapshot(SOURCE)
    for block in list(Snapshot(SOURCE, rule_state, rollup).blocks()):
        read.load(block)
    return read


@given(SAID, st.integers(0, 60), st.booleans())
@settings(max_examples=tries(200))
def test_a_roll_up_goes_on_from_its_snapshot_as_if_nothing_had_happened(
    said: list[Said], after: int, ask: bool
) -> None:
    def told(restart: bool) -> list[Signal]:
        rollup = RollUp()
        found: list[Signal] = []
        for number, one in enumerate(said):
            if number == after:
                found += rollup.due(rollup.clock_ms, 0) if ask else []
                rollup = copied(RuleState(), rollup).rollup if restart else rollup
            found += rollup.take(one.report())
        return found + rollup.due(END, 1e9)

    whole, restarted = told(restart=False), told(restart=True)
    assert at_once(restarted) == at_once(whole)
    # Counts that are due at the same time come in any order.
    assert sorted((s.id, s.count) for s in restarted) == sorted((s.id, s.count) for s in whole)


@given(SAID, st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
@settings(max_examples=tries(200))
def test_after_a_crash_first_reports_are_the_same_and_counts_never_below_the_truth(
    said: list[Said], snapshot_at: int, flushed_at: int, died_at: int
) -> None:
    """A snapshot, counts told after it, a death: the next reads from the snapshot on, silently up to the commit."""
    snapshot_at, flushed_at, died_at = sorted((snapshot_at, flushed_at, died_at))
    first, kept = RollUp(), Snapshot(SOURCE)
    written: list[Signal] = []
    for number, one in enumerate(said[:died_at]):
        if number == flushed_at:
            written += first.due(END, 1e9)
        if number == snapshot_at:
            kept = copied(RuleState(), first)
        written += first.take(one.report())
    silent_from = snapshot_at if snapshot_at < min(died_at, len(said)) else 0
    for one in said[silent_from:died_at]:
        kept.rollup.take(one.report())
    for one in said[died_at:]:
        written += kept.rollup.take(one.report())
    written += kept.rollup.due(END, 1e9)
    undisturbed = RollUp()
    expected = [signal for one in said for signal in undisturbed.take(one.report())]
    assert at_once(written) == at_once(expected)
    assert sum(signal.count for signal in written) >= len(said)


def test_tables_come_back_row_by_row_in_their_order() -> None:
    rule_state = RuleState()
    table = rule_state.table("xid.uuids", 100_000)
    for n in range(2 * ROWS_PER_BLOCK + 3):
        table["c1", f"gpu-{n}", n] = ("GPU-1", n, 0.5, True, None)
    rule_state.table("empty", 10)
    blocks = list(Snapshot(SOURCE, rule_state).blocks())
    assert len(blocks) == 3
    read = copied(rule_state, RollUp())
    assert list(read.rule_state.table("xid.uuids", 100_000).items()) == list(table.items())
    assert read.rows == len(table)


def test_a_table_that_no_rule_has_asked_for_since_is_written_again() -> None:
    rule_state = RuleState()
    rule_state.table("rare", 10)["key",] = (1,)
    twice = copied(copied(rule_state, RollUp()).rule_state, RollUp())
    assert dict(twice.rule_state.table("rare", 10)) == {("key",): (1,)}


def test_a_rules_limit_holds_for_what_comes_back() -> None:
    rule_state = RuleState()
    for n in range(10):
        rule_state.table("t", 10)[n,] = (n,)
    assert list(copied(rule_state, RollUp()).rule_state.table("t", 3)) == [(7,), (8,), (9,)]


def test_rows_of_another_version_are_forgotten_and_told() -> None:
    rule_state = RuleState()
    rule_state.table("pauses", 10, version=1)["key",] = (1, 2)
    read = copied(rule_state, RollUp()).rule_state
    assert not read.table("pauses", 10, version=2)
    assert read.take_dropped() == [Dropped("pauses", 1, 2, 1)]
    assert read.take_dropped() == []


def test_a_row_that_json_cannot_hold_costs_only_itself() -> None:
    rule_state = RuleState()
    rule_state.table("t", 10)["half \ud800",] = (1,)
    rule_state.table("t", 10)["whole",] = (2,)
    snapshot = Snapshot(SOURCE, rule_state)
    (block,) = snapshot.blocks()
    assert snapshot.unwritable == 1
    read = Snapshot(SOURCE)
    read.load(block)
    assert dict(read.rule_state.table("t", 10)) == {("whole",): (2,)}


def packed(**changes: object) -> bytes:
    document = {
        "format": FORMAT,
        "source": SOURCE,
        "kind": "table",
        "table": "t",
        "version": 1,
        "rows": [],
    }
    return zstandard.ZstdCompressor().compress(orjson.dumps({**document, **changes}))


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"garbage",
        zstandard.ZstdCompressor().compress(b"{"),
        zstandard.ZstdCompressor().compress(b"[1]"),
        packed(source="raw.node-logs/4"),
        packed(format=FORMAT + 1),
        packed(rows=[[1]]),
        packed(rows=None),
        packed(kind="rollup", clock_ms=1, changes=1, rows=[["window"]]),
        packed(kind="rollup", rows=[]),
    ],
)
def test_a_block_that_is_none_of_ours_is_refused(block: bytes) -> None:
    with pytest.raises(BadInput, match=r"raw\.node-logs/3|format"):
        Snapshot(SOURCE).load(block)
