"""Output of commands: tables for people; with `--output json` one JSON object a line, with `yaml` one document each."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Any

import click
import orjson
from rich.cells import cell_len, chop_cells

from faultline.cli import terminal
from streams.model.message import plain

_LEAST_WIDTH = 8
_FAIR_WIDTH = 16
"""What a long name leaves to each other column that needs it."""
MAX_CELL = 4000
"""Longer cells are cut after this many characters."""
FORMATS = ("table", "json", "yaml")


output_option = click.option(
    "--output",
    "-o",
    type=click.Choice(FORMATS),
    default="table",
    help="A table, one JSON object a line, or a YAML document each.",
)
"""The `--output` option of every command that prints a result."""


def show(output: str, records: Iterable[Any], as_table: Callable[[], None] | None = None) -> None:
    """Print the result of a command: its records as JSON or YAML, or what `as_table` prints for people.

    The records are not read for a table. What is longer than the terminal is paged.
    """
    with terminal.paged():
        if output == "table" and as_table is not None:
            as_table()
            return
        for one in records:
            record(output, one)


def record(output: str, value: Any) -> None:
    """One record on stdout at once, for a command that prints while it works. `output` is `json` or `yaml`."""
    if output == "yaml":
        click.echo(_yaml(value), nl=False)
    else:
        click.echo(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode())


def _yaml(value: Any) -> str:
    """A document that holds what the JSON would: through JSON, because YAML has types of its own for times and enums."""
    import yaml

    plain_value = orjson.loads(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS))
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(
        plain_value, Dumper=dumper, explicit_start=True, sort_keys=False, allow_unicode=True, width=120
    )
    return text


def table(headings: Iterable[str], rows: Iterable[Iterable[object]], *, empty: str) -> None:
    """Print a table. Cells are plain text: log text and names are never read as markup, and control characters are escaped."""
    head = list(headings)
    body = [["" if cell is None else plain(str(cell), MAX_CELL) for cell in row] for row in rows]
    if not body:
        click.echo(empty)
        return
    first, *lines = laid_out([head, *body], terminal.width(), whole=not sys.stdout.isatty())
    click.echo("\n".join([click.style(first, bold=True) if terminal.has_colors() else first, *lines]))


def laid_out(rows: Sequence[Sequence[str]], width: int, *, whole: bool = False) -> list[str]:
    """Rows in columns, two blanks apart, as lines of at most `width` columns. A cell that is too wide is wrapped, and a name
    that is wider than its column loses its middle; with `whole` none does, and lines become longer where they must.

    Written here because rich takes a second to lay out two thousand rows.
    """
    columns = list(zip(*rows, strict=True))
    widths = [max(map(_width, column)) for column in columns]
    gaps = 2 * (len(columns) - 1)
    narrowest = max(1, min(_LEAST_WIDTH, (width - gaps) // len(columns)))
    least = [_longest_word(column) if whole else narrowest for column in columns]
    # The first column is the name of the thing, which is copied into the next command: it gives way only where it takes the
    # room of the others.
    first = widths[0]
    if not whole:
        most = width - gaps - sum(map(min, widths[1:], least[1:]))
        fair = width - sum(min(other, _FAIR_WIDTH) + 2 for other in widths[1:])
        first = min(first, most, max(width // 2, fair))
    widths = [first, *_shrunk(widths[1:], width - first - gaps, least[1:])]
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


def _longest_word(cells: Iterable[str]) -> int:
    return max((_width(word) for cell in cells for word in cell.split()), default=0)


def _shrunk(widths: list[int], room: int, least: list[int]) -> list[int]:
    """The widths with the widest reduced until all fit; none below its own of `least`, however narrow the terminal."""
    widths = list(widths)
    while (over := sum(widths) - room) > 0:
        open_ = [number for number, width in enumerate(widths) if width > least[number]]
        if not open_:
            break
        widest = max(widths[number] for number in open_)
        at = [number for number in open_ if widths[number] == widest]
        bound = max((widths[number] for number in open_ if widths[number] < widest), default=0)
        for number in at:
            widths[number] -= min(widest - max(bound, least[number]), -(-over // len(at)))
    return widths


def _folded(cell: str, width: int) -> list[str]:
    if "\n" not in cell and _width(cell) <= width:
        return [cell]
    lines = []
    for text in cell.splitlines():
        words = " ".join(_without_middle(word, width) for word in text.split(" "))
        lines += textwrap.wrap(words, width, break_on_hyphens=False) or [""]
    return [
        piece for line in lines for piece in (chop_cells(line, width) if _width(line) > width else [line])
    ]


def _without_middle(name: str, width: int) -> str:
    """The name in at most `width` columns: numbers that tell names apart are at their ends."""
    if _width(name) <= width:
        return name
    begin, end = name[: width // 2], name[-(width - width // 2 - 1) :]
    # A character may take two columns.
    while _width(begin) + _width(end) >= width and end:
        begin, end = begin[:-1], end[1:]
    return f"{begin}…{end}"
