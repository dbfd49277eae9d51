"""What settings and files contradict in each other: each is found, and what is right is left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from faultline.checks.contradictions import configured_actions, contradictions
from faultline.cli.main import cli
from faultline.runtime.settings import Settings, load
from streams.model.errors import ConfigError

SLACK = {"token": "xoxb-1", "channel": "C0INCIDENTS", "app_token": "xapp-1"}
JIRA = {"base_url": "https://site.example.test", "user": "me@example.test", "token": "t"}


def settings(tmp_path: Path, **sections: Any) -> Settings:
    file = tmp_path / "faultline.yaml"
    file.write_text(yaml.safe_dump(sections))
    return load(file)


def found(tmp_path: Path, **sections: Any) -> list[tuple[str, str]]:
    return [(one.level, one.where) for one in contradictions(settings(tmp_path, **sections))]


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"responder": {"mode": "auto"}, "jira": JIRA},
        {"responder": {"approval_groups": {"sre": ["ada", "oidc:sre"]}}},
        {"responder": {"approval_groups": {"sre": ["slack:S0123"]}}, "slack": SLACK},
        {"correlator": {"node_settle_s": 60}},
    ],
    ids=["defaults", "acting", "a person and a group", "a group of Slack with Slack", "a short wait"],
)  # fmt: skip
def test_what_goes_together_is_left_alone(tmp_path: Path, sections: dict[str, Any]) -> None:
    assert found(tmp_path, **sections) == []


@pytest.mark.parametrize(
    ("sections", "finding"),
    [
        (
            {"responder": {"approval_groups": {"sre": ["slack:S0123"]}}},
            ("fault", "responder.approval_groups.sre"),
        ),
        (
            {"responder": {"approval_groups": {"sre": ["oidc:sre", "oidc:night"]}}},
            ("fault", "responder.approval_groups.sre"),
        ),
        (
            {"slack": {"token": "xoxb-1", "channel": "C0INCIDENTS", "signing_secret": "s"}},
            ("fault", "gateway.port"),
        ),
        ({"slack": {"channel": "C0INCIDENTS"}}, ("warning", "slack.token")),
        (
            {"notifier": {"sinks": {"page": {"kind": "pagerduty", "key": "k"}}}},
            ("warning", "notifier.sinks.page.api_token"),
        ),
        (
            {"responder": {"breaker": {"failures_window_s": 2_600_000}}},
            ("warning", "responder.breaker.failures_window_s"),
        ),
        (
            {"correlator": {"retention_minutes": 1, "node_settle_s": 60}},
            ("fault", "correlator.node_settle_s"),
        ),
        (
            {"responder": {"rollout": [{"pool": "h100", "stage": "act"}]}},
            ("warning", "responder.mode"),
        ),
        ({"responder": {"mode": "auto"}}, ("warning", "tickets.system (jira)")),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else "",
)  # fmt: skip
def test_a_contradiction_is_found_with_its_place(
    tmp_path: Path, sections: dict[str, Any], finding: tuple[str, str]
) -> None:
    assert finding in found(tmp_path, **sections)


RUNBOOK = """
id: own-reset
revision: 1
owner: gpu-platform
description: Resets the GPU of the node that the incident names, and nothing else, on request.
match: incident.family == 'gpu_fault' && incident.root.node != ''
priority: 900
mode: approve
steps:
  - {id: close, action: cordon_node, target: root_node}
  - {id: reset, action: reset_gpu, target: root_node, needs: [close]}
"""


def test_a_runbook_whose_node_work_is_not_configured_is_named_with_its_line(tmp_path: Path) -> None:
    books = tmp_path / "books"
    books.mkdir()
    (books / "own.yaml").write_text(RUNBOOK)
    told = contradictions(settings(tmp_path, responder={"runbook_dirs": [str(books)]}))
    (finding,) = told
    assert (finding.level, finding.where) == ("warning", f"{books}/own.yaml:11:5")
    assert "reset_gpu" in finding.what
    assert "node_work.reset_gpu" in finding.remedy
    template = tmp_path / "reset.yaml"
    template.write_text("{}")
    configured = settings(
        tmp_path, responder={"runbook_dirs": [str(books)]}, node_work={"reset_gpu": str(template)}
    )
    assert "reset_gpu" in configured_actions(configured)
    assert contradictions(configured) == []


def test_a_contradiction_is_an_invalid_file_and_a_warning_is_not(tmp_path: Path) -> None:
    file = tmp_path / "faultline.yaml"
    file.write_text("correlator: {retention_minutes: 1, node_settle_s: 60}\n")
    refused = CliRunner().invoke(cli, ["--config", str(file), "config", "check"])
    assert "correlator.node_settle_s" in str(refused.exception)
    file.write_text("slack: {channel: C0INCIDENTS}\n")
    warned = CliRunner().invoke(cli, ["--config", str(file), "config", "check"])
    assert warned.exit_code == 0
    assert "faultline: warning: slack.token" in warned.stderr


def test_faults_of_settings_and_of_every_file_are_told_together_in_every_format(tmp_path: Path) -> None:
    books, missing, file = tmp_path / "books", tmp_path / "nothere", tmp_path / "faultline.yaml"
    books.mkdir()
    (books / "empty.yaml").write_text("")
    (books / "list.yaml").write_text("- one\n")
    file.write_text(
        f"clster: west\nresponder:\n  mode: atuo\n  runbook_dirs: ['{books}', '{missing}']\n"
        f"inventory: {{lldp_folder: {tmp_path}/lldp}}\n"
    )
    told = (
        f"{file}:1: clster: there is no such setting; did you mean cluster?",
        f"{file}:3: responder.mode: 'atuo' is none of shadow, approve, auto; did you mean auto?",
        f"{books}/empty.yaml:1:1: the top level must be a mapping of keys",
        f"{books}/list.yaml:1:1: the top level must be a mapping of keys",
        f"responder.runbook_dirs: {missing} is not a directory; make it, or take it out of the list",
        f"inventory.lldp_folder: {tmp_path}/lldp is not a directory; make it, or take the key out",
    )
    for_people = CliRunner().invoke(cli, ["--config", str(file), "config", "check"])
    assert isinstance(for_people.exception, ConfigError)
    for line in told:
        assert line in str(for_people.exception)
    for_programs = CliRunner().invoke(cli, ["--config", str(file), "config", "check", "-o", "json"])
    assert for_programs.exit_code == 2
    found = [json.loads(line) for line in for_programs.stdout.splitlines()]
    shown = [f"{one['where']}: {one['what']}; {one['do']}" for one in found if one["record"] == "fault"]
    assert len(shown) == len(told)
    for line in told:
        assert any(one.startswith(line) for one in shown)
