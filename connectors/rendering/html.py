"""A message as HTML for mail: one file, styles inside, nothing loaded from anywhere, legible on dark backgrounds.

The template escapes everything by itself; a link is made only of a plain address of the web.
"""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from connectors.rendering.simple_blocks import simple
from connectors.rendering.text import (
    CUT,
    MAX_CODE,
    MAX_FACTS,
    MAX_PARAGRAPH,
    cells,
    fact_value,
    one_line,
    web_address,
)
from streams.model.message import Block, Buttons, Code, Facts, Heading, Message, Paragraph, Table, Tone, plain

COLOURS = {
    Tone.BAD: "#d13438",
    Tone.ACTIVE: "#c98a00",
    Tone.ASKING: "#7b3fe4",
    Tone.GOOD: "#2e9e5b",
    Tone.QUIET: "#8a8d91",
}

MAX_BLOCKS = 60

Part = dict[str, object]

_environment = Environment(
    loader=PackageLoader("connectors.rendering", "."),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def html(message: Message, limit: int, *, footer: str = "") -> str:
    """A whole document of at most `limit` characters; blocks that do not fit are left out from the end."""
    template = _environment.get_template("mail.html.j2")
    shown = [block for block in message.blocks if not isinstance(block, Buttons)]
    parts = [_part(block) for block in shown[:MAX_BLOCKS] or [Paragraph(message.summary)]]
    values = {
        "title": one_line(message.summary),
        "colour": COLOURS[message.tone],
        "footer": one_line(footer),
        "rest": CUT,
    }
    for kept in range(len(parts), -1, -1):
        cut = kept < len(parts) or len(shown) > MAX_BLOCKS
        document = template.render(parts=parts[:kept], cut=cut, **values)
        if len(document) <= limit:
            return document
    raise ValueError(f"{limit} characters do not hold even an empty document")


def _part(block: Block) -> Part:
    """What the template shows of a block."""
    block = simple(block)
    match block:
        case Heading():
            return {"type": "heading", "text": one_line(block.text)}
        case Paragraph():
            return {"type": "paragraph", "quiet": block.quiet, "text": plain(block.text, MAX_PARAGRAPH)}
        case Facts():
            facts = [
                (one_line(fact.label), fact_value(fact), web_address(fact))
                for fact in block.facts[:MAX_FACTS]
            ]
            return {"type": "facts", "facts": facts}
        case Table():
            columns, rows, more = cells(block)
            return {"type": "table", "columns": columns, "rows": rows, "more": more}
        case Code():
            return {"type": "code", "text": plain(block.text, MAX_CODE)}
        case Buttons():
            raise ValueError("a mail takes no answer")
