"""Series of samples as the rows of `catalog/metrics/*.yaml` tell them, and what the rules say of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from streams.detect.finding import Finding, Stream
from streams.detect.metrics.family import MetricRules
from streams.detect.metrics.rule_rows import MetricRow, Series, Story
from streams.detect.rule_state import RuleState
from streams.model.record import Sample

NOW = datetime(2026, 11, 21, 7, 13, 20, tzinfo=UTC)
"""When every story begins."""


@dataclass(frozen=True, slots=True)
class Said:
    """One finding, and how long after the story's begin (ms)."""

    after: int
    finding: Finding


def values(notation: str) -> Iterator[float | None]:
    """Prometheus' notation for rule tests: `80x3` is 80 four times, `0+5x2` is 0 5 10; None is a scrape that is missing."""
    for token in notation.split():
        start, _, times = token.partition("x")
        first, _, step = start.partition("+")
        for number in range(int(times or 0) + 1):
            yield None if first == "_" else float(first) + number * float(step or 0)


def labels_of(row: MetricRow, series: Series, gpu: int) -> dict[str, str]:
    """What an exporter puts on such a sample."""
    known = {"__name__": series.metric, "instance": "10.0.0.5:9400", "job": "exporter"}
    if (row.entity in ("gpu", "instance") or row.measure == "node") and not {"uuid", "UUID"} & set(
        series.labels
    ):
        known |= {"gpu": str(gpu), "UUID": f"GPU-{gpu}", "pci_bus_id": f"00000000:{0x1B + gpu:02X}:00.0"}
    return {name: value for name, value in (known | dict(series.labels)).items() if value}


def samples(row: MetricRow, story: Story) -> list[Sample]:
    """The story's samples in the order of their times; those of one scrape in the order of the series."""
    told = [
        (number * story.step, order, Sample(series.metric, value, None, "gpu-1", labels_of(row, series, gpu)))
        for order, series in enumerate(story.series)
        for number, value in enumerate(values(series.values))
        for gpu in series.gpus
        if value is not None
    ]
    told.sort(key=lambda one: one[:2])
    return [
        Sample(sample.name, sample.value, NOW + timedelta(milliseconds=after), sample.node, sample.labels)
        for after, _, sample in told
    ]


def said(rules: MetricRules, told: Iterable[Sample], rule_state: RuleState | None = None) -> list[Said]:
    """What the rules say of the samples, one after the other."""
    rule_state = rule_state or RuleState()
    return [
        Said(round(((sample.at or NOW) - NOW).total_seconds() * 1000), finding)
        for sample in told
        for finding in rules.read(sample, Stream("c1", "raw.metrics:0", sample.at or NOW, rule_state))
    ]
