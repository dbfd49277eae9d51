"""The rows of `tables/*.yaml`: an alert, the series on which it must fire, and near misses on which it must not.

A row becomes a rule in `rules/` and the same rule in `prometheus-rules/` (`render.py`), and a unit test of promtool
(`tests/monitoring`). `$by` in an expression is `by`; `$where` in a summary is `where`; `$value` is what the expression yields.
`$xid` anywhere is the code that a row yields. `xid`, at the head of a table, holds what the rows of XIDs have in common.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import model_validator

from streams.config.yaml_tables import Strict

TABLES = Path(__file__).parent / "tables"
PACK = ("gpu", "fabric", "hosts", "jobs")
"""Tables of alerts about a cluster; `own` and `slo` are about Faultline itself."""

Series = Mapping[str, float | str]
"""Values by series: `name` or `name{label="value"}`, a number for a constant, else promtool's notation at one a minute."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PORT = {"device": "", "port": "", "instance": "leaf-2:161", "ifName": "Ethernet112"}


class Row(Strict):
    """One alert.

    `onset`: when its expression begins to hold on `fires`; `shows`: what `$value` is then. `also`: further series on which it
    fires the same. `kind` and `subtype` are what the detector makes of it, `entity` about what; `evidence: none` says that by
    design nothing is made of it, and `why`. `switch`: the place is a port of the switch that is the `instance` (`only`: the
    switch itself). `mutate`: by what share a threshold is moved in the test that must notice it; `mutate_to`: to which two
    values instead.
    """

    alert: str
    expr: str
    severity: Literal["critical", "warning", "info"]
    summary: str
    do: str
    fires: Series
    silent: tuple[Series, ...]
    also: tuple[Series, ...] = ()
    kind: str = ""
    subtype: str = ""
    evidence: Literal["signal", "none"] = "signal"
    why: str = ""
    by: str = ""
    labels: Mapping[str, str] = {}
    yields: Mapping[str, str] = {}
    entity: str = ""
    where: str = ""
    run: str = ""
    section: str = ""
    switch: bool | Literal["only"] = False
    onset: str = "0m"
    shows: str = ""
    horizon: int = 0
    mutate: float = 0.15
    mutate_to: tuple[float, float] | None = None
    for_: str = "0m"

    @model_validator(mode="before")
    @classmethod
    def _takes_for(cls, row: dict[str, object]) -> dict[str, object]:
        return {("for_" if key == "for" else key): value for key, value in row.items()}

    @property
    def expression(self) -> str:
        """What Prometheus evaluates."""
        expr = self.expr.replace("$by", self.by)
        if self.switch:
            return f'label_replace({expr}, "switch", "$1", "instance", "(.+?)(?::[0-9]+)?")'
        return expr

    @property
    def rule_labels(self) -> dict[str, str]:
        """Labels that the rule adds."""
        kind = {"faultline_kind": self.kind} if self.evidence == "signal" else {}
        subtype = {"faultline_subtype": self.subtype} if kind and self.subtype else {}
        return {"severity": self.severity} | kind | subtype

    @property
    def firing_labels(self) -> dict[str, str]:
        """The labels of the alert that `fires` makes, as Prometheus sends them."""
        names = [name.strip() for name in self.by.split(",")]
        kept = {name: self.labels[name] for name in names if self.labels.get(name)}
        switch = {"switch": kept["instance"].partition(":")[0]} if self.switch else {}
        return {**kept, **switch, **self.yields, **self.rule_labels}

    def annotations(self, docs: str, *, shown: str | None = None) -> dict[str, str]:
        """Summary, what to do and the command to run; with `shown` as they are when the alert of `fires` is sent."""
        texts = {
            "summary": self.summary.replace("$where", self.where),
            "description": self.do,
            "command": self.run,
            "runbook_url": f"{docs}#{self.section}",
        }
        if shown is None:
            return {
                name: text.replace("$value", '{{ $value | printf "%.4g" }}') for name, text in texts.items()
            }
        return {name: _filled(text, self.firing_labels, shown) for name, text in texts.items()}

    @property
    def shown(self) -> str:
        """What `$value` is on `fires`."""
        return self.shows or f"{float(next(iter(self.fires.values()))):.4g}"


class Table(Strict):
    """One file: what its rows have in common, and the rows."""

    group: str
    rows: tuple[Row, ...]


@cache
def read(name: str) -> Table:
    """The table of that name, with what its head says put into each row."""
    found = yaml.load((TABLES / f"{name}.yaml").read_text(), Loader=_LOADER)
    rows = found.pop("rows")
    group = found.pop("group")
    labels = found.pop("labels", {})
    found.pop("xid", None)  # merged into the rows by YAML
    return Table(group=group, rows=tuple(Row.model_validate(_whole(row, found, labels)) for row in rows))


def _whole(
    row: dict[str, object], common: Mapping[str, object], labels: Mapping[str, str]
) -> dict[str, object]:
    own = row.get("labels", {})
    assert isinstance(own, dict)
    whole = {**common, **row, "labels": {**labels, **own}}
    if row.get("switch") is True:
        whole["labels"] = {**labels, **_PORT, **own}
        whole["by"] = "cluster, instance, ifName"
        whole["where"] = "{{ $labels.ifName }} of {{ $labels.switch }}"
        whole["entity"] = "port/leaf-2/Ethernet112"
    yields = whole.get("yields", {})
    assert isinstance(yields, dict)
    return _with_code(whole, yields["xid"]) if "xid" in yields else whole


def _with_code(value: Any, code: str) -> Any:
    """The same with `$xid` replaced in all texts and keys."""
    if isinstance(value, dict):
        return {_with_code(key, code): _with_code(inside, code) for key, inside in value.items()}
    if isinstance(value, list):
        return [_with_code(inside, code) for inside in value]
    return value.replace("$xid", code) if isinstance(value, str) else value


def _filled(text: str, labels: Mapping[str, str], value: str) -> str:
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda m: labels.get(m[1], ""), text).replace("$value", value)
