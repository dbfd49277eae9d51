"""What a command ends with, as a shell sees it: the codes of `faultline --help`, no traceback, no noise."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from faultline.cli.main import EXIT_CODES, cli
from tests.docs.checkout import checkout

ROOT = Path(__file__).parents[3]
PROGRAM = (sys.executable, "-m", "faultline")
NOBODY = {"FAULTLINE_KAFKA__BOOTSTRAP": "127.0.0.1:1"}


def ran(*arguments: str, folder: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True, text=True, timeout=120, check=False, cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
    )  # fmt: skip


CASES = {
    0: ("runbook", "diff", "shipped", "shipped"),
    1: ("runbook", "diff", "shipped", "mine"),
    2: ("runbook", "diff", "shipped", "no-such-folder"),
    3: ("topics", "diff"),
}


@pytest.mark.parametrize("code", CASES)
def test_every_exit_code_is_really_returned(code: int, tmp_path: Path) -> None:
    ended = ran(*CASES[code], folder=checkout(tmp_path), **NOBODY)
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr


def test_ctrl_c_ends_a_command_with_its_code_and_without_a_traceback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(60)
        environment = os.environ | {"FAULTLINE_KAFKA__BOOTSTRAP": f"127.0.0.1:{silent.getsockname()[1]}"}
        with subprocess.Popen(
            [*PROGRAM, "incidents"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment,
            # What a shell starts in the background ignores Ctrl-C, and its children would, too.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as running:  # fmt: skip
            broker, _ = silent.accept()  # so it is at work, and waits for an answer
            running.send_signal(signal.SIGINT)
            out, said = running.communicate(timeout=60)
            broker.close()
    assert running.returncode == 130
    assert out == ""
    assert said.strip() == ""


def test_every_code_is_in_the_help() -> None:
    assert set(EXIT_CODES) == {*CASES, 130}
    help_text = cli.get_help(cli.make_context("faultline", [], resilient_parsing=True))
    for code, what in EXIT_CODES.items():
        assert f"{code} " in help_text
        assert what in help_text


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    ended = subprocess.run(
        ["bash", "-c", 'set -o pipefail; "$@" | head -1', "-", *PROGRAM, "config", "check"],
        capture_output=True, text=True, timeout=120, check=False, cwd=ROOT,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("setting")


def test_wrong_usage_names_the_help_of_the_command_that_was_meant() -> None:
    ended = ran("incidents", "approve")
    assert ended.returncode == 2
    assert "Try 'faultline incidents approve -h' for help." in ended.stderr
    assert "Missing argument 'INCIDENT_ID'" in ended.stderr
