"""What the terminal of a command is like: whether it shows colours, how wide it is, and whether long output is paged."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO

import click

COLORS = ("auto", "always", "never")
_PAGER = "faultline.pager"
_WIDTH_WITHOUT_TERMINAL = 200


def set_up(ctx: click.Context, color: str, *, pager: bool) -> None:
    """Keep what was asked for, for this command and all below it. `auto` is a terminal's default unless `NO_COLOR` is set."""
    ctx.color = {"always": True, "never": False}.get(color, False if os.environ.get("NO_COLOR") else None)
    ctx.meta[_PAGER] = pager


def has_colors() -> bool:
    """Whether what goes to stdout may be coloured."""
    ctx = click.get_current_context(silent=True)
    chosen = ctx.color if ctx is not None else None
    return sys.stdout.isatty() if chosen is None else chosen


def width() -> int:
    """Columns that a table may take. What is no terminal gets long lines: it is read by programs, or kept."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL


@contextmanager
def paged() -> Iterator[None]:
    """What is printed within goes to the pager (`$PAGER`) where it is longer than the terminal; never when stdout is piped."""
    if not _may_page():
        yield
        return
    page = _Page()
    try:
        with redirect_stdout(page):
            yield
    finally:
        # Also after an error: what was found until then is shown above it.
        text = page.getvalue()
        if text.count("\n") >= shutil.get_terminal_size().lines:
            click.echo_via_pager(text)
        else:
            click.echo(text, nl=False)


class _Page(StringIO):
    """Holds what goes to a terminal: tables are laid out for that, and colours stay."""

    def isatty(self) -> bool:
        return True


def _may_page() -> bool:
    ctx = click.get_current_context(silent=True)
    wanted = ctx is not None and ctx.meta.get(_PAGER, False)
    return bool(wanted) and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
