"""Messages as Atlassian Document Format, the only form in which Jira Cloud takes a description or a comment.

Everything that came from outside ends in text nodes or code blocks, which Jira shows literally: ADF has no escape sequences
because it has no mark-up in text. The schema forbids empty text nodes, so empty texts become empty paragraphs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from connectors.rendering.simple_blocks import SimpleBlock
from connectors.tickets.fitting import CELLS, MORE, fitted, longest, units
from streams.model.clock import rfc3339
from streams.model.message import (
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

MAX_DOCUMENT = 30_000
"""Characters of one document with its mark-up; Jira refuses fields beyond 32,767 characters."""
MAX_TEXT = 4000
MAX_CELL = 1000
MAX_ROWS = 100

Node = dict[str, Any]


def document(message: Message, *, footer: str = "") -> Node:
    """A whole document. `footer` is small print in a paragraph of its own, never left out: tokens are put there."""
    end = [_paragraph(footer, marks=[{"type": "code"}])] if footer else []
    room = MAX_DOCUMENT - sum(map(_size, end)) - 100
    nodes = fitted(message.blocks, room, _node, _size, _paragraph(MORE))
    if not nodes:
        nodes = [_paragraph(plain(message.summary, MAX_TEXT))]
    return {"type": "doc", "version": 1, "content": [*nodes, *end]}


def texts(node: Any) -> list[str]:
    """Every text of a document, in order. For finding a token in what others wrote: anything may come in."""
    if isinstance(node, dict):
        own = [node["text"]] if isinstance(node.get("text"), str) else []
        return own + texts(node.get("content"))
    if isinstance(node, list):
        return [text for child in node for text in texts(child)]
    return []


def _node(whole: SimpleBlock, room: int) -> tuple[Node | None, bool]:
    """A block within its room, None where nothing of it fits; and whether it is whole."""
    match whole:
        case Heading() as block:
            return longest(plain(block.text, 255), room, _heading, _size)
        case Paragraph() as block:
            return longest(block.text, room, _paragraph, _size)
        case Facts() as block:
            return _facts(block, room)
        case Table() as block:
            lines = [_row("tableHeader", block.columns)] if block.columns else []
            return _table(
                lines + [_row("tableCell", row) for row in block.rows[:MAX_ROWS]], room, len(block.rows)
            )
        case Code() as block:
            return longest(
                block.text, room, lambda text: {"type": "codeBlock", "content": _text(text)}, _size
            )
        case Buttons():  # a ticket takes no answers
            return None, True


def _heading(text: str) -> Node:
    return {"type": "heading", "attrs": {"level": 3}, "content": _text(text)}


def _paragraph(text: str, *, marks: list[Node] | None = None) -> Node:
    return {"type": "paragraph", "content": _text(text, marks=marks)}


def _facts(block: Facts, room: int) -> tuple[Node | None, bool]:
    """All facts, their values cut evenly where the room is short."""
    for limit in CELLS:
        rows: list[Node] = [
            {"type": "tableRow", "content": [_cell(_text(plain(f.label, limit))), _cell(_fact(f, limit))]}
            for f in block.facts[:MAX_ROWS]
        ]
        part, whole = _table(rows, room, len(block.facts))
        if whole:
            return part, limit == CELLS[0] or not any(len(fact.text) > limit for fact in block.facts)
    return part, False


def _table(lines: Sequence[Node], room: int, rows: int) -> tuple[Node | None, bool]:
    """The lines that fit, from the first."""
    left, kept = room - _size({"type": "table", "content": []}), list[Node]()
    for line in lines:
        left -= _size(line) + 1
        if left < 0:
            break
        kept.append(line)
    if not kept:
        return None, not lines
    return {"type": "table", "content": kept}, len(kept) == len(lines) and rows <= MAX_ROWS


def _cell(content: list[Node]) -> Node:
    return {"type": "tableCell", "content": [{"type": "paragraph", "content": content}]}


def _fact(fact: Fact, limit: int) -> list[Node]:
    text = plain(rfc3339(fact.at) if fact.at else fact.text, limit)
    if fact.url and is_web_address(fact.url):
        return _text(text, marks=[{"type": "link", "attrs": {"href": fact.url}}])
    return _text(text)


def _row(cell: str, texts: Sequence[str]) -> Node:
    return {
        "type": "tableRow",
        "content": [{"type": cell, "content": [_paragraph(plain(text, MAX_CELL))]} for text in texts],
    }


def _text(text: str, *, marks: list[Node] | None = None) -> list[Node]:
    if not text:
        return []
    return [{"type": "text", "text": text} | ({"marks": marks} if marks else {})]


def _size(node: Node) -> int:
    """The length of the JSON: Jira's limit is on what it stores."""
    return units(json.dumps(node, ensure_ascii=False, separators=(",", ":")))
