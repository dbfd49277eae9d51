"""A message for another program: the neutral blocks themselves, cleaned and bounded. The reader escapes them as it needs."""

from __future__ import annotations

from typing import Any

import orjson

from connectors.rendering.simple_blocks import simple
from connectors.rendering.text import (
    MAX_CELL,
    MAX_CODE,
    MAX_COLUMNS,
    MAX_FACTS,
    MAX_PARAGRAPH,
    MAX_ROWS,
    one_line,
    web_address,
)
from streams.model.codec import encode_plain
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
    plain,
)


def neutral(message: Message, limit: int) -> dict[str, Any]:
    """The message in the form of `streams.model.message`, its blocks at most `limit` bytes; `cut` tells whether some are missing.

    Decisions are left out: their values are for sinks that people answer in.
    """
    blocks, room, cut = list[dict[str, Any]](), limit, False
    for block in (one for one in message.blocks if not isinstance(one, Buttons)):
        shown = encode_plain(_bounded(block))
        room -= len(orjson.dumps(shown)) + 1
        if room < 0:
            cut = True
            break
        blocks.append(shown)
    return {
        "summary": one_line(message.summary),
        "tone": message.tone.value,
        "blocks": blocks,
        "cut": cut,
    }


def _bounded(block: Block) -> Block:
    block = simple(block)
    match block:
        case Heading():
            return Heading(one_line(block.text))
        case Paragraph():
            return Paragraph(plain(block.text, MAX_PARAGRAPH), block.quiet)
        case Facts():
            return Facts(tuple(map(_fact, block.facts[:MAX_FACTS])))
        case Table():
            columns = tuple(one_line(one, MAX_CELL) for one in block.columns[:MAX_COLUMNS])
            rows = (row[:MAX_COLUMNS] for row in block.rows[:MAX_ROWS])
            return Table(columns, tuple(tuple(one_line(one, MAX_CELL) for one in row) for row in rows))
        case Code():
            return Code(plain(block.text, MAX_CODE))
        case Buttons():
            raise ValueError("decisions are for sinks that people answer in")


def _fact(fact: Fact) -> Fact:
    return Fact(one_line(fact.label), one_line(fact.text), fact.at, web_address(fact))
