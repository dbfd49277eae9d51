"""Every kept capture gives the results that are kept beside it. How to accept a difference that is meant: `docs/replay.md`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from faultline.cli.main import cli

CAPTURES = Path(__file__).parent
KEPT = sorted(path.parent.name for path in CAPTURES.glob("*/expected.json"))


def replayed(*arguments: str | Path, **settings: str) -> Result:
    return CliRunner().invoke(cli, ["replay", *map(str, arguments)], env=settings)


@pytest.mark.parametrize("name", KEPT)
def test_a_kept_capture_is_decided_as_it_was(name: str) -> None:
    result = replayed("--assert-same", CAPTURES / name)
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"


def test_different_kinds_of_faults_and_a_quiet_day_are_kept() -> None:
    assert len(KEPT) >= 8
    assert {"gpu-off-bus", "pfc-storm-port", "storage-nfs", "quiet-day"} <= set(KEPT)


def test_another_threshold_is_told_as_text_with_the_reasons_of_both_sides() -> None:
    result = replayed(
        "--assert-same", CAPTURES / "gpu-off-bus", FAULTLINE_RESPONDER__BLAST_RADIUS__MAX_NODES="1"
    )
    assert result.exit_code == 1
    assert "cordon_node Node" in result.output
    assert "would → needs_approval" in result.output
    assert "now because: blast radius: 1 of 32 nodes are cordoned" in result.output
    assert "--record" in result.output


def test_an_accepted_difference_is_the_new_result(tmp_path: Path) -> None:
    mine = tmp_path / "gpu-off-bus"
    shutil.copytree(CAPTURES / "gpu-off-bus", mine)
    other = {"FAULTLINE_RESPONDER__BLAST_RADIUS__MAX_NODES": "1"}
    assert replayed("--assert-same", mine, "--record", **other).exit_code == 0
    assert replayed("--assert-same", mine, **other).exit_code == 0
    assert replayed("--assert-same", mine).exit_code == 1


def test_the_same_results_are_written_as_the_same_bytes(tmp_path: Path) -> None:
    kept = CAPTURES / "gpu-off-bus"
    written = tmp_path / "expected.json"
    assert replayed(kept, "--assert-same", written, "--record").exit_code == 0
    assert written.read_bytes() == (kept / "expected.json").read_bytes()


def test_a_folder_without_kept_results_is_an_error_and_not_a_success(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["replay", "--assert-same", str(tmp_path)])
    assert result.exit_code != 0
    assert "no expected.json" in str(result.exception)
