"""Faultline's objectives as recorded ratios and burn-rate alerts, from `tables/slo.yaml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from k8s.monitoring.rows import TABLES
from streams.config.yaml_tables import Strict

RATIO = "faultline:slo_errors:ratio_rate"
"""Begin of the names of the recorded series; their label `slo` is the objective."""


@dataclass(frozen=True)
class Burn:
    """One alert: the budget burns `factor` times too fast over both windows."""

    suffix: str
    factor: float
    long: str
    short: str
    severity: str
    for_: str
    left: str


BURNS = (
    Burn("Page1h", 14.4, "1h", "5m", "critical", "2m", "2 % of a month's budget within an hour"),
    Burn("Page6h", 6, "6h", "30m", "critical", "15m", "5 % of a month's budget within six hours"),
    Burn("Ticket3d", 1, "3d", "6h", "warning", "1h", "10 % of a month's budget within three days"),
)
WINDOWS = ("5m", "30m", "1h", "6h", "3d")
LEAST = 5
"""Bad events within the long window below which nothing is told: of four effects in a quiet night one that is tried again is a
quarter, and nobody has to get up for it (Site Reliability Workbook, chapter 5, "Low-Traffic Services")."""

_SECONDS = {"h": 3600, "d": 86400}


class Objective(Strict):
    """One promise. `counts`: the series that one bad and one good event add one to."""

    name: str
    objective: float
    means: str
    bad: str
    total: str
    counts: Mapping[str, tuple[str, ...]]
    alert: str
    section: str
    run: str
    do: str

    @property
    def budget(self) -> float:
        """The share of events that may be bad."""
        return round(1 - self.objective, 6)

    def threshold(self, burn: Burn) -> float:
        """The ratio above which the budget burns that fast."""
        return round(burn.factor * self.budget, 6)


def objectives() -> tuple[Objective, ...]:
    """All promises."""
    found = yaml.safe_load((TABLES / "slo.yaml").read_text())["objectives"]
    return tuple(Objective.model_validate(one) for one in found)


def groups(docs: str) -> list[dict[str, Any]]:
    """Recorded ratios, and the alerts on them."""
    return [
        {"name": "faultline-slo-ratios", "interval": "1m", "rules": list(_ratios())},
        {"name": "faultline-slo", "rules": list(_alerts(docs))},
    ]


def _ratios() -> Iterator[dict[str, Any]]:
    for one in objectives():
        for window in WINDOWS:
            expr = f"({one.bad}) / ({one.total})".replace("$w", window)
            yield {"record": RATIO + window, "expr": expr, "labels": {"slo": one.name}}


def _alerts(docs: str) -> Iterator[dict[str, Any]]:
    for one in objectives():
        for burn in BURNS:
            bound = f"{one.threshold(burn):g}"
            over = [f'{RATIO}{window}{{slo="{one.name}"}} > {bound}' for window in (burn.long, burn.short)]
            yield {
                "alert": one.alert + burn.suffix,
                "expr": f"{over[0]} and {over[1]} and on (cluster) {_bad_events(one, burn)} > {LEAST - 1}",
                "for": burn.for_,
                "labels": {"severity": burn.severity},
                "annotations": texts(one, burn, docs),
            }


def _bad_events(one: Objective, burn: Burn) -> str:
    window_s = int(burn.long[:-1]) * _SECONDS[burn.long[-1]]
    return f"({one.bad}) * {window_s}".replace("$w", burn.long)


def texts(one: Objective, burn: Burn, docs: str, cluster: str = "{{ $labels.cluster }}") -> dict[str, str]:
    """What the alert says."""
    return {
        "summary": f"{cluster} burns {burn.left}: too rarely {one.means}",
        "description": one.do,
        "command": one.run,
        "runbook_url": f"{docs}#{one.section}",
    }
