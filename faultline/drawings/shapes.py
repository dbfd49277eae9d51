"""What a drawing is made of. Shapes name what they mean (`bad`, `muted` …); their colours are in `render.py`.

A drawing is `WIDTH` units wide, whatever it shows: on a phone a unit is a little less than a pixel, so text of 11 units stays
readable there, and a page that has more room caps the width (`drawing.css`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

WIDTH = 440
MARGIN = 12
RIGHT = WIDTH - MARGIN

Ink = Literal[
    "ink", "muted", "line", "surface", "paper", "bad", "bad-soft", "active", "asking", "good", "quiet", "info"
]
"""What a colour stands for. The words beside a shape always say the same: colour is never the only carrier."""
Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True, slots=True)
class Rect:
    """A box. `hint` is shown by a pointer that rests on it."""

    x: float
    y: float
    width: float
    height: float
    fill: Ink | None = None
    stroke: Ink | None = None
    radius: float = 0
    dashed: bool = False
    hint: str = ""
    shape: Literal["rect"] = "rect"


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line."""

    x1: float
    y1: float
    x2: float
    y2: float
    stroke: Ink = "line"
    width: float = 1
    dashed: bool = False
    shape: Literal["line"] = "line"


@dataclass(frozen=True, slots=True)
class Dot:
    """A small circle; hollow without `fill`."""

    x: float
    y: float
    radius: float
    fill: Ink | None = None
    stroke: Ink | None = None
    hint: str = ""
    shape: Literal["dot"] = "dot"


@dataclass(frozen=True, slots=True)
class Diamond:
    """A moment of decision; hollow without `fill`."""

    x: float
    y: float
    radius: float
    fill: Ink | None = None
    stroke: Ink | None = None
    hint: str = ""
    shape: Literal["diamond"] = "diamond"


@dataclass(frozen=True, slots=True)
class Text:
    """One line of text; `y` is its base line."""

    x: float
    y: float
    text: str
    size: float = 12
    fill: Ink = "ink"
    anchor: Anchor = "start"
    bold: bool = False
    shape: Literal["text"] = "text"


Shape = Rect | Line | Dot | Diamond | Text


@dataclass(frozen=True, slots=True)
class Drawing:
    """Shapes from back to front. `title` names it, and `description` tells in words what it shows, for screen readers."""

    name: str
    title: str
    description: str
    height: float
    shapes: tuple[Shape, ...] = field(default=())
