"""`faultline scenario lint|test`: files of scenarios for the simulation. Needs no broker."""

from __future__ import annotations

from pathlib import Path

import click

from faultline.cli.groups import Group, examples
from faultline.cli.lint_output import (
    LINT_EXITS,
    TEST_EXITS,
    lint_output_option,
    show_cases,
    show_findings,
    strict_option,
)
from faultline.cli.output import output_option

_FILES = click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False)
)


@click.group(
    "scenario",
    cls=Group,
    epilog=examples(
        ("faultline scenario lint bench/scenarios.yaml", "is each right?"),
        ("faultline scenario test bench/scenarios.yaml --name gpu_off_bus", "can it be played?"),
    ),
)
def command() -> None:
    """Lint scenarios of the simulation, and try whether they can be played."""


@command.command("lint", epilog=examples("faultline scenario lint bench/scenarios.yaml", exits=LINT_EXITS))
@_FILES
@strict_option
@lint_output_option
@click.pass_context
def lint_command(ctx: click.Context, files: tuple[Path, ...], strict: bool, output: str) -> None:
    """Lint files of scenarios: values that do not fit, unknown kinds and sites, names that are there twice, faults that can
    happen nowhere, and scenarios in which nothing happens.
    """
    from sandbox.scenario_lint import lint_scenarios

    findings, count = lint_scenarios(files)
    ctx.exit(show_findings(findings, {"scenarios": count}, output, strict=strict, what="scenario-lint"))


@command.command(
    "test",
    epilog=examples(
        "faultline scenario test bench/scenarios.yaml --name gpu_off_bus --nodes 16", exits=TEST_EXITS
    ),
)
@_FILES
@click.option("--name", "names", multiple=True, help="Only this scenario. Default: all of the files.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the simulation.")
@click.option("--nodes", type=click.IntRange(4, 4096), help="On a cluster of this size.")
@output_option
@click.pass_context
def test_command(
    ctx: click.Context,
    files: tuple[Path, ...],
    names: tuple[str, ...],
    seed: int,
    nodes: int | None,
    output: str,
) -> None:
    """Play each scenario twice: its faults find a place, and the same seed gives the same capture, byte for byte."""
    from sandbox.scenario_lint import play_scenarios

    ctx.exit(show_cases(list(play_scenarios(files, names, seed, nodes)), output))
