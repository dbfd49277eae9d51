"""What a command loads before it does anything: a person waits for that, with every `--help` and every small command."""

import subprocess
import sys

import pytest

from faultline.cli.main import COMMANDS

HEAVY = (
    "aiokafka",
    "celpy",
    "connectors",
    "faust",
    "faultline.chat",
    "faultline.replay",
    "faultline.runtime.settings",
    "lark",
    "pydantic_settings",
    "re2",
    "runbooks.language",
    "sandbox",
    "streams.config",
    "streams.correlate",
    "streams.detect",
    "streams.kafka",
    "structlog",
    "yaml",
)
"""Modules that take tens of milliseconds each."""

PROGRAM = """
import sys
from faultline.cli.main import cli
try:
    cli(sys.argv[1:])
finally:
    print(*sys.modules, file=sys.stderr)
"""


def loaded(*arguments: str) -> set[str]:
    """The heavy modules that a command line loads."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    modules = ran.stderr.split()
    assert "click" in modules, ran.stderr
    return {heavy for heavy in HEAVY if any(m == heavy or m.startswith(f"{heavy}.") for m in modules)}


@pytest.mark.parametrize("command", ["", *sorted(COMMANDS)])
def test_help_loads_nothing_that_only_the_command_needs(command: str) -> None:
    assert loaded(*filter(None, [command]), "--help") == set()
