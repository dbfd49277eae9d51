"""`faultline digest` on the command line, from a capture."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from faultline.cli.commands.digest import command

CAPTURE = str(Path(__file__).parents[3] / "docs/examples/gpu-off-bus")


def digest(*arguments: str) -> Result:
    return CliRunner().invoke(command, [*arguments, "--capture", CAPTURE], obj=None, catch_exceptions=False)


def test_a_capture_is_reported_whole() -> None:
    told = json.loads(digest("--format", "json").output)
    assert told["cluster"] == "west"
    assert told["opened"] == {"value": 1, "incidents": ["inc-f4d032989b073d92"]}
    assert told["gpu_hours_lost"]["value"] > 9


def test_the_page_goes_to_a_file(tmp_path: Path) -> None:
    out = tmp_path / "week.html"
    assert digest("--out", str(out)).exit_code == 0
    assert "<h1>Incidents on west</h1>" in out.read_text(encoding="utf-8")
