"""A message as an Adaptive Card 1.5, as Teams shows it.

Teams reads Markdown in `TextBlock` and in facts, but not in the runs of a `RichTextBlock`: so everything that was not written
here is in such runs, and nothing in it can link or mention. A mention would also need an `entities` list, which there is none of.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from typing import Any

import orjson

from connectors.rendering.simple_blocks import simple
from connectors.rendering.text import (
    CUT,
    JOINER,
    MAX_CODE,
    MAX_FACTS,
    MAX_PARAGRAPH,
    cells,
    fact_value,
    one_line,
    web_address,
)
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
    Tone,
    plain,
)

Element = dict[str, Any]

STYLES = {
    Tone.BAD: "attention",
    Tone.ACTIVE: "warning",
    Tone.ASKING: "accent",
    Tone.GOOD: "good",
    Tone.QUIET: "default",
}

_NO_BREAK = "\u00a0"


def adaptive_card(message: Message, limit: int, *, subject: str = "") -> dict[str, Any]:
    """The card, as JSON at most `limit` bytes. What does not fit is left out from the end, and a last line says so.

    `subject` names the incident in small print, for a post that stands by itself where readers cannot see a thread.
    """
    blocks = [block for block in message.blocks if not isinstance(block, Buttons)]
    head, rest = (blocks[0], blocks[1:]) if blocks and isinstance(blocks[0], Heading) else (None, blocks)
    title = one_line(head.text if head else message.summary)
    top = [_rich(title, weight="Bolder", size="Medium")]
    if subject and one_line(subject) != title:
        top.append(_rich(one_line(subject), subtle=True, size="Small"))
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.5",
        "msteams": {"width": "Full"},
        "fallbackText": _inert(one_line(message.summary)),
        "body": [{"type": "Container", "style": STYLES[message.tone], "bleed": True, "items": top}],
    }
    note = _rich(CUT, subtle=True, size="Small")
    room = limit - _size(card) - _size(note)
    for element in (element for block in rest for element in _elements(block)):
        fitting = _shortened(element, room)
        if fitting is not None:
            card["body"].append(fitting)
            room -= _size(fitting)
        if fitting is not element:
            card["body"].append(note)
            break
    return card


def _elements(block: Block) -> Iterator[Element]:
    block = simple(block)
    match block:
        case Heading():
            yield _rich(one_line(block.text), weight="Bolder")
        case Paragraph():
            for line in plain(block.text, MAX_PARAGRAPH).splitlines():
                yield _rich(line, subtle=block.quiet, size="Small" if block.quiet else "Default")
        case Facts():
            rows = [[_rich(one_line(f.label), weight="Bolder"), _value(f)] for f in block.facts[:MAX_FACTS]]
            yield _table([1, 3], rows)
        case Table():
            columns, rows_of_text, more = cells(block)
            head = [_rich(column, weight="Bolder") for column in columns]
            body = [[_rich(one) for one in row] for row in rows_of_text]
            yield _table([1] * len(columns), [head, *body]) | {"firstRowAsHeader": True}
            if more:
                yield _rich("…")
        case Code():
            for line in plain(block.text, MAX_CODE).splitlines():
                # Renderers fold blanks at the beginning of a line.
                shown = _NO_BREAK * (len(line) - len(line.lstrip(" "))) + line.lstrip(" ")
                yield _rich(shown or _NO_BREAK, mono=True) | {"spacing": "None"}
        case Buttons():
            return


def _value(fact: Fact) -> Element:
    if fact.at is not None:
        at = fact.at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        # Shown in the reader's own time; only a TextBlock knows these two, and nothing untrusted is in it.
        return {"type": "TextBlock", "text": f"{{{{DATE({at}, SHORT)}}}} {{{{TIME({at})}}}}", "wrap": True}
    shown = _rich(fact_value(fact))
    if (address := web_address(fact)) is not None:
        shown["inlines"][0]["selectAction"] = {"type": "Action.OpenUrl", "url": address}
    return shown


def _rich(
    text: str, *, weight: str = "Default", size: str = "Default", subtle: bool = False, mono: bool = False
) -> Element:
    """One run of text that is shown as it is; attributes at their default are left out, for every byte counts."""
    run: Element = {"type": "TextRun", "text": _inert(text)}
    if weight != "Default":
        run["weight"] = weight
    if size != "Default":
        run["size"] = size
    if subtle:
        run["isSubtle"] = True
    if mono:
        run["fontType"] = "Monospace"
    return {"type": "RichTextBlock", "inlines": [run]}


def _table(widths: list[int], rows: list[list[Element]]) -> Element:
    return {
        "type": "Table",
        "firstRowAsHeader": False,
        "showGridLines": False,
        "columns": [{"width": width} for width in widths],
        "rows": [
            {"type": "TableRow", "cells": [{"type": "TableCell", "items": [one]} for one in row]}
            for row in rows
        ],
    }


def _inert(text: str) -> str:
    """Text in which no reader finds a function of the card's own language, such as a date."""
    return text.replace("{{", f"{{{JOINER}{{").replace("${", f"${JOINER}{{")


def _shortened(element: Element, room: int) -> Element | None:
    """The element, or as many of a table's first rows as fit, or None."""
    if _size(element) <= room:
        return element
    if element["type"] != "Table":
        return None
    kept, room = [], room - _size(element | {"rows": []})
    for row in element["rows"]:
        room -= _size(row)
        if room < 0:
            break
        kept.append(row)
    return element | {"rows": kept} if kept else None


def _size(part: Element) -> int:
    return len(orjson.dumps(part)) + 1
