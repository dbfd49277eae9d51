"""Every command of the command line, and the command lines that its help shows."""

from __future__ import annotations

from collections.abc import Iterator

import click

from faultline.cli.main import cli

TITLE = "Examples:"


def every_command() -> Iterator[tuple[str, click.Command]]:
    """Each command and group below `faultline`, with its name as it is typed."""
    yield from _below(cli, click.Context(cli, info_name="faultline"))


def _below(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, parent=context, info_name=name)
        yield inner.command_path, command
        if isinstance(command, click.Group):
            yield from _below(command, inner)


def examples_of(command: click.Command) -> list[str]:
    """The command lines below `Examples:` in a command's help, with their comments: as somebody would paste them."""
    with click.Context(command, info_name="faultline", terminal_width=200) as context:
        _, _, after = command.get_help(context).partition(f"{TITLE}\n")
    block = after.split("\n\n")[0]
    return [line.strip() for line in block.splitlines() if line.strip()]
