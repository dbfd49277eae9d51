"""`faultline rules lint|test`: the tables of correlation, and those of a site laid over them. Needs no broker."""

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
    "rules",
    cls=Group,
    epilog=examples(
        ("faultline rules lint", "families, policy and the other tables"),
        ("faultline rules test", "and whether every signal falls under its row"),
    ),
)
def command() -> None:
    """Lint and test the tables of correlation: families, which signal belongs to which, policy."""


@command.command(
    "lint", epilog=examples("faultline rules lint", "faultline rules lint --strict -o json", exits=LINT_EXITS)
)
@folder_argument
@strict_option
@lint_output_option
@click.pass_context
def lint_command(ctx: click.Context, folder: Path | None, strict: bool, output: str) -> None:
    """Lint the tables of correlation: values that do not fit, unknown kinds and families, rows that are never reached, families
    without a runbook, and waits that outlast what the settings keep.

    FOLDER is what a site lays over them (default: what FAULTLINE_CATALOG_DIR names); then only findings in its files are shown.
    """
    lay_nothing_over()
    from faultline.cli.lint_output import families_and_uncovered
    from faultline.lint.rules import lint_rules, tables
    from faultline.runtime.settings import load

    lay_over(folder)
    found, findings = tables(folder)
    _, uncovered = families_and_uncovered(ctx.obj)
    findings += lint_rules(found, load(ctx.obj).correlator, uncovered)
    counted = {"tables": len(found)}
    ctx.exit(show_findings(in_folder(findings, folder), counted, output, strict=strict, what="rules-lint"))


@command.command("test", epilog=examples("faultline rules test", exits=TEST_EXITS))
@folder_argument
@output_option
@click.pass_context
def test_command(ctx: click.Context, folder: Path | None, output: str) -> None:
    """For each row of signals: what it describes falls under it and under its family, and can be told in its words.
    FOLDER is what a site lays over the tables.
    """
    lay_over(folder)
    from faultline.lint.rules import FAMILIES, rule_cases
    from streams.correlate.policy.families import families

    ctx.exit(show_cases([(FAMILIES, one) for one in rule_cases(families())], output))
