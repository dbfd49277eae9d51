"""Every figure of ours that a dashboard or a rule asks for is one that a process shows, with labels that it has."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from k8s.monitoring.panels import ALL
from k8s.monitoring.render import DOCS, groups
from streams.telemetry.metrics import FAMILIES

TARGET = {"cluster", "namespace", "pod", "instance", "job", "le", "slo", "component"}
"""Labels that a scrape adds, that a histogram has, that the recorded ratios have, and what build_info is joined for."""
_SUFFIX = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}
SHOWN = {
    family.exposed + suffix: {label.name: label.values for label in family.labels}
    for family in FAMILIES
    for suffix in _SUFFIX[family.kind]
}
BUCKETS = {str(bound) for family in FAMILIES for bound in family.buckets}


def expressions() -> Iterator[tuple[str, str]]:
    for name, one in ALL.items():
        for group in one.rows:
            for panel in group.panels:
                if not panel.only_with:
                    yield from ((f"{name}: {panel.title}", expr) for _, expr in panel.expressions())
    for table in ("own", "slo"):
        rules = [rule for group in groups(table, DOCS) for rule in group["rules"]]
        yield from ((rule.get("alert") or rule["record"], rule["expr"]) for rule in rules)


EXPRESSIONS = list(expressions())


@pytest.mark.parametrize(("where", "expr"), EXPRESSIONS, ids=[where for where, _ in EXPRESSIONS])
def test_a_query_asks_for_what_is_shown(where: str, expr: str) -> None:
    names = re.findall(r"\b(faultline_\w+)\b(?:\{([^}]*)\})?", expr)
    assert names or "faultline:slo_errors" in expr or "up{" in expr, where
    known = set(TARGET)
    for name, matchers in names:
        assert name in SHOWN, f"{where}: {name}"
        known |= set(SHOWN[name])
        for label, sign, value in re.findall(r'(\w+)\s*(=~|!=|!~|=)\s*"([^"]*)"', matchers):
            assert label in TARGET or label in SHOWN[name], f"{where}: {name} has no label {label}"
            allowed = BUCKETS if label == "le" else set(SHOWN[name].get(label, ()))
            asked = value.split("|") if sign in ("=~", "!~") else [value]
            assert not allowed or label == "cluster" or set(asked) <= allowed, f"{where}: {label}={value}"
    for labels in re.findall(r"\b(?:by|on|group_left)\s*\(([^)]*)\)", expr):
        assert {one.strip() for one in labels.split(",")} - {""} <= known, f"{where}: {labels}"
