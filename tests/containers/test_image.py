"""The image by itself: complete, and content with a user of no name, no home and nothing that it may write to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from faultline.cli.main import COMMANDS, NEEDS_SANDBOX
from tests.testbed.engine import Engine, EngineFailed
from tests.testbed.images import FAULTLINE, ROOT

pytestmark = [pytest.mark.containers, pytest.mark.timeout(1200)]

PACKAGES = ("faultline", "streams", "runbooks", "connectors")
CONFINED = ("--read-only", "--read-only-tmpfs=false", "--cap-drop=ALL", "--security-opt=no-new-privileges")
LINE = "Mar  3 03:04:12 gpu-03 kernel: NVRM: Xid (PCI:0000:9d:00): 79, pid=8812, name=python, GPU has fallen off the bus."
LIST_FILES = f"""
import json, pathlib, sysconfig
top = pathlib.Path(sysconfig.get_path("purelib"))
files = [f for name in {(*PACKAGES, "sandbox", "tests")} for f in (top / name).rglob("*") if f.is_file()]
print(json.dumps([str(f.relative_to(top)) for f in files]))
"""


def confined(engine: Engine, *arguments: str, stdin: str | None = None, entrypoint: str = "") -> str:
    """What a container prints that may do as little as the manifests allow, without a network."""
    other = [f"--entrypoint={entrypoint}"] if entrypoint else []
    options = ["--rm", "--network=none", "--interactive", *CONFINED, *other]
    return engine.podman("run", *options, FAULTLINE, *arguments, stdin=stdin)


def source_files() -> set[str]:
    found = (file for name in PACKAGES for file in (ROOT / name).rglob("*") if file.is_file())
    return {str(file.relative_to(ROOT)) for file in found if "__pycache__" not in file.parts}


def test_the_image_has_every_file_of_the_packages(engine: Engine) -> None:
    there = json.loads(confined(engine, "-c", LIST_FILES, entrypoint="python"))
    assert {name for name in there if "__pycache__" not in Path(name).parts} == source_files()


def test_it_runs_as_the_user_that_the_manifests_ask_for(engine: Engine) -> None:
    (image,) = json.loads(engine.podman("image", "inspect", FAULTLINE))
    assert image["Config"]["User"] == "10001:10001"
    assert confined(
        engine, "-c", "import os; print(os.getuid(), os.getcwd())", entrypoint="python"
    ).split() == [
        "10001",
        "/",
    ]


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - NEEDS_SANDBOX.keys()))
def test_every_command_explains_itself(engine: Engine, name: str) -> None:
    assert confined(engine, name, "--help").startswith(f"Usage: faultline {name} ")


@pytest.mark.parametrize("name", NEEDS_SANDBOX)
def test_a_command_of_the_sandbox_says_what_the_image_leaves_out(engine: Engine, name: str) -> None:
    with pytest.raises(EngineFailed, match="needs the package 'sandbox', which this installation leaves out"):
        confined(engine, name)


def test_lines_are_read_with_the_whole_catalog(engine: Engine) -> None:
    (told,) = confined(engine, "detect", stdin=LINE + "\n").splitlines()
    assert json.loads(told)["attributes"]["mnemonic"] == "GPU_HAS_FALLEN_OFF_THE_BUS"


def test_the_runbooks_that_ship_are_there_and_pass_their_cases(engine: Engine) -> None:
    confined(engine, "runbook", "lint")
    last = confined(engine, "runbook", "test").splitlines()[-1]
    assert last.endswith(" cases, 0 failed")
    assert not last.startswith("0 ")
