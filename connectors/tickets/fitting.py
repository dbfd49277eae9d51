"""A message cut to the room that a field has: the facts always fit, and a long text is cut where the room ends, never dropped.

Systems count a field in UTF-16 units, so a pictograph counts as two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from connectors.rendering.simple_blocks import SimpleBlock, simple
from streams.model.message import Block, Facts, plain

MORE = "… more than a ticket takes; the rest is in the incident's timeline."

CELLS = (1000, 250, 80, 30)
"""Characters that a value among the facts may have: the first at which all of them fit."""

_GAP = 2
"""What stands between two blocks."""
_SLACK = 0.98
_LEAST = 40
"""Room that is not worth the beginning of a text."""

P = TypeVar("P")


def units(text: str) -> int:
    """The length of a text as Jira and ServiceNow count it."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def fitted(
    blocks: Iterable[Block],
    room: int,
    render: Callable[[SimpleBlock, int], tuple[P | None, bool]],
    size: Callable[[P], int],
    more: P,
) -> list[P]:
    """The blocks in their order, within `room`, and `more` where something is missing.

    `render` returns a block within the room that it is told, None where nothing of it fits, and whether it is whole. Facts come
    first and take half of the room at most; the others share what is left, in their order, until one is cut.
    """
    simple_blocks = [simple(block) for block in blocks]
    shown: dict[int, P] = {}
    left, for_facts, whole = room - size(more) - _GAP, room // 2, True
    for number, block in enumerate(simple_blocks):
        if isinstance(block, Facts):
            part, complete = render(block, for_facts - _GAP)
            whole &= complete
            if part is not None:
                shown[number] = part
                left -= size(part) + _GAP
                for_facts -= size(part) + _GAP
    cut_at = None if whole else len(simple_blocks)
    for number, block in enumerate(simple_blocks):
        if isinstance(block, Facts):
            continue
        part, complete = render(block, left - _GAP)
        if part is not None:
            shown[number] = part
            left -= size(part) + _GAP
        if not complete:
            cut_at = number
            break
    before = [part for number, part in sorted(shown.items()) if cut_at is None or number <= cut_at]
    after = [part for number, part in sorted(shown.items()) if cut_at is not None and number > cut_at]
    return [*before, *([] if cut_at is None else [more]), *after]


def longest(
    text: str, room: int, render: Callable[[str], P], size: Callable[[P], int]
) -> tuple[P | None, bool]:
    """The longest beginning of a text that fits once it is rendered, and whether it is the whole text."""
    if room < _LEAST:
        return None, not plain(text, max(len(text), 1)).strip()
    kept = min(len(text), room) or 1
    whole = len(plain(text, kept + 1)) <= kept
    while True:
        part = render(plain(text, kept))
        if (taken := size(part)) <= room:
            return part, whole
        # Escapes are spread evenly in most texts, so that this is over after a step or two.
        kept, whole = int(kept * room / taken * _SLACK), False
        if kept < 1:
            return None, False


def rows_that_fit(head: Sequence[str], rows: Sequence[str], room: int, most: int) -> tuple[str | None, bool]:
    """The lines of a table from its first, and whether all of its rows are there."""
    left = room - sum(units(line) + 1 for line in head)
    kept: list[str] = []
    for row in rows[:most]:
        left -= units(row) + 1
        if left < 0:
            break
        kept.append(row)
    if left < 0 and not kept:
        return None, False
    return "\n".join([*head, *kept]), len(kept) == len(rows)
