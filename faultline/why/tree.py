"""A tree of sentences: printed with guides and folded to fit a terminal, or written as JSON with what programs read beside it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

DEPTH = 3
"""Levels that are shown unless more are asked for."""
MOST = 8
"""Branches of one kind that are shown below one, unless all are asked for."""
_LEAST_WIDTH = 24

Paint = Callable[[str, str], str]
"""Text and the kind of its branch → the text as the terminal shows it."""


@dataclass(frozen=True, slots=True)
class Branch:
    """One sentence and what is below it. `kind` and the names of `values` are stable: programs read them."""

    kind: str
    text: str
    branches: tuple[Branch, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """As plain values for JSON and YAML, nothing folded."""
        below = {"branches": [branch.plain() for branch in self.branches]} if self.branches else {}
        return {"kind": self.kind, "text": self.text, **self.values, **below}


def branch(kind: str, text: str, below: Iterable[Branch | None] = (), **values: Any) -> Branch:
    """A branch; what is None among those below it, and among its values, is left out."""
    return Branch(
        kind,
        text,
        tuple(one for one in below if one is not None),
        {name: value for name, value in values.items() if value is not None},
    )


def lines(
    tree: Branch,
    *,
    depth: int | None = None,
    most: int | None = None,
    width: int | None = None,
    paint: Paint = lambda text, kind: text,
) -> Iterator[str]:
    """The tree as lines.

    Args:
        tree: Its root's text is the first line.
        depth: Levels below the root that are shown; None for all.
        most: Branches that are shown below one; None for all.
        width: Columns to wrap at; None where lines may be as long as they need.
        paint: Colours a text.
    """
    yield from _wrapped(tree, "", "", width, paint)
    yield from _below(tree, "", depth, most, width, paint)


def _below(
    tree: Branch, guide: str, depth: int | None, most: int | None, width: int | None, paint: Paint
) -> Iterator[str]:
    if depth == 0:
        return
    shown = list(tree.branches[:most])
    if (more := len(tree.branches) - len(shown)) > 0:
        shown.append(Branch("more", f"… and {more} more (--all)"))
    for number, one in enumerate(shown, start=1):
        last = number == len(shown)
        first, rest = guide + ("└─ " if last else "├─ "), guide + ("   " if last else "│  ")
        folded = depth == 1 and bool(one.branches)
        text = f"{one.text}  (+{len(one.branches)})" if folded else one.text
        yield from _wrapped(Branch(one.kind, text), first, rest, width, paint)
        yield from _below(one, rest, None if depth is None else depth - 1, most, width, paint)


def _wrapped(one: Branch, first: str, rest: str, width: int | None, paint: Paint) -> Iterator[str]:
    text = printable(one.text, None)
    if width is None:
        yield first + paint(text, one.kind)
        return
    room = max(_LEAST_WIDTH, width - len(first))
    pieces = textwrap.wrap(text, room, break_on_hyphens=False) or [""]
    yield first + paint(pieces[0], one.kind)
    for piece in pieces[1:]:
        yield rest + paint(piece, one.kind)


def printable(text: str, limit: int | None = 160) -> str:
    """Log text made safe for a terminal: control characters escaped, cut at `limit` characters."""
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return safe if limit is None or len(safe) <= limit else safe[: limit - 1] + "…"
