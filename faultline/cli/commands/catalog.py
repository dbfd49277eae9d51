"""`faultline catalog lint|test`: the detector's rows, and those of a site laid over them. Needs no broker."""

from __future__ import annotations

from pathlib import Path

import click

from faultline.cli.groups import Group, examples
from faultline.cli.lint_output import (
    LINT_EXITS,
    TEST_EXITS,
    folder_argument,
    in_folder,
    lay_nothing_over,
    lay_over,
    lint_output_option,
    show_cases,
    show_findings,
    strict_option,
)
from faultline.cli.output import output_option


@click.group(
    "catalog",
    cls=Group,
    epilog=examples(
        ("faultline catalog lint", "the rows that ship"),
        ("faultline catalog test", "and whether each finds its samples"),
    ),
)
def command() -> None:
    """Lint and test the detector's catalog: codes, log patterns, metric rules, events."""


@command.command(
    "lint",
    epilog=examples("faultline catalog lint", "faultline catalog lint --strict -o sarif", exits=LINT_EXITS),
)
@folder_argument
@strict_option
@lint_output_option
@click.pass_context
def lint_command(ctx: click.Context, folder: Path | None, strict: bool, output: str) -> None:
    """Lint the catalog: values that do not fit, patterns that RE2 refuses, codes with two rows, rows that take each other's
    messages, signals that nothing correlates, families that no runbook handles.

    FOLDER is what a site lays over it (default: what FAULTLINE_CATALOG_DIR names); then only findings in its files are shown.
    """
    lay_nothing_over()
    from faultline.cli.lint_output import families_and_uncovered
    from faultline.lint.catalog import lint_catalog, tables

    lay_over(folder)
    found, findings = tables(folder)
    families, uncovered = families_and_uncovered(ctx.obj)
    findings += lint_catalog(found, families, uncovered)
    counted = {"tables": len(found)}
    ctx.exit(show_findings(in_folder(findings, folder), counted, output, strict=strict, what="catalog-lint"))


@command.command(
    "test",
    epilog=examples("faultline catalog test", "faultline catalog test --table lines/nvrm", exits=TEST_EXITS),
)
@folder_argument
@click.option("--table", "names", multiple=True, help="Only cases of this table, as lines/nvrm or xid.")
@output_option
@click.pass_context
def test_command(ctx: click.Context, folder: Path | None, names: tuple[str, ...], output: str) -> None:
    """Run every sample and look-alike of the catalog through the detector: a row finds its own with their fields, and stays
    silent otherwise. FOLDER is what a site lays over it.
    """
    lay_over(folder)
    from faultline.cli.names import require_known
    from faultline.lint.cases import catalog_cases

    tables = catalog_cases()
    for name in names:
        require_known("table with cases", name, tables)
    results = [(table, one) for table, run in tables.items() if not names or table in names for one in run()]
    ctx.exit(show_cases(results, output))
