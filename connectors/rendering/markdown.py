"""A message as Markdown (CommonMark with GitHub's tables). Every sign that means something there is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterator

from connectors.rendering.simple_blocks import simple
from connectors.rendering.text import (
    MAX_CODE,
    MAX_FACTS,
    MAX_PARAGRAPH,
    cells,
    fact_value,
    one_line,
    web_address,
    within,
    without_mentions,
)
from streams.model.message import Block, Buttons, Code, Facts, Heading, Message, Paragraph, Table, plain

_SIGNS = re.compile(r"([\\`*_{}\[\]<>|~&#$])")
_FIRST = re.compile(r"\A(\s*)([-+=:]|\d+(?=[.)]))")
_TICKS = re.compile(r"`+")


def markdown(message: Message, limit: int) -> str:
    """The blocks as Markdown of at most `limit` characters; what does not fit is cut from the end, by whole blocks."""
    shown = [block for block in message.blocks if not isinstance(block, Buttons)]
    parts = ("\n".join(_lines(block)) + "\n" for block in shown or [Paragraph(message.summary)])
    return within(parts, limit)


def escape(text: str) -> str:
    """One line of text that Markdown shows as it is: no emphasis, link, picture, HTML, heading, list or mention."""
    escaped = _SIGNS.sub(r"\\\1", text.strip())
    escaped = _FIRST.sub(lambda found: found[1] + _escaped_first(found[2]), escaped)
    return without_mentions(escaped)


def _escaped_first(sign: str) -> str:
    # A digit cannot be escaped; an empty comment's worth of nothing before the dot would show, an entity does not.
    return f"&#{ord(sign[0])};{sign[1:]}" if sign[0].isdigit() else f"\\{sign}"


def _lines(block: Block) -> Iterator[str]:
    block = simple(block)
    match block:
        case Heading():
            yield f"## {escape(one_line(block.text))}"
        case Paragraph():
            # Two blanks make a line end; blank lines stay what they are.
            for line in plain(block.text, MAX_PARAGRAPH).splitlines():
                yield f"{escape(line)}  " if line.strip() else ""
        case Facts():
            for fact in block.facts[:MAX_FACTS]:
                value, address = escape(fact_value(fact)), web_address(fact)
                yield f"- **{escape(one_line(fact.label))}:** {f'[{value}](<{address}>)' if address else value}"
        case Table():
            columns, rows, more = cells(block)
            if columns:
                yield _row(columns)
                yield _row(["---"] * len(columns), escaped=True)
                yield from map(_row, rows)
            if more:
                yield "\n…"
        case Code():
            text = plain(block.text, MAX_CODE)
            # A fence that is longer than any in the text cannot be ended by it.
            fence = "`" * max(3, 1 + max(map(len, _TICKS.findall(text)), default=0))
            yield from (fence, text, fence)
        case Buttons():
            return


def _row(cells: list[str], *, escaped: bool = False) -> str:
    return f"| {' | '.join(cells if escaped else map(escape, cells))} |"
