"""Messages as Atlassian Document Format, the only form in which Jira Cloud takes a description or a comment.

Everything that came from outside ends in text nodes or code blocks, which Jira shows literally: ADF has no escape sequences
because it has no mark-up in text. The schema forbids empty text nodes, so empty texts become empty paragraphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from connectors.rendering.simple_blocks import simple
from streams.model.clock import rfc3339
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

MAX_DOCUMENT = 30_000
"""Characters of text in one document; Jira refuses fields beyond 32,767 characters."""
MAX_TEXT = 4000
MAX_ROWS = 100

Node = dict[str, Any]


def document(message: Message, *, footer: str = "") -> Node:
    """A whole document. `footer` is small print in a paragraph of its own, never left out: tokens are put there."""
    nodes: list[Node] = []
    room = MAX_DOCUMENT - len(footer)
    for block in message.blocks:
        node = _node(block)
        if node is None:
            continue
        room -= _text_length(node)
        if room < 0:
            nodes.append(_paragraph("… more than a ticket takes; the rest is in the incident's timeline."))
            break
        nodes.append(node)
    if not nodes:
        nodes.append(_paragraph(message.summary))
    if footer:
        nodes.append(_paragraph(footer, marks=[{"type": "code"}]))
    return {"type": "doc", "version": 1, "content": nodes}


def texts(node: Any) -> list[str]:
    """Every text of a document, in order. For finding a token in what others wrote: anything may come in."""
    if isinstance(node, dict):
        own = [node["text"]] if isinstance(node.get("text"), str) else []
        return own + texts(node.get("content"))
    if isinstance(node, list):
        return [text for child in node for text in texts(child)]
    return []


def _node(whole: Block) -> Node | None:
    match simple(whole):
        case Heading() as block:
            return {"type": "heading", "attrs": {"level": 3}, "content": _text(plain(block.text, 255))}
        case Paragraph() as block:
            return _paragraph(block.text)
        case Facts() as block:
            lines = [
                {"type": "tableRow", "content": [_cell(_text(plain(f.label, MAX_TEXT))), _cell(_fact(f))]}
                for f in block.facts[:MAX_ROWS]
            ]
            return {"type": "table", "content": lines}
        case Table() as block:
            return _table(block.columns, block.rows)
        case Code() as block:
            return {"type": "codeBlock", "content": _text(plain(block.text, MAX_TEXT))}
        case Buttons():  # a ticket takes no answers
            return None


def _paragraph(text: str, *, marks: list[Node] | None = None) -> Node:
    return {"type": "paragraph", "content": _text(plain(text, MAX_TEXT), marks=marks)}


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Node:
    lines = [_row("tableHeader", columns)] if columns else []
    lines += [_row("tableCell", row) for row in rows[:MAX_ROWS]]
    return {"type": "table", "content": lines}


def _cell(content: list[Node]) -> Node:
    return {"type": "tableCell", "content": [{"type": "paragraph", "content": content}]}


def _fact(fact: Fact) -> list[Node]:
    text = plain(rfc3339(fact.at) if fact.at else fact.text, MAX_TEXT)
    if fact.url and is_web_address(fact.url):
        return _text(text, marks=[{"type": "link", "attrs": {"href": fact.url}}])
    return _text(text)


def _row(cell: str, texts: Sequence[str]) -> Node:
    return {"type": "tableRow", "content": [{"type": cell, "content": [_paragraph(text)]} for text in texts]}


def _text(text: str, *, marks: list[Node] | None = None) -> list[Node]:
    if not text:
        return []
    return [{"type": "text", "text": text} | ({"marks": marks} if marks else {})]


def _text_length(node: Node) -> int:
    return sum(map(len, texts(node)))
