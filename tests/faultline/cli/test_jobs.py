"""`faultline jobs`, of a capture."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from faultline.cli.main import cli
from tests.faultline.cli.test_capacity import capture


def test_what_runs_is_listed_with_what_could_be_done_for_it(tmp_path: Path) -> None:
    said = CliRunner().invoke(cli, ["jobs", "--capture", str(capture(tmp_path))])
    assert said.exit_code == 0, said.output
    (line,) = [line for line in said.output.splitlines() if line.startswith("team-a/train")]
    assert "PyTorchJob" in line
    assert "suspended, and resumed elsewhere" in line
    assert all(len(line) <= 200 for line in said.output.splitlines())


def test_it_is_told_as_json_too_and_narrowed_to_a_namespace(tmp_path: Path) -> None:
    folder = str(capture(tmp_path))
    said = CliRunner().invoke(cli, ["jobs", "--capture", folder, "-o", "json"])
    (record,) = [json.loads(line) for line in said.output.splitlines()]
    assert (record["record"], record["kind"], record["lever"]) == ("job", "PyTorchJob", "suspend")
    assert (record["nodes"], record["last_progress"]) == (["gpu-01"], None)
    none = CliRunner().invoke(cli, ["jobs", "--capture", folder, "-n", "nobody"])
    assert none.output == "nothing runs that holds GPUs or trains\n"


def test_the_capture_that_ships_has_gpus_and_a_job_that_can_be_moved() -> None:
    example = str(Path(__file__).parents[3] / "docs/examples/gpu-off-bus")
    capacity = CliRunner().invoke(cli, ["capacity", "--capture", example, "-o", "json"])
    pools = [json.loads(line) for line in capacity.stdout.splitlines()]
    assert [(pool["nodes"], pool["gpus"], pool["used"], pool["lost"]) for pool in pools] == [(12, 96, 32, 0)]
    jobs = CliRunner().invoke(cli, ["jobs", "--capture", example, "-o", "json"])
    (job,) = [json.loads(line) for line in jobs.stdout.splitlines()]
    assert (job["name"], job["state"], job["can"]) == ("llm", "running", "suspended, and resumed elsewhere")
