"""What a person sees on a terminal: tables that fit, a pager for what is long, colours unless they are unwelcome."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from rich.cells import cell_len

ROOT = Path(__file__).parents[3]
PROGRAM = (sys.executable, "-m", "faultline")
EXAMPLE = "docs/examples/gpu-off-bus"
SEEN = "sed s/^/seen:/"
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(*arguments: str, columns: int = 80, lines: int = 500, **environment: str) -> str:
    """What a command writes to a terminal of this size."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR", "PAGER", "LESS")}
    with subprocess.Popen(
        [*PROGRAM, *arguments], stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, cwd=ROOT,
        env=kept | {"TERM": "xterm", "PAGER": SEEN} | environment,
    ) as running:  # fmt: skip
        os.close(theirs)
        written = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # Linux says so when nobody holds the other end any more
                break
            written += piece
    os.close(ours)
    assert running.returncode == 0, written
    return written.decode().replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
@pytest.mark.parametrize(
    "command", [("replay", EXAMPLE), ("jobs", "--ended", "--capture", EXAMPLE)], ids=["replay", "jobs"]
)
def test_a_table_fits_the_terminal(command: tuple[str, ...], columns: int) -> None:
    printed = _CODES.sub("", on_terminal(*command, columns=columns))
    table = printed.split("\n\n")[0]
    assert len(table.splitlines()) > 1
    assert [line for line in table.splitlines() if cell_len(line) > columns] == []


def test_what_is_longer_than_the_terminal_goes_to_the_pager_and_nothing_else_does() -> None:
    long = ("runbook", "plan", "gpu_off_bus")
    assert on_terminal(*long, lines=20).startswith("seen:")
    assert "seen:" not in on_terminal(*long, lines=500)
    assert "seen:" not in on_terminal(*long, "--no-pager", lines=20)
    assert "seen:" not in on_terminal(*long, lines=20, TERM="dumb")


def test_a_terminal_has_colours_unless_somebody_does_not_want_them() -> None:
    command = ("capacity", "--capture", EXAMPLE)
    assert "\x1b[1m" in on_terminal(*command)
    assert "\x1b" not in on_terminal(*command, NO_COLOR="1")
    assert "\x1b" not in on_terminal(*command, "--color", "never")


def test_what_is_piped_is_plain_and_unpaged_unless_colours_are_asked_for() -> None:
    def piped(*more: str) -> str:
        command = [*PROGRAM, "capacity", "--capture", EXAMPLE, *more]
        environment = os.environ | {"PAGER": SEEN, "LINES": "2"}
        return subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment
        ).stdout

    assert "\x1b" not in piped()
    assert "seen:" not in piped()
    assert "\x1b[1m" in piped("--color=always")
