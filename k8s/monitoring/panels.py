"""The dashboards of `tables/dashboards.yaml` as Grafana's JSON: a fixed uid, datasource and cluster as variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import yaml

from k8s.monitoring.rows import TABLES
from streams.config.yaml_tables import Strict

CLUSTER = 'cluster=~"$cluster"'
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_HEIGHT = {"stat": 4, "table": 8, "timeseries": 8}
_WIDTH = 24


class Panel(Strict):
    """One panel. `queries`: expression by legend. `red`: from where on a figure is red. `only_with`: whose data it shows."""

    title: str
    queries: Mapping[str, str]
    unit: str
    type: Literal["stat", "table", "timeseries"] = "timeseries"
    about: str = ""
    w: int = 12
    red: float | None = None
    text: str = ""
    only_with: str = ""

    def expressions(self) -> list[tuple[str, str]]:
        """Legends and expressions as Grafana sends them, but for its own variables."""
        return [(legend, expr.replace("$c", CLUSTER)) for legend, expr in self.queries.items()]


class Group(Strict):
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


class Dashboard(Strict):
    """One dashboard; `node` adds a variable for the node."""

    title: str
    about: str
    rows: tuple[Group, ...]
    node: bool = False


def _read() -> dict[str, Dashboard]:
    found = yaml.safe_load((TABLES / "dashboards.yaml").read_text())
    return {name: Dashboard.model_validate(one) for name, one in found.items()}


ALL = _read()
NAMES = tuple(ALL)


def dashboard(name: str) -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    one = ALL[name]
    links = [
        {
            "type": "dashboards",
            "title": "Faultline",
            "tags": ["faultline"],
            "asDropdown": True,
            "keepTime": True,
            "includeVars": True,
        }
    ]
    return {
        "uid": f"faultline-{name}",
        "title": one.title,
        "description": one.about,
        "tags": ["faultline"],
        "editable": True,
        "graphTooltip": 1,
        "schemaVersion": 39,
        "version": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "links": links,
        "annotations": {"list": [_incidents()]},
        "templating": {"list": list(_variables(one))},
        "panels": list(_panels(one)),
    }


def _incidents() -> dict[str, Any]:
    """What the notifier draws (docs/people/paging.md), by its tag."""
    return {
        "name": "Incidents",
        "datasource": {"type": "grafana", "uid": "-- Grafana --"},
        "enable": True,
        "hide": False,
        "iconColor": "red",
        "target": {"type": "tags", "tags": ["faultline"], "matchAny": False, "limit": 100},
    }


def _variables(one: Dashboard) -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
        "regex": "",
    }
    yield _query_variable("cluster", "Cluster", "label_values(faultline_build_info, cluster)")
    if one.node:
        yield _query_variable("node", "Node", f"label_values(DCGM_FI_DEV_GPU_TEMP{{{CLUSTER}}}, Hostname)")


def _query_variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "includeAll": True,
        "allValue": ".*",  # also what has no such label
        "multi": False,
        "current": {"text": "All", "value": "$__all"},
        "sort": 1,
        "hide": 0,
        "regex": "",
    }


def _panels(one: Dashboard) -> Iterator[dict[str, Any]]:
    number, y = 0, 0
    for group in one.rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": group.title,
            "collapsed": False,
            "gridPos": _at(0, y, _WIDTH, 1),
            "panels": [],
        }
        x, y, tallest = 0, y + 1, 0
        for panel in group.panels:
            height = _HEIGHT[panel.type]
            if x + panel.w > _WIDTH:
                x, y, tallest = 0, y + tallest, 0
            number += 1
            yield _panel(panel, number, _at(x, y, panel.w, height))
            x, tallest = x + panel.w, max(tallest, height)
        y += tallest


def _at(x: int, y: int, w: int, h: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": w, "h": h}


def _panel(panel: Panel, number: int, at: dict[str, int]) -> dict[str, Any]:
    shown = panel.about + (
        f"{'. ' if panel.about else ''}Only with {panel.only_with}." if panel.only_with else ""
    )
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red is not None:
        steps.append({"color": "red", "value": panel.red})
    defaults = {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}}
    return {
        "id": number,
        "type": panel.type,
        "title": panel.title,
        "description": shown,
        "datasource": _SOURCE,
        "gridPos": at,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel),
        "targets": [
            {
                "refId": chr(ord("A") + n),
                "datasource": _SOURCE,
                "expr": expr,
                "legendFormat": legend or "__auto",
                "instant": panel.type != "timeseries",
                "range": panel.type == "timeseries",
                **({"format": "table"} if panel.type == "table" else {}),
            }
            for n, (legend, expr) in enumerate(panel.expressions())
        ],
    }


def _options(panel: Panel) -> dict[str, Any]:
    if panel.type == "stat":
        reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
        return {
            "reduceOptions": reduce,
            "colorMode": "value",
            "graphMode": "none",
            "textMode": panel.text or "auto",
        }
    if panel.type == "table":
        return {"showHeader": True}
    return {
        "legend": {"displayMode": "list", "placement": "bottom"},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
