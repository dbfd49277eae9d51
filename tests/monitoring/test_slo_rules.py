"""The burn-rate alerts under promtool: both windows have to burn, and no threshold can move without a test that fails."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import pytest

from k8s.monitoring.render import DOCS
from k8s.monitoring.slo import BURNS, LEAST, RATIO, Burn, Objective, groups, objectives, texts
from tests.monitoring.promtool import Case, failures, minutes, moved

pytestmark = pytest.mark.prometheus
RECORDED, ALERTS = (group["rules"] for group in groups(DOCS))
EVENTS = 1000
"""Of one minute, where there are many."""


def burning() -> Iterator[tuple[Objective, Burn, dict[str, Any]]]:
    pairs = [(one, burn) for one in objectives() for burn in BURNS]
    for (one, burn), rule in zip(pairs, ALERTS, strict=True):
        yield one, burn, rule


def case(one: Objective, burn: Burn, rule: dict[str, Any]) -> Case:
    """It fires when both windows burn, and is silent when only the short one does, or only the long one any more."""
    step = 5 if burn.long == "3d" else 1  # minutes between samples
    long, last = minutes(burn.long), minutes(burn.short) + minutes(burn.for_) + 3 * step
    bound = one.threshold(burn)
    fired = {
        "exp_labels": {"cluster": "gpu-east", "slo": one.name, "severity": burn.severity},
        "exp_annotations": texts(one, burn, DOCS, "gpu-east"),
    }
    # Where nothing goes well, so that only the number of events counts.
    enough, too_few = ((LEAST + more) / long for more in (-0.5, -1.5))
    told = [
        ("burns", EVENTS, [(long + last, 1.07)], [fired]),
        ("only a moment", EVENTS, [(long, 0.88), (last, 1.5)], []),
        ("it is over", EVENTS, [(long, 1.3), (last, 0.92)], []),
        ("few", enough, [(long + last, 1 / bound)], [fired]),
        ("too few", too_few, [(long + last, 1 / bound)], []),
    ]
    tests = [
        {
            "name": name,
            "interval": f"{step}m",
            "input_series": list(
                series(one, events, [(length // step, share * bound) for length, share in parts], step)
            ),
            "alert_rule_test": [
                {"eval_time": f"{long + last - step}m", "alertname": rule["alert"], "exp_alerts": alerts}
            ],
        }
        for name, events, parts, alerts in told
    ]
    needed = {RATIO + burn.long, RATIO + burn.short}
    recorded = [r for r in RECORDED if r["record"] in needed and r["labels"]["slo"] == one.name]
    return Case(rule["alert"], (*recorded, rule), tuple(tests), f"{step}m")


def series(
    one: Objective, events: float, parts: list[tuple[int, float]], step: int
) -> Iterator[dict[str, str]]:
    """Counters of so many samples each, with so many events a minute of which that share is bad."""
    for name in dict.fromkeys(chain(*one.counts.values())):
        total, values = 0.0, []
        for length, share in parts:
            bad = events * step * share * (name in one.counts["bad"])
            added = bad + events * step * (1 - share) * (name in one.counts["good"])
            values.append(f"{total:.9f}+{added:.9f}x{length - 1}")
            total += added * length
        metric, brace, labels = name.partition("{")
        yield {
            "series": f'{metric}{{cluster="gpu-east", {labels if brace else "}"}',
            "values": " ".join(values),
        }


@pytest.mark.parametrize(
    "long", ["1h", *(pytest.param(long, marks=pytest.mark.nightly) for long in ("6h", "3d"))]
)
def test_a_budget_that_burns_over_both_windows_is_told_and_nothing_else(long: str, tmp_path: Path) -> None:
    assert failures([case(*one) for one in burning() if one[1].long == long], tmp_path) == {}


@pytest.mark.nightly
def test_a_threshold_that_is_moved_fails_the_tests_of_its_burn_rate(tmp_path: Path) -> None:
    mutants = [
        [(one, burn, *m) for m in moved(rule, None) if "for" not in m[0]] for one, burn, rule in burning()
    ]
    assert {len(each) for each in mutants} == {6}  # two windows and the least number, up and down
    unnoticed = []
    for number, batch in enumerate(zip_longest(*mutants)):
        failed = failures([case(one, burn, rule) for one, burn, _, rule in batch], tmp_path / str(number))
        unnoticed += [f"{rule['alert']}: {what}" for _, _, what, rule in batch if rule["alert"] not in failed]
    assert not unnoticed, "\n".join(unnoticed)
