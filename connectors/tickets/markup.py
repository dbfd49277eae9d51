"""Messages as wiki mark-up (Jira Data Center), as Markdown (GitHub, GitLab) and as plain text (ServiceNow).

Each is cut to what the system takes, block by block, so that no block is cut open; the last line says that something is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from connectors.rendering.simple_blocks import simple
from connectors.tickets import inert
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

MAX_TEXT = 4000
MAX_CELL = 1000
MAX_ROWS = 100

_MORE = "… more than a ticket takes; the rest is in the incident's timeline."


def wiki_text(message: Message, limit: int, *, footer: str = "") -> str:
    """Jira's wiki mark-up. `footer` is put into a monospaced line of its own and never left out."""
    end = f"{{{{{footer}}}}}" if footer else ""
    return _joined(map(_wiki_block, message.blocks), inert.wiki(message.summary, MAX_TEXT), limit, end)


def markdown_text(message: Message, limit: int, *, footer: str = "") -> str:
    """GitHub's and GitLab's Markdown. `footer` is put into a comment of HTML, which both hide, and never left out."""
    end = f"<!-- {footer} -->" if footer else ""
    return _joined(
        map(_markdown_block, message.blocks), inert.markdown(message.summary, MAX_TEXT), limit, end
    )


def plain_text(message: Message, limit: int, *, footer: str = "") -> str:
    """Plain text. `footer` is the last line and never left out."""
    blocks = (inert.journal(_plain_block(block)) for block in message.blocks)
    summary = inert.journal(plain(message.summary, MAX_TEXT))
    return inert.no_formula(_joined(blocks, summary, limit - 1, footer))


def _joined(blocks: Iterable[str], summary: str, limit: int, footer: str) -> str:
    room = limit - len(footer) - len(_MORE) - 8
    kept: list[str] = []
    for block in filter(None, blocks):
        room -= len(block) + 2
        if room < 0:
            kept.append(_MORE)
            break
        kept.append(block)
    if not kept:
        kept.append(summary)
    return "\n\n".join([*kept, *([footer] if footer else [])])


def _lines(text: str, made_inert: Callable[[str, int], str]) -> list[str]:
    """The lines of running text, each made inert by itself: nothing may begin at a line's start either."""
    lines = plain(text, MAX_TEXT).splitlines()
    return [made_inert(line, MAX_TEXT) for line in lines if line.strip()]


def _value(fact: Fact) -> str:
    return rfc3339(fact.at) if fact.at else fact.text


def _wiki_block(whole: Block) -> str:
    match simple(whole):
        case Heading() as block:
            return f"h3. {inert.wiki(block.text, 255)}"
        case Paragraph() as block:
            return "\n".join(_lines(block.text, inert.wiki))
        case Facts() as block:
            rows = [(inert.wiki(f.label, MAX_CELL), _wiki_fact(f)) for f in block.facts]
            return "\n".join(f"|{label}|{value or ' '}|" for label, value in rows)
        case Table() as block:
            head = "||" + "||".join(inert.wiki(c, MAX_CELL) or " " for c in block.columns) + "||"
            return "\n".join([head, *_rows(block, inert.wiki, lambda cells: "|" + "|".join(cells) + "|")])
        case Code() as block:
            return inert.no_format(block.text, MAX_TEXT)
        case Buttons():  # a ticket takes no answers
            return ""


def _wiki_fact(fact: Fact) -> str:
    if fact.url and is_web_address(fact.url) and not set("[]|") & set(fact.url):
        return f"[{fact.url}]"
    return inert.wiki(_value(fact), MAX_CELL)


def _markdown_block(whole: Block) -> str:
    match simple(whole):
        case Heading() as block:
            return f"### {inert.markdown(block.text, 255)}"
        case Paragraph() as block:
            return "  \n".join(_lines(block.text, inert.markdown))
        case Facts() as block:
            rows = [f"| {inert.markdown(f.label, MAX_CELL)} | {_markdown_fact(f)} |" for f in block.facts]
            return "\n".join(["| | |", "|---|---|", *rows])
        case Table() as block:
            head = "| " + " | ".join(inert.markdown(c, MAX_CELL) for c in block.columns) + " |"
            line = "|" + "---|" * len(block.columns)
            rows = _rows(block, inert.markdown, lambda cells: "| " + " | ".join(cells) + " |")
            return "\n".join([head, line, *rows])
        case Code() as block:
            return inert.fenced(block.text, MAX_TEXT)
        case Buttons():
            return ""


def _markdown_fact(fact: Fact) -> str:
    if fact.url and is_web_address(fact.url):
        return f"<{fact.url}>"
    return inert.markdown(_value(fact), MAX_CELL)


def _plain_block(whole: Block) -> str:
    match simple(whole):
        case (Heading() | Paragraph()) as block:
            return plain(block.text, MAX_TEXT)
        case Facts() as block:
            return "\n".join(f"{plain(f.label, 100)}: {plain(_value(f), MAX_CELL)}" for f in block.facts)
        case Table() as block:
            return "\n".join(
                [" | ".join(block.columns), *_rows(block, plain, lambda cells: " | ".join(cells))]
            )
        case Code() as block:
            return plain(block.text, MAX_TEXT)
        case Buttons():
            return ""


def _rows(block: Table, cell: Callable[[str, int], str], line: Callable[[Sequence[str]], str]) -> list[str]:
    return [line([cell(text, MAX_CELL) or " " for text in row]) for row in block.rows[:MAX_ROWS]]
