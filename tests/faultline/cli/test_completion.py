"""What a shell completes: commands and options without loading any, runbooks, and incidents where Kafka answers at once."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from faultline.cli import completion
from faultline.cli.main import COMMANDS, cli
from tests.docs.checkout import programs

SCRIPT = """
source <(faultline completion bash)
COMP_WORDS=($WORDS) COMP_CWORD=$CWORD
_faultline_completion faultline
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(folder: Path, *words: str, **environment: str) -> list[str]:
    """What bash would offer for the last of the words, by the script that the command prints."""
    done = subprocess.run(
        ["bash", "--norc", "-c", SCRIPT],
        capture_output=True, text=True, timeout=120, check=True, cwd=Path(__file__).parents[3],
        env=os.environ | environment | {
            "WORDS": " ".join(("faultline", *words)), "CWORD": str(len(words)), "PATH": programs(folder),
        },
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_and_options_with_the_script(tmp_path: Path) -> None:
    assert completed(tmp_path, "roll") == ["rollout"]
    assert completed(tmp_path, "incidents", "a") == ["ack", "approve"]
    assert completed(tmp_path, "incidents", "list", "--out") == ["--output"]


def test_without_a_broker_nothing_is_offered_and_nothing_is_said(tmp_path: Path) -> None:
    assert completed(tmp_path, "explain", "inc", FAULTLINE_KAFKA__BOOTSTRAP="127.0.0.1:1") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_every_shell_names_the_program(shell: str) -> None:
    printed = CliRunner().invoke(cli, ["completion", shell])
    assert printed.exit_code == 0
    assert f"_FAULTLINE_COMPLETE={shell}_complete" in printed.output


def test_a_runbook_is_offered_with_what_it_is_for() -> None:
    context = click.Context(cli, info_name="faultline")
    offered = completion.runbook_ids(context, click.Argument(["runbook"]), "gpu-off")
    assert [item.value for item in offered] == ["gpu-off-bus"]
    assert offered[0].help


def test_commands_are_offered_without_loading_them() -> None:
    offered = cli.shell_complete(click.Context(cli), "")
    assert {item.value for item in offered} == set(COMMANDS)
