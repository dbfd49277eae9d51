"""`faultline detect [FILE…]`: the signals in log lines, one JSON object a line; needs no broker."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from faultline.cli.groups import examples
from faultline.cli.output import FORMATS, record, table
from streams.model.clock import moment, parse_rfc3339, utc_now
from streams.model.errors import BadInput

if TYPE_CHECKING:
    from streams.model.signal import Signal


@click.command(
    "detect",
    epilog=examples(
        ("faultline detect /var/log/kern.log", "one JSON object for each signal"),
        ("journalctl -k -o short-iso | faultline detect -o table", "what this machine's kernel has said"),
    ),
)
@click.argument(
    "files", nargs=-1, type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True)
)
@click.option("--now", "at", default=None, help="Time of lines without a timestamp, RFC 3339 (default: now).")
@click.option(
    "--output", "-o", type=click.Choice(FORMATS), default="json", show_default=True,
    help="One JSON object a line, a YAML document each, or a table.",
)  # fmt: skip
@click.pass_obj
def command(config: Path | None, files: tuple[Path, ...], at: str | None, output: str) -> None:
    """Read log lines from FILES, or from standard input, and print the signals.

    A line is raw text, or JSON `{"id", "text", "node"?, "time"?, "source"?}` whose `text` may hold several lines. `ref` in the
    output is the record's `id`, else its line number.
    """
    from faultline.runtime.settings import load
    from streams.detect import cli_records
    from streams.model.codec import encode_plain

    now = parse_rfc3339(at) if at else utc_now()
    cluster = load(config).cluster
    found = (
        one
        for source in files or (Path("-"),)
        for one in cli_records(_lines(source), cluster=cluster, now=now)
    )
    if output == "table":
        rows = (
            (ref, moment(s.occurred_at), s.kind, s.severity.value, s.entity, s.count, _text(s))
            for ref, s in found
        )
        table(("line", "at", "signal", "severity", "where", "count", "text"), rows, empty="no signals")
        return
    for ref, signal in found:
        record(output, {"ref": ref, **encode_plain(signal)})


def _text(found: Signal) -> str:
    return found.evidence[0].text if found.evidence else ""


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
