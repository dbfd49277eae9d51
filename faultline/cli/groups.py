"""Groups of commands, and the examples of a command's help."""

from __future__ import annotations

from typing import Any

import click

from streams.model.similar import suggestion


class Group(click.Group):
    """A group that names the command which a mistyped one may have meant, and may have one that stands for the group alone.

    With `default="list"`, `faultline nodes -o json` is `faultline nodes list -o json`.
    """

    def __init__(self, *args: Any, default: str | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command where none is named."""
        is_named = bool(args) and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
        if self.default is not None and not is_named and not ctx.resilient_parsing:
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click, with a suggestion."""
        name = args[0]
        if not ctx.resilient_parsing and not name.startswith("-") and self.get_command(ctx, name) is None:
            ctx.fail(f"No such command {name!r}{suggestion(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


def examples(*rows: str | tuple[str, str], exits: str = "") -> str:
    """The end of a command's help: command lines to paste, each with what it is for, and what its exit codes mean.

    A shell takes what follows the `#` for a comment.
    """
    pairs = [(row, "") if isinstance(row, str) else row for row in rows]
    longest = max(len(line) for line, about in pairs if about) if any(about for _, about in pairs) else 0
    lines = [f"  {line:{longest}}   # {about}" if about else f"  {line}" for line, about in pairs]
    # \b keeps click from filling the lines of a paragraph.
    text = "\n".join(["\b", "Examples:", *lines])
    return f"{text}\n\nExit codes: {exits}." if exits else text
