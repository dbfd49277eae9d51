"""Findings on a terminal: the commands are there to be pasted."""

from __future__ import annotations

import pytest

from faultline.checks.finding import CheckFinding
from faultline.cli.commands.config import show_findings

COMMAND = (
    'kafka-acls.sh --bootstrap-server kafka-bootstrap.kafka:9092 --command-config "$ADMIN" --add '
    "--allow-principal User:faultline-responder --operation Write --topic gpu-east-1.incidents"
)


def test_a_command_is_one_line_however_narrow_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    lacks = CheckFinding(
        "fault", "topic gpu-east-1.incidents", "may not WRITE it", "give it that right", COMMAND
    )
    show_findings([lacks, CheckFinding("note", "mode", "shadow", "nothing")], "table")
    lines = capsys.readouterr().out.splitlines()
    assert f"  {COMMAND}" in lines
    assert lines[lines.index(f"  {COMMAND}") - 1] == "  # topic gpu-east-1.incidents"
    assert sum("kafka-acls.sh" in line for line in lines) == 1
