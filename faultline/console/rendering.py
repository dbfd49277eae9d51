"""Pages from templates, and the headers every answer carries.

All that is shown was written by others: log lines, names of jobs, people's reasons. Jinja escapes it, `plain` takes out what no
reader wants to see and bounds its length, and the content policy lets the browser run and load nothing but our own files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from aiohttp import web
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from faultline.drawings import drawing_css
from streams.model.clock import rfc3339
from streams.model.digest import digest
from streams.model.message import is_web_address, plain

MAX_TEXT = 4_000
"""Characters of one value on a page, however long it is where it comes from."""

HERE = Path(__file__).parent

HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Not `no-referrer`: with it a browser calls the origin of our own forms `null`.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class Age:
    """Since when something is so, seen from `now`: `12 min`."""

    def __init__(self, at: datetime, now: datetime) -> None:
        self.iso = rfc3339(at.replace(microsecond=0))
        self.utc = at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        self.clock = at.astimezone(UTC).strftime("%H:%M:%S")
        self.day = at.astimezone(UTC).strftime("%d %b")
        self.text = short(now - at) if at <= now else f"in {short(at - now)}"


def short(span: timedelta) -> str:
    """A duration at a glance: `40 s`, `12 min`, `3 h 5 min`, `4 d 2 h`."""
    seconds = max(0, int(span.total_seconds()))
    if seconds < 60:
        return f"{seconds} s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 60:
        return f"{minutes} min"
    if hours < 24:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{days} d {hours % 24} h" if hours % 24 else f"{days} d"


def page(name: str, *, status: int = 200, **values: Any) -> web.Response:
    """A page of the console."""
    text = _environment().get_template(name).render(**values)
    return web.Response(text=text, status=status, content_type="text/html", headers=HEADERS)


def text_of(name: str, **values: Any) -> str:
    """A page's text alone, without an answer around it."""
    return _environment().get_template(name).render(**values)


def static_files() -> Mapping[str, tuple[bytes, str]]:
    """The console's own files by name, each with its content type."""
    return _static()


@cache
def _static() -> dict[str, tuple[bytes, str]]:
    types = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
    return {**dict(_files(types)), "drawing.css": (drawing_css().encode(), "text/css")}


def _files(types: Mapping[str, str]) -> Iterator[tuple[str, tuple[bytes, str]]]:
    for path in sorted((HERE / "static").iterdir()):
        if path.suffix in types:
            yield path.name, (path.read_bytes(), types[path.suffix])


@cache
def address(name: str) -> str:
    """Where a file of the console is; it changes with the file, so browsers may keep it for long."""
    content, _ = _static()[name]
    return f"/static/{name}?v={digest(content.hex(), size=5)}"


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_bounded,
    )
    made.globals["static"] = address
    made.filters["words"] = _words
    made.filters["link"] = _link
    made.filters["short"] = short
    made.filters["brief"] = plain
    return made


def _bounded(value: object) -> object:
    if isinstance(value, Markup | int | float):
        return value
    return plain(str(value), MAX_TEXT)


def _words(name: str) -> str:
    """A name of the code for people: `awaiting_human` is `awaiting human`."""
    return name.replace("_", " ")


def _link(url: str) -> str:
    """An address where it may be a link, else nothing: never `javascript:` and the like."""
    return url if is_web_address(url) else ""
