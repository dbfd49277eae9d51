"""A page before anybody decides how it is written: the blocks that Markdown and HTML are made of.

Every text is taken as untrusted: the writers escape it. A `Number` carries the incidents that made it, to be checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

MAX_IDS = 80
"""Ids that a page lists behind one number; the JSON has them all."""


@dataclass(frozen=True, slots=True)
class Link:
    """A text that leads to an address of the web. Where the address is no plain one, only the text is shown."""

    text: str
    url: str


@dataclass(frozen=True, slots=True)
class Number:
    """A figure with the ids of the incidents that made it; they are listed at the end of the page."""

    text: str
    incidents: tuple[str, ...] = ()


Cell = str | Link | Number


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text; `quiet` asks for small print."""

    text: str
    quiet: bool = False
    type: Literal["paragraph"] = "paragraph"


@dataclass(frozen=True, slots=True)
class Pairs:
    """Labels with their values, one below the other."""

    pairs: tuple[tuple[str, Cell], ...]
    type: Literal["pairs"] = "pairs"


@dataclass(frozen=True, slots=True)
class Grid:
    """A table. Columns named in `numeric` are set to the right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numeric: tuple[str, ...] = ()
    type: Literal["grid"] = "grid"


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list."""

    items: tuple[str, ...]
    type: Literal["bullets"] = "bullets"


@dataclass(frozen=True, slots=True)
class Raw:
    """Raw lines, shown as they are, under where they come from."""

    label: str
    text: str
    type: Literal["raw"] = "raw"


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing of our own, as SVG. Markdown leaves it out: the tables of the page say the same."""

    svg: str
    type: Literal["picture"] = "picture"


Block = Paragraph | Pairs | Grid | Bullets | Raw | Picture


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what is below it."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Document:
    """A whole page. `footer` is small print: what it was made of."""

    title: str
    lead: str
    sections: tuple[Section, ...]
    footer: tuple[str, ...] = field(default=())

    def numbers(self) -> Iterator[Number]:
        """Every number that carries incidents, in the order of the page."""
        for section in self.sections:
            for block in section.blocks:
                for cell in _cells(block):
                    if isinstance(cell, Number) and cell.incidents:
                        yield cell


def references(document: Document) -> dict[tuple[str, ...], int]:
    """A number, from 1, for each different list of incidents that a page refers to."""
    found: dict[tuple[str, ...], int] = {}
    for number in document.numbers():
        found.setdefault(number.incidents, len(found) + 1)
    return found


def _cells(block: Block) -> Iterator[Cell]:
    match block:
        case Pairs(pairs):
            yield from (value for _, value in pairs)
        case Grid(_, rows):
            yield from (cell for row in rows for cell in row)
