"""Messages on a terminal, for the demo and for reading a thread back: the same blocks, in Rich's form.

Texts become Rich `Text`, never mark-up, and carry no control characters: a log line can neither colour nor clear the screen.
"""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table as RichTable
from rich.text import Text

from streams.model.clock import rfc3339
from streams.model.message import Block, Buttons, Code, Facts, Heading, Message, Paragraph, Table, Tone, plain

MAX_TEXT = 2000

STYLES = {
    Tone.BAD: "red",
    Tone.ACTIVE: "yellow",
    Tone.ASKING: "magenta",
    Tone.GOOD: "green",
    Tone.QUIET: "bright_black",
}


def render(message: Message, *, reply: bool = False) -> RenderableType:
    """One message as a panel with a bar in its tone's colour; a reply is indented under its root."""
    # A terminal takes no press: what to type stands beside the buttons.
    shown = [block for block in message.blocks if not isinstance(block, Buttons)]
    body = Group(*(_block(block) for block in shown)) if shown else _text(message.summary)
    return Panel(
        body, border_style=STYLES[message.tone], box=box.HEAVY if not reply else box.ROUNDED, padding=(0, 1)
    )


def _block(block: Block) -> RenderableType:
    match block:
        case Heading():
            return _text(block.text, "bold")
        case Paragraph():
            return _text(block.text, "dim" if block.quiet else "")
        case Facts():
            grid = RichTable.grid(padding=(0, 2))
            for fact in block.facts:
                grid.add_row(
                    _text(fact.label, "bold dim"), _text(rfc3339(fact.at) if fact.at else fact.text or "–")
                )
            return grid
        case Table():
            table = RichTable(box=box.SIMPLE, pad_edge=False)
            for name in block.columns:
                table.add_column(_text(name, "bold"))
            for row in block.rows:
                table.add_row(*(_text(cell) for cell in row))
            return table
        case Code():
            return _text(block.text, "cyan")
        case Buttons():
            return Text()


def _text(text: str, style: str = "") -> Text:
    return Text(plain(text, MAX_TEXT), style=style)
