"""Shapes as SVG text, through one template that escapes everything.

Colours are attributes, which any style sheet overrules by the class beside them. So a drawing needs no `<style>` of its own (a
strict Content-Security-Policy would drop it), looks right alone, and follows the page's dark mode where `drawing_css()` is there.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from faultline.drawings.shapes import WIDTH, Drawing
from faultline.drawings.words import clean
from streams.model.digest import digest

_HERE = Path(__file__).parent
_INKS = {
    "ink": "#1f2933",
    "muted": "#5f6b7a",
    "line": "#dde3ea",
    "surface": "#f4f6f9",
    "paper": "#ffffff",
    "bad": "#c53a32",
    "bad-soft": "#fdeceb",
    "active": "#9a5f08",
    "asking": "#7a4fc0",
    "good": "#2a7d52",
    "quiet": "#97a3b2",
    "info": "#3273b8",
}
"""The colours of a drawing on a light page. Those of text have a contrast of 4.5 to 1 or more; `quiet` and `line` are no text."""


def svg_of(drawing: Drawing) -> str:
    """The drawing as an `<svg>` element, the same for the same drawing."""
    name = digest(drawing.name, size=6)
    template = _environment().get_template("drawing.svg.j2")
    return template.render(
        drawing=drawing, width=WIDTH, inks=_INKS, title_id=f"fl-{name}-t", description_id=f"fl-{name}-d"
    )


@cache
def drawing_css() -> str:
    """The style sheet for pages that show drawings: their greatest width, and their colours by class, in light and dark."""
    return (_HERE / "drawing.css").read_text(encoding="utf-8")


def standalone(svg: str) -> str:
    """A drawing as a file of its own: with its style sheet, so that it follows the reader's dark mode, and with a background."""
    head, bracket, rest = svg.partition(">")
    paper = f'<rect width="100%" height="100%" fill="{_INKS["paper"]}" class="fl-f-paper"/>'
    return f"{head}{bracket}\n<style>\n{drawing_css()}</style>\n{paper}{rest}\n"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
    )
    made.filters |= {"n": _number, "clean": clean}
    return made


def _number(value: float) -> str:
    """At most one decimal: more would only make files longer, and differ between processors."""
    text = f"{value:.1f}"
    return text.removesuffix(".0")
