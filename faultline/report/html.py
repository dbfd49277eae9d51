"""A document as one HTML file: pictures inside, nothing loaded from anywhere, no script, and it prints well."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from faultline.drawings import drawing_css
from faultline.report.document import MAX_IDS, Document, references
from streams.model.message import is_web_address, plain, some

_HERE = Path(__file__).parent
MAX_TEXT = 2000
"""Characters of any one text."""


def html(document: Document) -> str:
    """The document as a page that opens without a network. The same document gives the same text."""
    return _environment().get_template("page.html.j2").render(
        page=document,
        numbered=references(document),
        css=Markup(drawing_css() + (_HERE / "page.css").read_text(encoding="utf-8")),
    )  # fmt: skip


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"plain": _plain, "drawn": _drawn, "listed": _listed}
    made.tests |= {"web": is_web_address}
    return made


def _plain(text: str, limit: int = MAX_TEXT) -> str:
    return plain(text, limit)


def _listed(incidents: Sequence[str]) -> str:
    return some(incidents, MAX_IDS)


def _drawn(svg: str) -> Markup:
    """A drawing of `faultline.drawings`: its template has escaped everything in it."""
    return Markup(svg)
