"""`faultline detect [FILE…]`: the signals in log lines, one JSON object a line; needs no broker."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click

from faultline.cli.output import json_line
from streams.model.clock import parse_rfc3339, utc_now
from streams.model.errors import BadInput


@click.command("detect")
@click.argument(
    "files", nargs=-1, type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True)
)
@click.option("--now", "at", default=None, help="Time of lines without a timestamp, RFC 3339 (default: now).")
@click.option(
    "--output", "-o", type=click.Choice(["json"]), default="json", help="Output format (JSON lines only)."
)
@click.pass_obj
def command(config: Path | None, files: tuple[Path, ...], at: str | None, output: str) -> None:
    """Read log lines from FILES, or from standard input, and print a JSON line per signal.

    A line is raw text, or JSON `{"id", "text", "node"?, "time"?, "source"?}` whose `text` may hold several lines. `ref` in the
    output is the record's `id`, else its line number.
    """
    from faultline.runtime.settings import load
    from streams.detect import cli_records
    from streams.model.codec import encode_plain

    now = parse_rfc3339(at) if at else utc_now()
    cluster = load(config).cluster
    for source in files or (Path("-"),):
        for ref, signal in cli_records(_lines(source), cluster=cluster, now=now):
            json_line({"ref": ref, **encode_plain(signal)})


def _lines(source: Path) -> Iterator[str]:
    """Lines of a file. Bytes that are not UTF-8 are replaced, so that one bad line does not hide the rest."""
    if str(source) == "-":
        yield from _decoded(sys.stdin.buffer)
        return
    try:
        with source.open("rb") as content:
            yield from _decoded(content)
    except OSError as error:
        raise BadInput(f"cannot read {source}: {error.strerror}") from error


def _decoded(content: BinaryIO) -> Iterator[str]:
    return (line.decode("utf-8", "replace") for line in content)
