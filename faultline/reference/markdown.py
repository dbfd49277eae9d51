"""Markdown out of values: what stands in a cell is shown as it is, whatever characters it holds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

Cell = object
Row = Sequence[Cell]


def text(value: object) -> str:
    """Plain text for a table cell: on one line, no character of it read as markup."""
    line = " ".join(str(value).split())
    line = re.sub(r"([\\`*_\[\]|~$])", r"\\\1", line)
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def code(value: object) -> str:
    """The same as code; a fence longer than any run of backticks inside keeps it whole."""
    line = " ".join(str(value).split()).replace("|", "\\|")
    if not line:
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    pad = " " if len(fence) > 1 else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def table(headings: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    """A Markdown table; cells are taken as they are, so `text` or `code` them first."""
    yield "| " + " | ".join(headings) + " |"
    yield "|" + "---|" * len(headings)
    for row in rows:
        yield "| " + " | ".join(map(str, row)) + " |"
    yield ""
