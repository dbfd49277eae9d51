"""A message as plain text, and what the other renderers share: one line, one cell, a bounded length."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from connectors.rendering.simple_blocks import simple
from streams.model.clock import moment
from streams.model.message import (
    Block,
    Buttons,
    Code,
    Fact,
    Facts,
    Heading,
    Message,
    Paragraph,
    Table,
    is_web_address,
    plain,
)

MAX_LINE = 300
MAX_PARAGRAPH = 8_000
MAX_CODE = 16_000
MAX_CELL = 200
MAX_ROWS = 200
MAX_COLUMNS = 20
MAX_FACTS = 100

CUT = "… the rest is left out; all of it is in the incident's timeline."

# A spreadsheet takes a pasted cell that begins so as a formula. A plain number may begin with a sign.
_FORMULA = re.compile(r"[=+\-@](?![\d.,]+\s*%?\Z)")

# What chat systems take as a mention. The joiner after the sign has no width and breaks no line.
_MENTION = re.compile(r"@(?=[\w&!])")
JOINER = "\u2060"


def text(message: Message, limit: int) -> str:
    """The blocks as plain text of at most `limit` characters; what does not fit is cut from the end."""
    return within(lines(message), limit)


def lines(message: Message) -> Iterator[str]:
    """The blocks line by line, an empty line between two of them. Decisions are left out: a text takes no answer."""
    shown = [block for block in message.blocks if not isinstance(block, Buttons)]
    for number, block in enumerate(shown or [Paragraph(message.summary)]):
        if number:
            yield ""
        yield from _lines(block)


def one_line(text: str, limit: int = MAX_LINE) -> str:
    """Text on one line, without control characters: line ends, also Unicode's own, become blanks."""
    return plain(" ".join(plain(text, limit).split()), limit)


def cell(text: str, limit: int = MAX_CELL) -> str:
    """Text for a cell of a table. What a spreadsheet would take as a formula gets an apostrophe before it."""
    found = one_line(text, limit)
    return f"'{found}" if _FORMULA.match(found) else found


def without_mentions(text: str) -> str:
    """The same text to a reader, in which no chat system finds anybody to call."""
    return _MENTION.sub(f"@{JOINER}", text)


def within(lines: Iterable[str], limit: int) -> str:
    """Lines up to `limit` characters in all; a last line says so when something was left out."""
    kept: list[str] = []
    room = limit
    for line in lines:
        if len(line) + 1 > room:
            while kept and room < len(CUT) + 1:
                room += len(kept.pop()) + 1
            return "\n".join([*kept, CUT])[:limit]
        kept.append(line)
        room -= len(line) + 1
    return "\n".join(kept)


def cells(table: Table) -> tuple[list[str], list[list[str]], bool]:
    """The columns and rows of a table within bounds, and whether rows were left out."""
    columns = [cell(one) for one in table.columns[:MAX_COLUMNS]]
    rows = [[cell(one) for one in row[: len(columns)]] for row in table.rows[:MAX_ROWS]]
    return columns, rows, len(table.rows) > MAX_ROWS


def fact_value(fact: Fact) -> str:
    """What a fact says: a moment in UTC, else its text on one line."""
    return moment(fact.at) if fact.at else cell(fact.text) or "–"


def web_address(fact: Fact) -> str | None:
    """Where a fact leads, when that is an address a link may be made of."""
    return fact.url if fact.url is not None and is_web_address(fact.url) else None


def table_lines(table: Table) -> list[str]:
    """A table in columns of a fixed-width font."""
    columns, rows, more = cells(table)
    everything = [columns, *rows]
    widths = [max(len(row[at]) for row in everything) for at in range(len(columns))]
    shown = [
        "  ".join(one.ljust(width) for one, width in zip(row, widths, strict=True)).rstrip()
        for row in everything
    ]
    return [*shown, "…"] if more else shown


def _lines(block: Block) -> Iterator[str]:
    block = simple(block)
    match block:
        case Heading():
            yield one_line(block.text)
        case Paragraph():
            yield from plain(block.text, MAX_PARAGRAPH).splitlines()
        case Facts():
            for fact in block.facts[:MAX_FACTS]:
                address = web_address(fact)
                leads = f" <{address}>" if address else ""
                yield f"{one_line(fact.label)}: {fact_value(fact)}{leads}"
        case Table():
            yield from table_lines(block)
        case Code():
            # Set in, so that no raw line passes for one of ours.
            yield from (f"  | {line}" for line in plain(block.text, MAX_CODE).splitlines())
        case Buttons():
            return
