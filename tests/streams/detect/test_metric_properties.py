"""What holds of every metric rule whatever comes in: order, repetition, resets, a new process in the middle."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import timedelta

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.detect.finding import Stream
from streams.detect.metrics import MetricRow, MetricRules, sheet
from streams.detect.metrics.levels import is_blank
from streams.detect.metrics.rule_rows import Series, Story
from streams.detect.metrics.stories import labels_of, said, samples
from streams.detect.rule_state import RuleState
from streams.model.record import Sample
from tests.effort import tries
from tests.streams.detect.lines import NOW

RULES = MetricRules()
ROWS = sheet().rows
COUNTERS = [row for row in ROWS if row.measure in ("increase", "rate")]
STORIES = [
    pytest.param(row, story, id=f"{row.id}-{number}")
    for row in ROWS
    for number, story in enumerate(row.stories)
]


COUNTED = {metric.name for row in ROWS if row.measure == "increase" for metric in row.metrics}


def healthy_values(row: MetricRow) -> st.SearchStrategy[float]:
    """Values that the row has nothing against, in the exporter's own unit."""
    low, high = row.valid
    scale = row.metrics[0].scale
    if row.measure == "bits":
        faults = sum(row.bits)
        return st.integers(0, 2**9 - 1).map(lambda mask: float(mask & ~faults & ~0xE8))
    if row.measure in ("share", "ratio", "zeros", "baseline", "peers", "increase", "rate"):
        return st.just(1.0 if row.measure == "share" else 16.0)
    if row.above is not None:
        top = row.above if row.clear is None else row.clear
        return st.floats(low / scale, (top - min(0.01, abs(top) / 100)) / scale)
    assert row.below is not None
    if row.valid == (0, 1) and row.metrics[0].name in COUNTED:
        return st.just(1.0)  # a state, whose falls another row counts: it has nothing between
    bottom = row.below if row.clear is None else row.clear
    return st.floats((bottom + 0.01) / scale, min(high, 1e6) / scale)


def taken(row: MetricRow, metric: str, value: float, seconds: int) -> Sample:
    labels = labels_of(row, Series(metric=metric, values="", labels=dict(PLACE)), 0)
    labels |= {name: wanted[0] for name, wanted in row.where.items()}
    return Sample(metric, value, NOW + timedelta(seconds=seconds), "gpu-1", labels)


PLACE = {"device": "mlx5_0", "port": "1", "exported_pod": "llm-worker-0", "exported_namespace": "ml"}
NAMES = {row.id: row.metrics[0].names()[0][0] for row in ROWS}


@given(data=st.data())
@settings(max_examples=tries(400))
def test_a_healthy_series_says_nothing_in_any_order_and_however_often(data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(ROWS))
    times = data.draw(st.lists(st.integers(0, 7200), min_size=1, max_size=60))
    told = [taken(row, NAMES[row.id], data.draw(healthy_values(row)), at) for at in times]
    if row.of:
        told += [taken(row, row.of[0].name, 16.0, at) for at in times]
    assert not said(RULES, data.draw(st.permutations(told)))


@given(data=st.data())
@settings(max_examples=tries(400))
def test_a_counter_that_falls_says_nothing_in_any_order(data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(COUNTERS))
    values = sorted(data.draw(st.lists(st.integers(0, 10**6), min_size=1, max_size=40)), reverse=True)
    times = sorted(
        data.draw(st.lists(st.integers(0, 7200), min_size=len(values), max_size=len(values), unique=True))
    )
    told = [
        taken(row, NAMES[row.id], value / row.metrics[0].scale, at)
        for value, at in zip(values, times, strict=True)
    ]
    told += data.draw(st.lists(st.sampled_from(told)))
    assert not said(RULES, data.draw(st.permutations(told)))


@given(data=st.data())
@settings(max_examples=tries(200))
def test_two_exporters_that_count_from_elsewhere_say_nothing(data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(COUNTERS))
    bases = data.draw(st.lists(st.integers(0, 10**6), min_size=2, max_size=3))
    told = []
    for step in range(data.draw(st.integers(2, 60))):
        for number in data.draw(st.permutations(range(len(bases)))):
            sample = taken(row, NAMES[row.id], bases[number], 30 * step + number)
            sample = Sample(
                sample.name,
                sample.value,
                sample.at,
                sample.node,
                {**sample.labels, "job": f"exporter-{number}"},
            )
            told.append(sample)
    assert not said(RULES, told)


@pytest.mark.parametrize("row", COUNTERS, ids=lambda row: row.id)
@pytest.mark.parametrize("in_order", [True, False])
def test_counters_of_one_row_are_told_apart(row: MetricRow, in_order: bool) -> None:
    names = [metric.names()[0][0] for metric in row.metrics]
    constant = [
        taken(row, name, 100.0 * number, 30 * step + number)
        for step in range(60)
        for number, name in enumerate(names)
    ]
    assert not said(RULES, constant if in_order else constant[::-1])


def test_a_sample_from_the_future_does_not_make_the_rest_look_late() -> None:
    rows = {row.id: row for row in ROWS}
    told = samples(rows["gpu_ecc_uncorrectable"], rows["gpu_ecc_uncorrectable"].stories[0])
    first = told[0]
    ahead = Sample(first.name, first.value, NOW + timedelta(days=1), first.node, first.labels)
    rule_state = RuleState()
    assert not list(RULES.read(ahead, Stream("c1", "raw.metrics:0", NOW, rule_state)))
    assert len(said(RULES, told, rule_state)) == 2


def written_down(rule_state: RuleState) -> RuleState:
    """The memory as another process has it that was given its rows as text."""
    other = RuleState()
    for name, table in rule_state.tables():
        rows = orjson.loads(orjson.dumps([[key, row] for key, row in table.items()]))
        copy = other.table(name, table.limit)
        for key, row in rows:
            copy[tuple(key)] = tuple(row)
    return other


@pytest.mark.parametrize(("row", "story"), STORIES)
def test_a_process_that_takes_over_in_the_middle_says_the_same(row: MetricRow, story: Story) -> None:
    told = samples(row, story)
    whole = said(RULES, told)
    for middle in range(1, len(told), max(1, len(told) // 12)):
        rule_state = RuleState()
        before = said(RULES, told[:middle], rule_state)
        assert before + said(MetricRules(), told[middle:], written_down(rule_state)) == whole


@pytest.mark.parametrize(("row", "story"), STORIES)
def test_samples_that_come_twice_change_nothing(row: MetricRow, story: Story) -> None:
    told = samples(row, story)
    twice = [sample for sample in told for _ in range(2)]
    late = [sample for number, sample in enumerate(told) for sample in (sample, told[max(0, number - 7)])]
    assert said(RULES, twice) == said(RULES, told)
    assert said(RULES, late) == said(RULES, told)


@pytest.mark.parametrize(("row", "story"), STORIES)
def test_nothing_but_text_and_finite_numbers_is_remembered(row: MetricRow, story: Story) -> None:
    rule_state = RuleState()
    said(RULES, samples(row, story), rule_state)
    scalars = [
        one for _, table in rule_state.tables() for pair in table.items() for part in pair for one in part
    ]
    assert scalars
    assert all(isinstance(one, (str, int, float, bool)) for one in scalars)
    assert all(math.isfinite(one) for one in scalars if isinstance(one, float))


def blanks() -> Iterator[float]:
    yield from (math.nan, math.inf, -math.inf)
    for base in (0x7FFFFFF0, 0x7FFFFFFFFFFFFFF0, 140_737_488_355_328):
        yield from (float(base + kind) for kind in range(4))


@pytest.mark.parametrize("blank", list(blanks()))
def test_dcgms_words_for_no_value_are_no_values(blank: float) -> None:
    assert is_blank(blank)
    for row in ROWS:
        for metric in row.metrics:
            name = metric.names()[0][0]
            # A state that is bad at zero, and news when first seen, is well above it.
            well = 0.0 if row.below is None or row.samples > 1 else row.below + 1
            told = [taken(row, name, well, 0), *(taken(row, name, blank, 30 * step) for step in range(1, 60))]
            assert not said(RULES, told), name


@pytest.mark.parametrize("value", [0.0, 1.0, 2_147_483_631.0, 2_147_483_648.0, 1.4e14, 1.5e14, 9e17])
def test_large_counters_are_values(value: float) -> None:
    assert not is_blank(value)
