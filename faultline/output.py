"""How answers are printed: Rich tables on a terminal; with `--output json` one JSON object a line and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, TypeVar

import click
import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

F = TypeVar("F", bound=Callable[..., Any])

_WIDTH_WITHOUT_TERMINAL = 200
FORMATS = ("table", "json")


def output_option(function: F) -> F:
    """The `--output` option every answering command has."""
    option = click.option(
        "--output", "-o", type=click.Choice(FORMATS), default="table", help="How to print the answer."
    )
    return option(function)


def json_line(value: Any) -> None:
    """One object as one line on stdout."""
    click.echo(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode())


def table(headings: Iterable[str], rows: Iterable[Iterable[object]], *, empty: str) -> None:
    """A table for people. Cells are plain text: nothing in log text or names is taken as markup."""
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        grid.add_column(heading, overflow="fold")
    for row in rows:
        grid.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH_WITHOUT_TERMINAL)
    console.print(grid if grid.row_count else Text(empty))


def moment(at: datetime | None) -> str:
    """A time for people: UTC, to the second."""
    return at.strftime("%Y-%m-%d %H:%M:%SZ") if at else ""
