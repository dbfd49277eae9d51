"""A checkout as a reader has it beside the page, in a folder of its own; and a shell that runs blocks in it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT, Block

LINKED = (
    "bench",
    "docs",
    "tests",
    "k8s",
    "runbooks",
    "sandbox",
    "streams",
    "faultline",
    "Makefile",
    "docker-compose.yml",
    "requirements.lock",
)
EXAMPLE = ROOT / "docs/examples/gpu-off-bus"
SAYS_NO = re.compile(
    r"faultline (runbook diff|topics diff|whatif|capture \S+ --incident|dead-letters retry|guard reset)"
)
"""Commands whose exit code 1 is an answer."""

_RUN = """
set -o pipefail
trap 'code=$?; echo "$code $BASH_COMMAND" >> "$FAILED"' ERR
"""


def checkout(folder: Path) -> Path:
    """The checkout, with what pages say the reader has: own runbooks, captures, logs of a node, a settings file."""
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    for name in ("monday", "month", "friday"):
        shutil.copytree(EXAMPLE, folder / "captures" / name)
    runbook, cases, *_ = re.findall(
        r"^```yaml\n(.*?)^```$", (ROOT / "docs/runbooks.md").read_text(), re.MULTILINE | re.DOTALL
    )
    (folder / "mine").mkdir()
    (folder / "mine/our-xid-79.yaml").write_text(runbook)
    (folder / "mine/our-xid-79.cases.yaml").write_text(cases)
    (folder / "old.yaml").write_text(runbook)
    (folder / "new.yaml").write_text(
        runbook.replace("revision: 1 ", "revision: 2 ").replace("undo: true", "undo: false")
    )
    (folder / "kern.log").write_text(
        "Mar  3 03:04:12 gpu-03 kernel: NVRM: Xid (PCI:0000:9d:00): 79, pid=8812, GPU has fallen off the bus.\n"
    )
    (folder / "job.log").write_text("epoch 3\n")
    (folder / "responder.log").write_text("")
    (folder / "faultline.yaml").write_text("cluster: west\n")
    return folder


def run(block: Block, folder: Path, **environment: str) -> str:
    """Run a block in a shell of its own; what it printed on stdout.

    Raises:
        AssertionError: when a command ended with a code that is no success.
    """
    own = {key: value for key, value in os.environ.items() if not key.startswith("FAULTLINE_")}
    failed = folder / ".failed"
    failed.write_text("")
    ended = subprocess.run(
        ["bash", "--norc", "-c", _RUN + block.text.replace("/var/log/", "./")],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False, input="y\n" * 20,
        env=own | environment | {"PATH": programs(folder), "PYTHONPATH": str(ROOT), "FAILED": str(failed)},
    )  # fmt: skip
    for line in failed.read_text().splitlines():
        code, _, command = line.partition(" ")
        is_answer = code == "1" and SAYS_NO.match(command)
        assert is_answer, (
            f"{block.place}: exit code {code} of: {command}\n{ended.stderr}\n{ended.stdout[-2000:]}"
        )
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.stdout


def programs(folder: Path) -> str:
    """A search path of programs on which `faultline` is this one, and `journalctl` has something to tell."""
    own = folder / ".programs"
    own.mkdir(exist_ok=True)
    _program(own / "faultline", f'exec {sys.executable} -m faultline "$@"')
    _program(own / "journalctl", "cat kern.log")
    return f"{own}:{Path(sys.executable).parent}:{os.environ['PATH']}"


def _program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
