"""`faultline report` on the command line: formats, files and exit codes, from a capture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from faultline.cli.commands.report import command
from streams.model.errors import BadInput

CAPTURE = str(Path(__file__).parents[3] / "docs/examples/gpu-off-bus")
INCIDENT = "inc-f4d032989b073d92"


def report(*arguments: str) -> Result:
    return CliRunner().invoke(command, [*arguments, "--capture", CAPTURE], obj=None, catch_exceptions=False)


def test_markdown_goes_to_stdout_and_a_prefix_is_enough() -> None:
    made = report("f4d0")
    assert made.exit_code == 0
    assert made.output.startswith("# GPU fell off the bus on gpu-03\n")
    assert INCIDENT in made.output


@pytest.mark.parametrize(
    ("name", "begins"), [("r.html", "<!doctype html>"), ("r.json", "{"), ("r.txt", "# GPU")]
)
def test_the_name_of_the_file_chooses_the_format(tmp_path: Path, name: str, begins: str) -> None:
    made = report(INCIDENT, "--out", str(tmp_path / name))
    assert made.exit_code == 0
    assert (tmp_path / name).read_text(encoding="utf-8").startswith(begins)
    assert [path.name for path in tmp_path.iterdir()] == [name], "no temporary file is left"


def test_an_option_goes_before_the_name_of_the_file(tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    report(INCIDENT, "--out", str(out), "--format", "json")
    assert json.loads(out.read_text(encoding="utf-8"))["incident"] == INCIDENT


def test_a_report_of_another_time_is_as_of_it() -> None:
    made = report(INCIDENT, "--format", "json", "--at", "2026-03-03T04:04:12Z")
    assert json.loads(made.output)["cost"]["without_progress_s"] == 3600.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("inc-0000",), "no incident inc-0000"),
        ((INCIDENT, "--out", "/nowhere/at/all.md"), "/nowhere/at/all.md: No such file"),
        ((INCIDENT, "--at", "yesterday"), "not an RFC 3339 time"),
    ],
)
def test_what_cannot_be_done_is_said(arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        report(*arguments)
