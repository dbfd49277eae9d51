"""Messages as wiki mark-up (Jira Data Center), as Markdown (GitHub, GitLab) and as plain text (ServiceNow).

Each is cut to what the system takes, within a text but never within an escape or a row; a line says where something is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from connectors.rendering.simple_blocks import SimpleBlock
from connectors.tickets import inert
from connectors.tickets.fitting import CELLS, MORE, fitted, longest, rows_that_fit, units
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

MAX_SUMMARY = 255
"""Of what a message without blocks says."""
MAX_CELL = 1000
MAX_ROWS = 100

Rendered = tuple[str | None, bool]
"""A block within its room, None where nothing of it fits; and whether it is whole."""


def wiki_text(message: Message, limit: int, *, footer: str = "") -> str:
    """Jira's wiki mark-up. `footer` is put into a monospaced line of its own and never left out."""
    end = f"{{{{{footer}}}}}" if footer else ""
    return _joined(message, _wiki_block, inert.wiki, limit, end)


def markdown_text(message: Message, limit: int, *, footer: str = "") -> str:
    """GitHub's and GitLab's Markdown. `footer` is put into a comment of HTML, which both hide, and never left out."""
    end = f"<!-- {footer} -->" if footer else ""
    return _joined(message, _markdown_block, inert.markdown, limit, end)


def plain_text(message: Message, limit: int, *, footer: str = "") -> str:
    """Plain text. `footer` is the last line and never left out."""
    return inert.no_formula(_joined(message, _plain_block, _words, limit - 1, footer))


def _joined(
    message: Message,
    block: Callable[[SimpleBlock, int], Rendered],
    words: Callable[[str, int], str],
    limit: int,
    footer: str,
) -> str:
    room = limit - units(footer) - 4
    kept = [part for part in fitted(message.blocks, room, block, units, MORE) if part]
    if not kept:
        kept.append(words(plain(message.summary, MAX_SUMMARY), MAX_SUMMARY))
    return "\n\n".join([*kept, *([footer] if footer else [])])


def _words(text: str, limit: int) -> str:
    return inert.journal(plain(text, limit))


def _lines(text: str, made_inert: Callable[[str, int], str]) -> list[str]:
    """The lines of running text, each made inert by itself: nothing may begin at a line's start either."""
    return [made_inert(line, len(line)) for line in text.splitlines() if line.strip()]


def _value(fact: Fact) -> str:
    return rfc3339(fact.at) if fact.at else fact.text


def _heading(text: str, room: int, line: Callable[[str], str]) -> Rendered:
    return longest(plain(text, 255), room, line, units)


def _facts(block: Facts, room: int, head: Sequence[str], row: Callable[[Fact, int], str]) -> Rendered:
    """All facts, their values cut evenly where the room is short."""
    for cell in CELLS:
        part, whole = rows_that_fit(head, [row(fact, cell) for fact in block.facts], room, MAX_ROWS)
        if whole:
            # A value shorter than usual is missing something that no ellipsis of its own would lead to.
            cut = any(len(_value(fact)) > cell for fact in block.facts)
            return part, cell == CELLS[0] or not cut
    return part, False


def _table(
    block: Table,
    room: int,
    head: Sequence[str],
    cell: Callable[[str, int], str],
    line: Callable[[Sequence[str]], str],
) -> Rendered:
    rows = [line([cell(text, MAX_CELL) or " " for text in row]) for row in block.rows[:MAX_ROWS]]
    part, whole = rows_that_fit(head, rows, room, MAX_ROWS)
    return part, whole and len(block.rows) <= MAX_ROWS


def _wiki_block(whole: SimpleBlock, room: int) -> Rendered:
    match whole:
        case Heading() as block:
            return _heading(block.text, room, lambda text: f"h3. {inert.wiki(text, 255)}")
        case Paragraph() as block:
            return longest(block.text, room, lambda text: "\n".join(_lines(text, inert.wiki)), units)
        case Facts() as block:
            return _facts(
                block, room, (), lambda f, n: f"|{inert.wiki(f.label, n)}|{_wiki_fact(f, n) or ' '}|"
            )
        case Table() as block:
            head = "||" + "||".join(inert.wiki(c, MAX_CELL) or " " for c in block.columns) + "||"
            return _table(block, room, (head,), inert.wiki, lambda cells: "|" + "|".join(cells) + "|")
        case Code() as block:
            return longest(block.text, room, lambda text: inert.no_format(text, len(text)), units)
        case Buttons():  # a ticket takes no answers
            return None, True


def _wiki_fact(fact: Fact, limit: int) -> str:
    if fact.url and is_web_address(fact.url) and not set("[]|") & set(fact.url):
        return f"[{fact.url}]"
    return inert.wiki(_value(fact), limit)


def _markdown_block(whole: SimpleBlock, room: int) -> Rendered:
    match whole:
        case Heading() as block:
            return _heading(block.text, room, lambda text: f"### {inert.markdown(text, 255)}")
        case Paragraph() as block:
            return longest(block.text, room, lambda text: "  \n".join(_lines(text, inert.markdown)), units)
        case Facts() as block:
            head = ("| | |", "|---|---|")
            return _facts(
                block, room, head, lambda f, n: f"| {inert.markdown(f.label, n)} | {_markdown_fact(f, n)} |"
            )
        case Table() as block:
            head = (
                "| " + " | ".join(inert.markdown(c, MAX_CELL) for c in block.columns) + " |",
                "|" + "---|" * len(block.columns),
            )
            return _table(block, room, head, inert.markdown, lambda cells: "| " + " | ".join(cells) + " |")
        case Code() as block:
            return longest(block.text, room, lambda text: inert.fenced(text, len(text)), units)
        case Buttons():
            return None, True


def _markdown_fact(fact: Fact, limit: int) -> str:
    if fact.url and is_web_address(fact.url):
        return f"<{fact.url}>"
    return inert.markdown(_value(fact), limit)


def _plain_block(whole: SimpleBlock, room: int) -> Rendered:
    match whole:
        case Heading() as block:
            return _heading(block.text, room, inert.journal)
        case (Paragraph() | Code()) as block:
            return longest(block.text, room, inert.journal, units)
        case Facts() as block:
            return _facts(block, room, (), lambda f, n: f"{_words(f.label, 100)}: {_words(_value(f), n)}")
        case Table() as block:
            head = inert.journal(plain(" | ".join(block.columns), MAX_CELL))
            return _table(block, room, (head,), _words, lambda cells: " | ".join(cells))
        case Buttons():
            return None, True
