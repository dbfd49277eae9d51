"""`faultline whatif SOURCE`: what an edit would have changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultline.cli.arguments import Duration
from faultline.cli.groups import examples
from faultline.cli.main import EXIT_NO
from faultline.cli.output import output_option, show
from faultline.cli.progress import progress
from faultline.cli.write_out import check_target, write_out
from streams.model.errors import BadInput

if TYPE_CHECKING:
    from faultline.replay.what_if.budget import Exceeded
    from faultline.replay.what_if.result import WhatIf
    from faultline.replay.what_if.sides import Given
    from faultline.replay.what_if.structure import Structure

FORMATS = ("markdown", "html", "junit", "sarif")
_SUFFIXES = {".md": "markdown", ".html": "html", ".xml": "junit", ".sarif": "sarif"}
_FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@click.command(
    "whatif",
    epilog=examples(
        ("faultline whatif captures/month --set responder.blast_radius.max_nodes=5", "a guardrail"),
        ("faultline whatif captures/month --runbooks mine --out change.md", "for a review"),
        (
            "faultline whatif captures/month --catalog docs/examples/catalog --budget cordons=0,culprits=0",
            "a check",
        ),
        ("faultline whatif captures/month --checkpoint-every 20m --spares 4", "what it would have saved"),
        exits="0 compared, 1 a budget is exceeded (or, with --fail-on-difference, anything differs), 2 bad input",
    ),
)
@click.argument("source")
@click.option(
    "--from", "begin", metavar="TIME", help="From when on, for an archive or `kafka`: RFC 3339, or 2h ago."
)
@click.option("--to", "end", metavar="TIME", help="Until when, likewise (default: now).")
@click.option(
    "--set", "pairs", multiple=True, metavar="KEY=VALUE", help="Another value of a setting; again for more."
)
@click.option("--settings", "other", type=_FILE, help="Another settings file, for the edited side.")
@click.option(
    "--runbooks", "folders", multiple=True, type=click.Path(path_type=Path, exists=True),
    help="Runbooks in place of those of responder.runbook_dirs; again for more.",
)  # fmt: skip
@click.option(
    "--catalog", type=_FOLDER, help="Rows laid over the detector's catalog and the correlator's tables."
)
@click.option("--topology", type=_FILE, help="Another topology file.")
@click.option(
    "--spares", type=click.IntRange(min=0), help="Spare nodes, beyond those there were: what would jobs wait?"
)
@click.option(
    "--checkpoint-every", type=Duration(), help="Checkpoints so far apart, e.g. 20m: what would be repeated?"
)
@click.option(
    "--drain-grace",
    type=Duration(),
    help="Drains that take no longer, e.g. 300: how much sooner would jobs run?",
)
@click.option(
    "--budget", "budgets", multiple=True, metavar="KEY=N,…",
    help="Exit with 1 when more than that differs: cordons=0,culprits=0,pages=2,gpu_hours=10 …",
)  # fmt: skip
@click.option("--fail-on-difference", is_flag=True, help="Exit with 1 when anything differs.")
@click.option(
    "--format", "chosen", type=click.Choice(FORMATS), help="Format of --out (default: by its name)."
)
@click.option(
    "--out", "files", multiple=True, type=click.Path(path_type=Path, dir_okay=False),
    help="File to write, besides what is printed: .md, .html, .xml (JUnit) or .sarif; again for more.",
)  # fmt: skip
@click.option(
    "--changed-ok", is_flag=True, help="Take a capture whose files are not what its manifest.json says."
)
@output_option
@click.pass_context
def command(
    ctx: click.Context, source: str, begin: str | None, end: str | None, pairs: tuple[str, ...],
    other: Path | None, folders: tuple[Path, ...],
    catalog: Path | None, topology: Path | None, spares: int | None, checkpoint_every: float | None,
    drain_grace: float | None, budgets: tuple[str, ...], *, fail_on_difference: bool, changed_ok: bool,
    chosen: str | None, files: tuple[Path, ...], output: str,
) -> None:  # fmt: skip
    """Decide the records of SOURCE twice, as it is and with an edit, and show what differs, with why.

    SOURCE is a capture's directory, an archive's directory or address, or `kafka`. The settings and runbooks that a capture
    holds count, unless `faultline --config` names others. Nothing is called, and nothing is changed anywhere.
    """
    from faultline.cli.replay_runs import ReplayOrder, times_of
    from faultline.cli.what_if_text import show_what_if
    from faultline.replay.what_if.budget import exceeded, read_budget
    from faultline.replay.what_if.result import what_if
    from faultline.replay.what_if.sides import Given, names_without_effect, sides
    from faultline.replay.what_if.structure import Structure
    from faultline.runtime.settings import load

    budget, kinds = read_budget(budgets), _formats(chosen, files)
    given = Given(pairs, other, folders, catalog, topology)
    settings, asked = load(ctx.obj), Structure(spares, checkpoint_every, drain_grace)
    _check_edit(given, asked, is_check=bool(budgets) or fail_on_difference, is_kept=bool(files))
    order = ReplayOrder(settings, None, None, changed_ok=changed_ok)
    with order.opened(source, *times_of(begin, end)) as capture:
        both = sides(capture, settings, given, are_chosen=ctx.obj is not None)
        if given != Given() and not both.edits:
            click.echo("the edit changes nothing: both sides are the same", err=True)
        for name in names_without_effect(both.edits):
            click.echo(f"{name}: no replay decides by it", err=True)
        with progress(f"replaying {source}", 2 if both.edits else 1, "sides") as shown:
            found = what_if(source, both, asked, shown.advance)
    over = exceeded(found.summary, budget)
    for out, kind in kinds.items():
        write_out(_written(found, kind, over, fail_all=fail_on_difference), out)
    show(output, found.lines(), lambda: show_what_if(found))
    for one in over:
        click.echo(f"over budget: {one}", err=True)
    ctx.exit(EXIT_NO if over or (fail_on_difference and found.summary.differs) else 0)


def _check_edit(given: Given, asked: Structure, *, is_check: bool, is_kept: bool) -> None:
    """Say that nothing is edited. A check that compares a source with itself is never over budget: it is refused."""
    from faultline.replay.what_if.sides import Given

    if given != Given() or (asked.is_asked and not is_check):
        return
    told = "nothing is edited: give --set, --settings, --runbooks, --catalog or --topology"
    if is_check or is_kept:
        raise BadInput(f"{told} (`faultline --config` is that of both sides)")
    click.echo(f"{told}; the source is compared with itself", err=True)


def _formats(chosen: str | None, files: tuple[Path, ...]) -> dict[Path, str]:
    """The format of each file. Raises BadInput where nothing says it, or where it cannot be written."""
    if chosen is not None and len(files) != 1:
        raise BadInput("--format is that of one --out FILE; what is printed has --output")
    kinds = {file: chosen or _SUFFIXES.get(file.suffix.lower(), "") for file in files}
    if unknown := [str(file) for file, kind in kinds.items() if not kind]:
        raise BadInput(
            f"{', '.join(unknown)}: what format? Say --format, or end it with {', '.join(_SUFFIXES)}"
        )
    for file in kinds:
        check_target(file)
    return kinds


def _written(found: WhatIf, kind: str, over: Sequence[Exceeded], *, fail_all: bool) -> str:
    from faultline.replay.what_if.check_files import junit, sarif
    from faultline.replay.what_if.page import html_of, markdown_of

    if kind in ("junit", "sarif"):
        return (junit if kind == "junit" else sarif)(found, over, fail_all=fail_all)
    return (html_of if kind == "html" else markdown_of)(found, over)
