"""A what-if as people read it in a terminal: what was edited, the figures, then each incident that differs, with why."""

from __future__ import annotations

from collections.abc import Iterator

import click

from faultline.cli.output import MAX_CELL, table
from faultline.replay.difference import Difference, Pair
from faultline.replay.what_if.figures import counted, headline
from faultline.replay.what_if.result import WhatIf
from faultline.replay.what_if.structure_text import lines, rows
from streams.model.clock import moment
from streams.model.message import plain


def show_what_if(found: WhatIf) -> None:
    """Print it."""
    click.echo(headline(found))
    for edit in found.edits:
        click.echo(f"  {_plain(str(edit))}")
    if not found.edits:
        click.echo("  nothing is edited")
    click.echo()
    if found.edits or found.structure is None:
        table(("", "before", "after", ""), counted(found.summary), empty="")
    if found.structure is not None:
        click.echo("\n" if found.edits else "", nl=False)
        table(("structure", "as it was", "as asked", "between"), rows(found.structure), empty="")
        for line in lines(found.structure):
            click.echo(f"  {line}")
    for pair in found.differing:
        click.echo()
        for line in _incident(pair, shows_edits=len(found.edits) > 1):
            click.echo(line)


def _incident(pair: Pair, *, shows_edits: bool) -> Iterator[str]:
    one = pair.either
    ids = " → ".join(dict.fromkeys(side.incident for side in (pair.before, pair.after) if side is not None))
    yield _plain(f"{ids}  {moment(one.fault_at)}  {one.title}")
    said = ""
    for difference in pair.differences:
        why = difference.why_after or difference.why_before
        # Steps of one plan often differ for one reason: it is said once.
        yield from list(_difference(difference, shows_edits=shows_edits))[
            : 1 if why and why == said else None
        ]
        said = why


def _difference(one: Difference, *, shows_edits: bool) -> Iterator[str]:
    yield _plain(f"  {one.what}: {one.before or 'none'} → {one.after or 'none'}")
    for label, why in (("before", one.why_before), ("after", one.why_after)):
        if why:
            yield _plain(f"    {label}: {why}")
    for cause in one.causes if shows_edits else ():
        yield _plain(f"    edit: {cause}")


def _plain(text: str) -> str:
    return plain(text, MAX_CELL)
