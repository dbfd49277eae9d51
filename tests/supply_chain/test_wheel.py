"""A wheel can be built again by whoever doubts it: the same commit and SOURCE_DATE_EPOCH give the same bytes."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.supply_chain.packages import ROOT

PARTS = ("faultline", "streams", "runbooks", "connectors")


def built(source: Path, umask: int, epoch: int) -> str:
    """The digest of a wheel built from a copy of the sources under another umask."""
    source.mkdir()
    for part in PARTS:
        shutil.copytree(ROOT / part, source / part, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    subprocess.run([*command, "-w", "out", "."], cwd=source, umask=umask, env=environment, check=True)
    (wheel,) = (source / "out").glob("*.whl")
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


@pytest.mark.nightly
def test_two_builds_of_one_commit_are_the_same_bytes(tmp_path: Path) -> None:
    first = built(tmp_path / "first", 0o022, 1_700_000_000)
    assert built(tmp_path / "second", 0o077, 1_700_000_000) == first
    assert built(tmp_path / "later", 0o022, 1_800_000_000) != first
