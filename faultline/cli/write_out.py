"""Where a page goes: to stdout, or to a file that is whole or not there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click

from faultline.cli import terminal
from streams.model.errors import BadInput

FORMATS = ("md", "html", "json")
_SUFFIXES = {".md": "md", ".markdown": "md", ".html": "html", ".htm": "html", ".json": "json"}


def format_of(chosen: str | None, out: Path | None) -> str:
    """The format that was asked for, else the one of the file's name, else Markdown."""
    return chosen or (_SUFFIXES.get(out.suffix.lower(), "md") if out is not None else "md")


def check_target(out: Path) -> None:
    """Say before long work that its page could not be written afterwards.

    Raises:
        BadInput: when its directory is not there, or nothing may be written into it.
    """
    if not out.parent.is_dir():
        raise BadInput(f"{out}: there is no directory {out.parent}")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        raise BadInput(f"{out}: nothing may be written into {out.parent}")


def write_out(text: str, out: Path | None) -> None:
    """Write a page. An existing file is replaced at once, so that a reader never sees half of one.

    Raises:
        BadInput: when the file cannot be written.
    """
    if out is None:
        with terminal.paged():
            click.echo(text, nl=False)
        return
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=out.parent, prefix=f".{out.name}.", delete=False
        ) as file:
            file.write(text)
        # A temporary file is for its owner only; a report is as readable as any other file that is made here.
        mask = os.umask(0)
        os.umask(mask)
        Path(file.name).chmod(0o666 & ~mask)
        Path(file.name).replace(out)
    except OSError as error:
        raise BadInput(f"{out}: {error.strerror or error}") from error
    click.echo(f"wrote {out}", err=True)
