"""Output of commands: tables for people; with `--output json` one JSON object a line and nothing else."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

import click
import orjson
from rich.cells import cell_len, chop_cells

from streams.model.message import plain

_WIDTH_WITHOUT_TERMINAL = 200
_LEAST_WIDTH = 8
MAX_CELL = 4000
"""Longer cells are cut after this many characters."""
FORMATS = ("table", "json")


output_option = click.option(
    "--output", "-o", type=click.Choice(FORMATS), default="table", help="Output format."
)
"""The `--output` option of every command that prints a result."""


def json_line(value: Any) -> None:
    """One object as one line on stdout."""
    click.echo(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode())


def table(headings: Iterable[str], rows: Iterable[Iterable[object]], *, empty: str) -> None:
    """Print a table. Cells are plain text: log text and names are never read as markup, and control characters are escaped."""
    head = list(headings)
    body = [["" if cell is None else plain(str(cell), MAX_CELL) for cell in row] for row in rows]
    if not body:
        click.echo(empty)
        return
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else _WIDTH_WITHOUT_TERMINAL
    first, *lines = laid_out([head, *body], width)
    click.echo("\n".join([click.style(first, bold=True) if terminal else first, *lines]))


def laid_out(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Rows in columns, two blanks apart, as lines of at most `width` columns. A cell that is too wide is wrapped.

    Written here because rich takes a second to lay out two thousand rows.
    """
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    # The first column is the name of the thing: it is copied into the next command, and stays whole.
    widths = [widths[0], *_shrunk(widths[1:], width - widths[0] - 2 * (len(widths) - 1))]
    lines: list[str] = []
    for row in rows:
        folded = [_folded(cell, most) for cell, most in zip(row, widths, strict=True)]
        for pieces in zip_longest(*folded, fillvalue=""):
            line = (
                piece + " " * (most - cell_len(piece)) for piece, most in zip(pieces, widths, strict=True)
            )
            lines.append("  ".join(line).rstrip())
    return lines


def _width(text: str) -> int:
    """Terminal columns of a text. ASCII needs no table lookup: `plain` has removed control characters."""
    return len(text) if text.isascii() else cell_len(text)


def _shrunk(widths: list[int], room: int) -> list[int]:
    """The widths with the widest reduced until all fit; none below `_LEAST_WIDTH`, however narrow the terminal."""
    widths = list(widths)
    while (over := sum(widths) - room) > 0 and (widest := max(widths)) > _LEAST_WIDTH:
        at = [number for number, width in enumerate(widths) if width == widest]
        next_widest = max((width for width in widths if width < widest), default=_LEAST_WIDTH)
        step = min(widest - max(next_widest, _LEAST_WIDTH), -(-over // len(at)))
        for number in at:
            widths[number] -= step
    return widths


def _folded(cell: str, width: int) -> list[str]:
    if "\n" not in cell and _width(cell) <= width:
        return [cell]
    lines = [line for text in cell.splitlines() for line in textwrap.wrap(text, width) or [""]]
    return [
        piece for line in lines for piece in (chop_cells(line, width) if _width(line) > width else [line])
    ]
