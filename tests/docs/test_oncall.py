"""Every alert about Faultline itself is found by its name on the page for whoever is on call, and every command there is one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from faultline.cli.main import cli

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "oncall.md").read_text()
RULES = [ROOT / "k8s" / "monitoring" / "rules" / name for name in ("own.yaml", "slo.yaml")]


def own_alerts() -> list[str]:
    found = [
        rule["alert"]
        for path in RULES
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    return sorted(set(found))


@pytest.mark.parametrize("alert", own_alerts())
def test_every_alert_of_ours_is_on_the_page(alert: str) -> None:
    assert re.search(rf"\b{alert}\b", PAGE)


def test_no_alert_on_the_page_is_invented() -> None:
    assert set(re.findall(r"\bFaultline[A-Z]\w+", PAGE)) <= set(own_alerts())


@pytest.mark.parametrize("line", sorted(set(re.findall(r"`faultline ([a-z][a-z -]*?)(?= [A-Z\"-]|`)", PAGE))))
def test_every_command_on_the_page_is_one(line: str) -> None:
    result = CliRunner().invoke(cli, [*line.split(), "--help"])
    assert result.exit_code == 0, line
