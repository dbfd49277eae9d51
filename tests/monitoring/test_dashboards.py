"""The dashboards as Grafana takes them: what its importer and its panels ask of a file. No Grafana runs here.

The rules are those of Grafana's dashboard schema (schemaVersion 39) that a file can break without being invalid JSON.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from k8s.monitoring.panels import ALL, NAMES
from k8s.monitoring.render import HERE

UNITS = {"none", "s", "cps", "percent", "percentunit", "bytes", "celsius", "watt"}
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
OWN = {"__rate_interval", "__all"}


def load(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((HERE / "dashboards" / f"faultline-{name}.json").read_text())
    return document


@pytest.mark.parametrize("name", NAMES)
def test_it_has_a_fixed_uid_and_no_id_of_one_grafana(name: str) -> None:
    found = load(name)
    assert found["uid"] == f"faultline-{name}"
    assert "id" not in found
    assert len(found["uid"]) <= 40
    assert "faultline" in found["tags"]


@pytest.mark.parametrize("name", NAMES)
def test_datasource_and_cluster_are_variables_and_every_variable_is_declared(name: str) -> None:
    found = load(name)
    declared = {one["name"]: one for one in found["templating"]["list"]}
    assert declared["datasource"]["type"] == "datasource"
    assert declared["cluster"]["allValue"] == ".*"
    sources = [panel["datasource"] for panel in panels(name)]
    sources += [target["datasource"] for panel in panels(name) for target in panel["targets"]]
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)
    texts = json.dumps([panel["targets"] for panel in panels(name)]) + json.dumps(found["templating"])
    used = {a or b for a, b in VARIABLE.findall(texts)}
    assert used - OWN == set(declared)


@pytest.mark.parametrize("name", NAMES)
def test_panels_have_ids_of_their_own_and_do_not_overlap(name: str) -> None:
    found = load(name)["panels"]
    assert len({panel["id"] for panel in found}) == len(found)
    covered: set[tuple[int, int]] = set()
    for panel in found:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not covered & cells, panel["title"]
        covered |= cells


@pytest.mark.parametrize("name", NAMES)
def test_every_panel_has_a_type_a_unit_and_queries_that_tell_each_other_apart(name: str) -> None:
    for panel in panels(name):
        assert panel["type"] in {"stat", "table", "timeseries"}
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        steps = [step["value"] for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]]
        assert steps[0] is None  # the base of all thresholds
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0
        for target in panel["targets"]:
            assert target["instant"] != target["range"]
            legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert all(label in target["expr"] or "topk(" in target["expr"] for label in legend), panel[
                "title"
            ]


def test_titles_are_not_used_twice_on_one_dashboard() -> None:
    for one in ALL.values():
        titles = [panel.title for group in one.rows for panel in group.panels]
        assert len(set(titles)) == len(titles)


def panels(name: str) -> list[dict[str, Any]]:
    return [panel for panel in load(name)["panels"] if panel["type"] != "row"]
