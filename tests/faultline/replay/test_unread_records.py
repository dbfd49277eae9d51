"""A record that nobody can read is left out of a replay, as production does it: counted, and named on stderr."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from faultline.cli.main import cli
from faultline.replay.capture import read

EXAMPLE = Path("docs/examples/gpu-off-bus")


def replayed(directory: Path) -> tuple[list[str], str]:
    asked = CliRunner().invoke(cli, ["replay", str(directory)])
    assert asked.exit_code == 0, asked.output
    return asked.stdout.splitlines(), asked.stderr


def with_lines(tmp_path: Path, topic: str, values: list[str]) -> Path:
    directory = tmp_path / "capture"
    shutil.copytree(EXAMPLE, directory)
    time = int(read(directory).meta.begin.timestamp() * 1000)
    file = directory / f"{topic}.jsonl"
    rows = [
        {
            "partition": 0,
            "offset": 900 + number,
            "timestamp": time,
            "key": "gpu-cluster/node/n1",
            "value": value,
        }
        for number, value in enumerate(values)
    ]
    with file.open("a", encoding="utf-8") as out:
        out.writelines(json.dumps(row) + "\n" for row in rows)
    return directory


@pytest.mark.parametrize("topic", ["commands", "controls", "runs"])
def test_an_unreadable_record_is_a_dead_letter_and_changes_no_decision(tmp_path: Path, topic: str) -> None:
    before, _ = replayed(EXAMPLE)
    directory = with_lines(tmp_path, topic, ["{"])
    after, said = replayed(directory)
    assert after[-1] == before[-1], "the decision hash"
    assert "1 dead letter" in after[-2]
    assert f"{directory / topic}.jsonl:1: " in said


def test_the_first_three_are_named_and_the_others_counted(tmp_path: Path) -> None:
    directory = with_lines(tmp_path, "commands", ["{"] * 5)
    after, said = replayed(directory)
    assert "5 dead letters" in after[-2]
    assert said.count("commands.jsonl:") == 3
    assert "2 more, 5 records in all" in said
