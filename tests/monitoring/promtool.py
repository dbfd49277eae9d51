"""Unit tests of promtool, written from the rows: when an alert must fire, with which labels and texts, and when it must not.

Rules are evaluated every 30 s and samples come every minute, and everything is looked at half a minute after a sample: so no
window begins exactly on one, which Prometheus 2 counts and Prometheus 3 does not.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k8s.monitoring.rows import Row, Series
from tests.testbed import parts

_AT = "30s"
_LITERAL = re.compile(
    r"(?P<before>(?:==|!=|>=|<=|>|<)\s*(?:bool\s+)?(?:(?:on|ignoring)\s*\([^)]*\)\s*(?:group_left|group_right)?\s*)?)"
    r"(?P<number>-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?![\w.])"
)


def promtool() -> Path:
    """Debian's promtool, unpacked by the testbed."""
    return parts.part("prometheus").folder / "usr/bin/promtool"


def minutes(duration: str) -> int:
    """`90m` or `2h` in minutes."""
    return int(duration[:-1]) * {"m": 1, "h": 60, "d": 1440}[duration[-1]]


def unit_tests(row: Row, docs: str) -> list[dict[str, Any]]:
    """The tests of one alert: it fires, not before its time, and is silent on every near miss."""
    lasts, onset = minutes(row.for_), minutes(row.onset)
    at = onset + lasts + 1
    length = max(at, row.horizon) + 10
    fired = {"exp_labels": row.firing_labels, "exp_annotations": row.annotations(docs, shown=row.shown)}
    checks = [_check(row, at, [fired])]
    if lasts >= 2:
        checks.insert(0, _check(row, at - 2, []))
    tests = [_test(row, "fires", series, length, checks) for series in (row.fires, *row.also)]
    looks = sorted(
        {look for look in (at, at + 2, at + 5, row.horizon or at) if look <= (row.horizon or at + 5)}
    )
    for number, series in enumerate(row.silent, 1):
        tests.append(
            _test(row, f"near miss {number}", series, length, [_check(row, look, []) for look in looks])
        )
    return tests


def _test(row: Row, name: str, series: Series, length: int, checks: list[dict[str, Any]]) -> dict[str, Any]:
    given = [
        {"series": _selector(key, row.labels), "values": _values(value, length)}
        for key, value in series.items()
    ]
    return {
        "name": f"{row.alert}: {name}",
        "interval": "1m",
        "input_series": given,
        "alert_rule_test": checks,
    }


def _check(row: Row, minute: int, alerts: list[dict[str, Any]]) -> dict[str, Any]:
    return {"eval_time": f"{minute}m{_AT}", "alertname": row.alert, "exp_alerts": alerts}


def _selector(key: str, labels: Mapping[str, str]) -> str:
    name, _, inside = key.partition("{")
    own = dict(re.findall(r'(\w+)="([^"]*)"', inside))
    merged = {label: value for label, value in {**labels, **own}.items() if value}
    return name + "{" + ", ".join(f'{label}="{value}"' for label, value in merged.items()) + "}"


def _values(value: float | str, length: int) -> str:
    return value if isinstance(value, str) else f"{value:.15g}x{length}"


@dataclass(frozen=True)
class Case:
    """Rules and their unit tests, which make one file of each."""

    name: str
    rules: tuple[Mapping[str, Any], ...]
    tests: tuple[Mapping[str, Any], ...]
    every: str = "30s"


def failures(cases: Iterable[Case], folder: Path) -> dict[str, str]:
    """What promtool says of the cases that do not pass, by name. A case has its own rules, so none evaluates those of others."""
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for case in cases:
        names.append(case.name)
        rules = {"groups": [{"name": case.name, "rules": list(case.rules)}]}
        tests = {
            "rule_files": [f"{case.name}.rules.yaml"],
            "evaluation_interval": case.every,
            "tests": list(case.tests),
        }
        for kind, document in (("rules", rules), ("test", tests)):
            (folder / f"{case.name}.{kind}.yaml").write_text(json.dumps(document))  # which is YAML, and quick
    command = [str(promtool()), "test", "rules", *(f"{name}.test.yaml" for name in names)]
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    said = re.split(r"Unit Testing:\s+", done.stdout)[1:]
    found = {part.partition(".test.yaml")[0]: part.partition("\n")[2] for part in said}
    if found.keys() != set(names):
        raise AssertionError(f"promtool did not run everything: {done.stdout[-2000:]}")
    return {name: text for name, text in found.items() if "SUCCESS" not in text}


def thresholds(rule: Mapping[str, Any]) -> list[re.Match[str]]:
    """The numbers that the expression compares with."""
    return list(_LITERAL.finditer(rule["expr"]))


def moved(rule: Mapping[str, Any], row: Row | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every rule that differs from this one in one threshold, up and down, or in how long it waits."""
    for found in thresholds(rule):
        for number in _neighbours(found["number"], row):
            expr = rule["expr"][: found.start("number")] + number + rule["expr"][found.end("number") :]
            yield f"{found[0]} -> {number}", {**rule, "expr": expr}
    for_ = minutes(rule.get("for", "0m"))
    yield f"for {for_}m -> {for_ + 10}m", {**rule, "for": f"{for_ + 10}m"}
    if for_ >= 2:
        yield f"for {for_}m -> 0", {name: value for name, value in rule.items() if name != "for"}


def _neighbours(number: str, row: Row | None) -> tuple[str, str]:
    value = float(number)
    if row is not None and row.mutate_to is not None:
        up, down = row.mutate_to
    elif value == 0:
        up, down = 2.0, -1.0
    elif value.is_integer() and abs(value) <= 6:
        up, down = value + 1, value - 1
    else:
        share = row.mutate if row is not None else 0.15
        up, down = value * (1 + share), value * (1 - share)
    return f"{up:g}", f"{down:g}"


def lint(exposition: str) -> list[str]:
    """What `promtool check metrics` finds in what a process shows.

    Raises:
        AssertionError: it cannot be read at all.
    """
    done = subprocess.run(
        [str(promtool()), "check", "metrics"], input=exposition, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 3):  # 3: it was read, and this is what is not as it should be
        raise AssertionError(f"promtool cannot read it: {done.stderr[-2000:]}")
    return done.stderr.splitlines() if done.returncode else []
