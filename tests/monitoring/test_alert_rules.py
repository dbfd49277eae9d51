"""Every alert under promtool: it fires on its case, is silent on near misses, and no threshold can move."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from k8s.monitoring.render import DOCS, groups
from k8s.monitoring.rows import PACK, Row, read
from tests.monitoring.promtool import Case, failures, moved, thresholds, unit_tests

pytestmark = pytest.mark.prometheus
TABLES = (*PACK, "own")


def alerts() -> Iterator[tuple[Row, dict[str, Any]]]:
    for name in TABLES:
        (group,) = groups(name)
        yield from zip(read(name).rows, group["rules"], strict=True)


def test_every_alert_fires_on_its_case_and_is_silent_on_its_near_misses(tmp_path: Path) -> None:
    cases = [Case(row.alert, (rule,), tuple(unit_tests(row, DOCS))) for row, rule in alerts()]
    assert failures(cases, tmp_path) == {}


def test_faultline_is_gone_too_where_its_targets_have_vanished(tmp_path: Path) -> None:
    """After a namespace is deleted, or where discovery finds nothing any more, there is no `up` that could be 0."""
    (rule,) = [rule for row, rule in alerts() if row.alert == "FaultlineGone"]
    up = {"series": 'up{cluster="c1", job="faultline"}', "values": "1x10 _x30 1x20"}

    def fires(minute: int) -> dict[str, Any]:
        labels = {"severity": "critical", "cluster": "c1", "job": "faultline", **rule["labels"]}
        alert = {"exp_labels": labels, "exp_annotations": rule["annotations"]}
        return {"eval_time": f"{minute}m30s", "alertname": "FaultlineGone", "exp_alerts": [alert]}

    quiet = [{"eval_time": f"{at}m30s", "alertname": "FaultlineGone", "exp_alerts": []} for at in (8, 19, 45)]
    annotations = {
        key: text.replace("{{ $labels.job }}", "faultline") for key, text in rule["annotations"].items()
    }
    looked = [*quiet, fires(30)]
    looked[-1]["exp_alerts"][0]["exp_annotations"] = annotations
    test = {
        "interval": "1m",
        "input_series": [up],
        "alert_rule_test": sorted(looked, key=lambda one: one["eval_time"]),
    }
    assert failures([Case("gone", (rule,), (test,))], tmp_path) == {}


def test_every_alert_compares_with_a_threshold_and_has_a_near_miss() -> None:
    for row, rule in alerts():
        assert thresholds(rule) or " unless " in row.expr, row.alert
        assert row.silent, row.alert


@pytest.mark.nightly
def test_a_threshold_that_is_moved_fails_the_tests_of_its_alert(tmp_path: Path) -> None:
    """Each number that an expression compares with, up and down, and how long it waits, longer and not at all."""
    mutants = [[(row, *one) for one in moved(rule, row)] for row, rule in alerts()]
    unnoticed = []
    for number, batch in enumerate(zip_longest(*mutants)):
        chosen = [one for one in batch if one is not None]
        cases = [Case(row.alert, (rule,), tuple(unit_tests(row, DOCS))) for row, _, rule in chosen]
        failed = failures(cases, tmp_path / str(number))
        unnoticed += [f"{row.alert}: {what}" for row, what, _ in chosen if row.alert not in failed]
    assert sum(map(len, mutants)) > 700
    assert not unnoticed, "\n".join(unnoticed)
