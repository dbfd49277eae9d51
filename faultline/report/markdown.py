"""A document as Markdown. Whatever comes from outside stays text: no markup, no link, no mention and no HTML is made of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from faultline.report.document import (
    MAX_IDS,
    Block,
    Bullets,
    Cell,
    Document,
    Grid,
    Link,
    Number,
    Pairs,
    Paragraph,
    Picture,
    Raw,
    references,
)
from streams.model.message import is_web_address, plain, some

MAX_TEXT = 4000
MAX_TITLE = 200
MAX_CELL = 400
_MARKUP = re.compile(r"[\\`*_{}\[\]<>|~#!]")
_ENTITIES = re.compile(r"[@&]|(?<=[A-Za-z]):(?=//)|(?<=[Ww]{3})\.")
"""What would become a mention, an entity or an address: as an entity it stays a plain character."""
_LINE_START = re.compile(r"\A(\d{1,9}(?=[.)](?:\s|$))|(?=[-+=]))(.)")
"""What would begin a list or underline a heading."""


def markdown(document: Document) -> str:
    """The document as Markdown (GitHub's), with a newline at its end. The same document gives the same text."""
    return "\n".join(_lines(document)).rstrip("\n") + "\n"


def _lines(document: Document) -> Iterator[str]:
    yield f"# {text(document.title, MAX_TITLE)}"
    yield ""
    if document.lead:
        yield from (text(document.lead), "")
    numbered = references(document)
    for section in document.sections:
        yield from (f"## {text(section.title)}", "")
        for block in section.blocks:
            if not isinstance(block, Picture):
                yield from (*_block(block, numbered), "")
    if numbered:
        yield from ("## Incidents behind the numbers", "")
        for incidents, number in numbered.items():
            yield f"- \\[{number}\\] {text(some(incidents, MAX_IDS))}"
        yield ""
    if document.footer:
        yield from ("---", "")
        for line in document.footer:
            yield f"{text(line)}  "


def _block(block: Block, numbered: Mapping[tuple[str, ...], int]) -> Iterator[str]:
    match block:
        case Paragraph(words, quiet):
            yield f"_{text(words)}_" if quiet and words else text(words)
        case Pairs(pairs):
            yield from ("| | |", "|---|---|")
            for label, value in pairs:
                yield f"| {text(label)} | {_cell(value, numbered)} |"
        case Grid(columns, rows, numeric):
            yield f"| {' | '.join(map(text, columns))} |"
            yield f"|{'|'.join('--:' if column in numeric else '---' for column in columns)}|"
            for row in rows:
                yield f"| {' | '.join(_cell(cell, numbered) for cell in row)} |"
        case Bullets(items):
            for item in items:
                yield f"- {text(item)}"
        case Raw(label, lines):
            yield from (text(label), "")
            lines = plain(lines, MAX_TEXT)
            # A fence longer than any run of backquotes inside it cannot be closed by them.
            runs = [len(run) for run in re.findall(r"`+", lines)]
            fence = "`" * max(3, max(runs, default=0) + 1)
            yield from (f"{fence}text", lines, fence)


def _cell(cell: Cell, numbered: Mapping[tuple[str, ...], int]) -> str:
    match cell:
        case Link(words, url):
            words = text(words, MAX_CELL)
            return f"[{words}](<{url}>)" if is_web_address(url) else words
        case Number(words, incidents):
            note = f" \\[{numbered[incidents]}\\]" if incidents else ""
            return text(words, MAX_CELL) + note
        case _:
            return text(cell, MAX_CELL)


def text(words: str, limit: int = MAX_TEXT) -> str:
    """One line of text in which nothing is markup."""
    line = " ".join(plain(words, limit).split())
    line = _ENTITIES.sub(lambda found: f"&#{ord(found[0])};", line)
    line = _MARKUP.sub(lambda found: found[0] if _is_entity(line, found.start()) else f"\\{found[0]}", line)
    return _LINE_START.sub(r"\1\\\2", line)


def _is_entity(line: str, at: int) -> bool:
    """Whether the `#` at this place is of an entity that was just made: every other `&` has become one itself."""
    return line[at] == "#" and at > 0 and line[at - 1] == "&"
