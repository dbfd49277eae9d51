"""All probes at once: each is bounded, nothing that fails hides another, and the exit code says what kind of trouble there is."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from faultline.checks.connect import connected
from faultline.checks.finding import CheckFinding, Level, worst_first
from faultline.cli.main import cli
from faultline.runtime.settings import Settings
from sandbox.fake_services.server import InjectedFault
from sandbox.fake_services.slack import SlackStandin
from tests.testbed.children import free_port


def nowhere() -> Any:
    return {"bootstrap": f"127.0.0.1:{free_port()}"}


def test_findings_are_ordered_by_how_bad_they_are_and_each_is_there_once() -> None:
    levels: tuple[Level, ...] = ("warning", "unreachable", "fault", "warning")
    rows = [CheckFinding(level, "w", "x", "") for level in levels]
    assert [one.level for one in worst_first(rows)] == ["fault", "unreachable", "warning"]


async def test_what_does_not_answer_is_unreachable_and_hides_nothing_else() -> None:
    async with SlackStandin() as slack:
        section: Any = {"token": "xoxb-wrong", "channel": "C0INCIDENTS", "base_url": slack.base_url}
        told = await asyncio.to_thread(
            connected, Settings(kafka=nowhere(), slack=section), ("chat",), only=("slack", "kafka")
        )
    assert [(finding.level, finding.where) for finding in told] == [
        ("fault", "slack.token"),
        ("unreachable", "kafka"),
    ]
    assert all(finding.remedy and finding.command for finding in told)


async def test_a_probe_that_is_never_answered_ends_in_its_time() -> None:
    async with SlackStandin() as slack:
        slack.fail(InjectedFault("auth.test", "hang"))
        section: Any = {"token": slack.token, "channel": "C0INCIDENTS", "base_url": slack.base_url}
        async with asyncio.timeout(60):
            told = await asyncio.to_thread(
                connected, Settings(kafka=nowhere(), slack=section), ("chat",), within_s=0.2
            )
    assert {finding.level for finding in told} == {"unreachable"}
    assert "slack" in {finding.where for finding in told}


@pytest.mark.parametrize(
    ("sections", "code"),
    [
        ({}, 3),
        ({"correlator": {"retention_minutes": 1, "node_settle_s": 60}}, 2),
    ],
    ids=["nobody answers", "files that contradict each other count before that"],
)
def test_the_exit_code_tells_what_kind_of_trouble_there_is(
    tmp_path: Path, sections: dict[str, Any], code: int
) -> None:
    file = tmp_path / "faultline.yaml"
    file.write_text(yaml.safe_dump({"kafka": nowhere(), **sections}))
    arguments = ["--config", str(file), "doctor", "--process", "detector", "-o", "json"]
    ran = CliRunner().invoke(cli, arguments)
    assert ran.exit_code == code
    records = [json.loads(line) for line in ran.stdout.splitlines()]
    assert {"record", "where", "what", "do", "run"} == records[0].keys()
    assert any(one["record"] == "unreachable" for one in records)
