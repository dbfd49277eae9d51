"""Blocks that only some sinks have a form for, as those that every sink has one for."""

from __future__ import annotations

from streams.model.message import (
    Block,
    Buttons,
    Code,
    Facts,
    Heading,
    Notice,
    Paragraph,
    Steps,
    Table,
)

SimpleBlock = Heading | Paragraph | Facts | Table | Code | Buttons


def simple(block: Block) -> SimpleBlock:
    """Steps as a table under their title, a notice as its sentence; any other block is what it is."""
    match block:
        case Steps():
            rows = tuple((step.title, step.state.replace("_", " "), step.detail) for step in block.steps)
            return Table((block.title, "state", ""), rows)
        case Notice():
            return Paragraph(block.text)
        case _:
            return block
