"""The files that ship are those that the tables say, the same for Prometheus and for its operator, with commands that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from faultline.cli.main import cli
from k8s.monitoring.render import HERE, files
from k8s.monitoring.rows import PACK

FILES = dict(files())
NAMES = ("slo", "own", *PACK)
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load(path: Path) -> Any:
    return yaml.load(path.read_text(), Loader=_LOADER)


def rules(name: str) -> list[dict[str, Any]]:
    return [rule for group in load(HERE / "rules" / f"{name}.yaml")["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_is_what_its_table_says(path: Path) -> None:
    assert path.read_text() == FILES[path], "python -m k8s.monitoring.render"


def test_no_other_file_lies_beside_them() -> None:
    written = set(FILES)
    folders = {path.parent for path in written}
    assert {path for folder in folders for path in folder.iterdir()} == written


@pytest.mark.parametrize("name", NAMES)
def test_prometheus_and_its_operator_take_the_same_rules(name: str) -> None:
    plain, custom = load(HERE / "rules" / f"{name}.yaml"), load(HERE / "prometheus-rules" / f"{name}.yaml")
    assert (custom["apiVersion"], custom["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert custom["spec"] == plain


@pytest.mark.parametrize("name", NAMES)
def test_every_alert_says_what_to_do_and_names_a_command_that_there_is(name: str) -> None:
    for rule in (rule for rule in rules(name) if "alert" in rule):
        said = rule["annotations"]
        assert set(said) == {"summary", "description", "command", "runbook_url"}, rule["alert"]
        assert "$where" not in said["summary"] + rule["expr"], rule["alert"]
        program, *words = shlex.split(said["command"].replace("{{ $labels.", "").replace(" }}", ""))
        assert program == "faultline"
        assert parses(cli, words), said["command"]


def parses(command: click.Command, words: list[str]) -> bool:
    """Whether click takes these words, without running anything."""
    context = command.make_context("faultline", list(words), resilient_parsing=False)
    while isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        if not rest:
            return command.invoke_without_command
        name, found, words = command.resolve_command(context, rest)
        if found is None:
            return False
        command, context = found, found.make_context(name, list(words), parent=context)
    return True


def test_kustomize_is_given_every_rule_and_dashboard() -> None:
    found = load(HERE / "kustomization.yaml")
    dashboards = [name for one in found["configMapGenerator"] for name in one["files"]]
    assert {HERE / name for name in (*found["resources"], *dashboards)} == {
        path for path in FILES if path.parent.name != "rules"
    }
    assert found["generatorOptions"]["labels"]["grafana_dashboard"] == "1"


def test_every_runbook_url_is_a_heading_of_the_page_and_every_own_alert_is_told_of_there() -> None:
    page = (HERE.parents[1] / "docs" / "monitoring.md").read_text()
    anchors = {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", page, re.M)
    }
    for name in NAMES:
        for rule in (rule for rule in rules(name) if "alert" in rule):
            address, _, anchor = rule["annotations"]["runbook_url"].partition("#")
            assert address.endswith("/docs/monitoring.md")
            assert anchor in anchors, rule["alert"]
    told = [rule["alert"] for rule in rules("own")]
    assert [name for name in told if name not in page] == []
