"""A checkout as a reader has it beside the page, in a folder of its own; and a shell that runs blocks in it."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
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
SAYS_NO = re.compile(r"faultline (runbook diff|topics diff|whatif|capture \S+ --incident|dead-letters retry)")
"""Commands whose exit code 1 is an answer."""

AT_TERMINAL = re.compile(r"faultline runbook replay \S+ --step")
"""Commands that wait for keys, and refuse where there is no terminal."""
KEY_AFTER_S = 0.2
"""How long whoever sits there watches before the next key."""

TIMEOUT_S = 300.0
"""How long a block may take: a hang, not a busy machine."""

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
    call = ["bash", "--norc", "-c", _RUN + block.text.replace("/var/log/", "./")]
    env = own | environment | {"PATH": programs(folder), "PYTHONPATH": str(ROOT), "FAILED": str(failed)}
    in_shell = _with_keys if AT_TERMINAL.search(block.text) else _with_answers
    ended = in_shell(call, folder, env)
    for line in failed.read_text().splitlines():
        code, _, command = line.partition(" ")
        is_answer = code == "1" and SAYS_NO.match(command)
        assert is_answer, (
            f"{block.place}: exit code {code} of: {command}\n{ended.stderr}\n{ended.stdout[-2000:]}"
        )
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.stdout


def _with_answers(
    call: Sequence[str], folder: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a shell in which every question is answered by yes."""
    return subprocess.run(
        call, cwd=folder, env=env, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, input="y\n" * 20
    )  # fmt: skip


def _with_keys(call: Sequence[str], folder: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a shell at a terminal, at which somebody presses a key whenever nothing more is printed.

    A key is not sent with the prompt: a command that reads single keys drops what was typed before it asked.
    """
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            call, cwd=folder, env=env, text=True, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as running:
            os.close(theirs)
            deadline = time.monotonic() + TIMEOUT_S
            while time.monotonic() < deadline:
                try:
                    out, err = running.communicate(timeout=KEY_AFTER_S)
                except subprocess.TimeoutExpired:
                    os.write(ours, b"n")
                else:
                    return subprocess.CompletedProcess(call, running.returncode, out, err)
            running.kill()
            raise TimeoutError(f"not done after {TIMEOUT_S:g} s: {call[-1]}")
    finally:
        os.close(ours)


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
