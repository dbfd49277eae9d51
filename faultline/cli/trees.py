"""Trees of sentences on the terminal: coloured by kind, folded and wrapped to fit it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from faultline.cli import terminal
from faultline.why.tree import DEPTH, MOST, Branch, lines

F = TypeVar("F", bound=Callable[..., Any])

_COLORS = {
    "root": {"fg": "red", "bold": True},
    "incident": {"bold": True},
    "answer": {"bold": True},
    "needs": {"fg": "green"},
    "objection": {"fg": "yellow"},
    "missing": {"fg": "yellow"},
    "line": {"dim": True},
    "pass": {"dim": True},
    "passed": {"dim": True},
    "more": {"dim": True},
}


def fold_options(command: F) -> F:
    """The options `--depth` and `--all` of a command that prints a tree."""
    command = click.option(
        "--all", "everything", is_flag=True, help="Everything, however deep and however long."
    )(command)
    return click.option(
        "--depth",
        type=click.IntRange(1),
        default=DEPTH,
        show_default=True,
        help="Levels of the tree that are shown.",
    )(command)


def show_tree(tree: Branch, *, depth: int, everything: bool) -> None:
    """Print a tree, folded unless everything is asked for."""
    width = terminal.width() if sys.stdout.isatty() else None
    shown = lines(
        tree,
        depth=None if everything else depth,
        most=None if everything else MOST,
        width=width,
        paint=_paint if terminal.has_colors() else lambda text, kind: text,
    )
    for line in shown:
        click.echo(line)


def _paint(text: str, kind: str) -> str:
    return click.style(text, **_COLORS[kind]) if kind in _COLORS else text  # type: ignore[arg-type]
