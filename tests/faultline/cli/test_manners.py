"""What holds for every command: a help with examples that are right, one way to choose the output, no surprises."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from faultline.cli.groups import Group
from faultline.cli.main import cli
from faultline.cli.output import FORMATS
from streams.model.errors import BadInput
from tests.faultline.cli.every_command import TITLE, every_command, examples_of

COMMANDS = dict(every_command())
LEAVES = {name: command for name, command in COMMANDS.items() if not isinstance(command, click.Group)}

NO_RECORDS = {
    "faultline completion": "prints a script",
    "faultline mcp": "speaks a protocol on stdout",
    "faultline run": "a process: it logs",
    "faultline topics acls": "prints what another program takes: `--format` says which",
}
"""Commands without `--output`, and why."""


def options_of(command: click.Command) -> dict[str, click.Parameter]:
    return {name: param for param in command.params for name in (*param.opts, *param.secondary_opts)}


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_the_help_of_a_command_ends_with_examples_of_it(name: str) -> None:
    command = COMMANDS[name] if name else cli
    shown = examples_of(command)
    assert shown, f"{name}: no '{TITLE}' in its help; faultline.cli.groups.examples writes it"
    # A group's default command may be shown by the group's name alone.
    called = (name or "faultline").removesuffix(" list").removesuffix(" status")
    assert any(called in line for line in shown)


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_prints_a_table_json_or_yaml(name: str) -> None:
    if name in NO_RECORDS:
        return
    chosen = options_of(LEAVES[name])
    assert chosen["--output"] is chosen["-o"]
    kind = chosen["--output"].type
    assert isinstance(kind, click.Choice)
    assert set(FORMATS) <= set(kind.choices)


@pytest.mark.parametrize("name", COMMANDS)
def test_options_of_every_command_are_nobodys_own(name: str) -> None:
    assert not {"--config", "--color", "--no-pager"} & set(options_of(COMMANDS[name]))


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in LEAVES])
def test_every_group_suggests_commands(name: str) -> None:
    assert isinstance(COMMANDS[name], Group)
    refused = CliRunner().invoke(cli, [*name.split()[1:], f"{next(iter(COMMANDS[name].commands))}x"])  # type: ignore[attr-defined]
    assert refused.exit_code == 2
    assert "; did you mean" in refused.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_is_for(name: str) -> None:
    silent = [p.opts[0] for p in COMMANDS[name].params if isinstance(p, click.Option) and not p.help]
    assert silent == []


def parts_of(line: str) -> list[list[str]]:
    """The words of each call of `faultline` in a command line, without the program's name."""
    words = list(shlex.shlex(line, posix=True, punctuation_chars="|<>()&;"))
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>()&;")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words, calls = list(lexer), []
    while "faultline" in words:
        words = words[words.index("faultline") + 1 :]
        end = next((n for n, word in enumerate(words) if word[0] in "|<>()&;"), len(words))
        calls.append(words[:end])
    return calls


EXAMPLES = [(name, line) for name, command in COMMANDS.items() for line in examples_of(command)]


@pytest.mark.parametrize(("name", "line"), EXAMPLES, ids=[line for _, line in EXAMPLES])
def test_an_example_is_right_to_its_last_option(
    name: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options, arguments and their values are those that the command takes. That it does what it says: `tests/docs`."""
    monkeypatch.setattr("click.Path.convert", lambda self, value, param, ctx: Path(value))
    for words in parts_of(line):
        parse(cli, "faultline", words, None)


def parse(command: click.Command, name: str, words: list[str], parent: click.Context | None) -> None:
    context = command.make_context(name, words, parent=parent)
    if isinstance(command, click.Group):
        rest = [*context._protected_args, *context.args]
        found, inner, rest = command.resolve_command(context, rest)
        assert inner is not None
        parse(inner, str(found), rest, context)


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ("runs list --state faild", "did you mean failed?"),
        ("dead-letters groups --stage detectr", "did you mean detector?"),
        ("dead-letters list --topic raw.node-log", "did you mean raw.node-logs?"),
        ("catalog test --table lines/nvrn", "did you mean lines/nvrm?"),
    ],
)
def test_a_misspelt_word_to_narrow_a_list_by_is_an_error_and_no_empty_list(
    arguments: str, meant: str
) -> None:
    ran = CliRunner().invoke(cli, arguments.split())
    assert isinstance(ran.exception, BadInput)
    assert meant in str(ran.exception)
    assert ran.stdout == ""
