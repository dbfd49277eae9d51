"""What every process shows on `/metrics`, with all of its families, is read by Prometheus' own parser and passes its lint."""

from __future__ import annotations

import pytest

from faultline.runtime.processes import PROCESSES
from streams.telemetry.metrics import FAMILIES
from streams.telemetry.registry import Family, Metrics
from tests.monitoring.promtool import lint

pytestmark = pytest.mark.prometheus

HOSTILE = 'a "quoted" \\ name\nof two lines, ü'
"""A value of a label that comes from outside."""


def shown(process: str) -> str:
    """A scrape of a process in which every family has a series."""
    metrics = Metrics(process).with_process()
    for family in FAMILIES:
        _give(metrics, family, [next(iter(label.values), HOSTILE) for label in family.labels])
    return metrics.exposition("")[0].decode()


def _give(metrics: Metrics, family: Family, labels: list[str]) -> None:
    if family.kind == "counter":
        metrics.add(family, 1, *labels)
    elif family.kind == "gauge":
        metrics.set(family, 1, *labels)
    else:
        metrics.observe(family, 0.1, *labels)


@pytest.mark.parametrize("process", PROCESSES)
def test_promtool_has_nothing_to_say_of_what_a_process_shows(process: str) -> None:
    exposition = shown(process)
    for family in FAMILIES:
        has = not family.processes or process in family.processes
        assert (f"\n# TYPE {family.exposed} {family.kind}\n" in exposition) is has, family.name
    assert lint(exposition) == []


def test_promtool_would_object_to_a_name_without_unit_suffix_and_help() -> None:
    assert len(lint("# TYPE faultlineSeen counter\nfaultlineSeen 1\n")) == 3
    with pytest.raises(AssertionError, match="cannot read"):
        lint("faultline_ready{ 1\n")
