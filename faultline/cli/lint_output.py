"""The options and the output of every `lint` and `test` of data: findings by file and line, cases, a summary, SARIF."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from faultline.cli.main import EXIT_NO
from faultline.cli.output import FORMATS, show
from streams.model.counted import many

if TYPE_CHECKING:
    from runbooks.engine.case_result import CaseResult
    from runbooks.language.lint import LintFinding
    from streams.correlate.policy.families import Families

lint_output_option = click.option(
    "--output",
    "-o",
    type=click.Choice((*FORMATS, "sarif")),
    default="table",
    help="Lines, one JSON object a line, a YAML document each, or SARIF for a code host.",
)
"""`--output` of a `lint`."""

folder_argument = click.argument(
    "folder",
    required=False,
    envvar="FAULTLINE_CATALOG_DIR",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
)
"""What a site lays over the tables that ship."""

strict_option = click.option("--strict", is_flag=True, help="Exit with 1 on warnings too.")

LINT_EXITS = "0 valid, 1 a fault (or, with --strict, a warning), 2 bad input"
TEST_EXITS = "0 all passed, 1 one failed, 2 bad input"


def show_findings(
    findings: Sequence[LintFinding], counted: Mapping[str, int], output: str, *, strict: bool, what: str
) -> int:
    """Print findings and a summary with what was looked at; returns the exit code. `what` names the lint in SARIF."""
    faults = sum(finding.level == "fault" for finding in findings)
    summary = {**counted, "faults": faults, "warnings": len(findings) - faults}
    if output == "sarif":
        click.echo(sarif(findings, what), nl=False)
    else:
        records: list[dict[str, Any]] = [
            {"record": one.level, "place": one.place, "message": one.message} for one in findings
        ]
        show(output, [*records, {"record": "summary", **summary}], lambda: _lines(findings))
    click.echo(", ".join(f"{count} {name}" for name, count in summary.items()), err=True)
    return EXIT_NO if faults or (strict and findings) else 0


def _lines(findings: Sequence[LintFinding]) -> None:
    for finding in findings:
        click.echo(f"{finding.place}: {finding.level}: {finding.message}")


def show_cases(results: Sequence[tuple[str, CaseResult]], output: str) -> int:
    """Print the cases that failed and a summary (all, as records); returns the exit code."""
    failed = [(file, result) for file, result in results if not result.passed]
    records: list[dict[str, Any]] = [
        {
            "record": "case", "file": file, "name": one.name, "passed": one.passed,
            "differences": list(one.differences),
        }
        for file, one in results
    ]  # fmt: skip
    summary = {"record": "summary", "cases": len(results), "failed": len(failed)}
    show(output, [*records, summary], _failures(failed, len(results)))
    return EXIT_NO if failed else 0


def _failures(failed: Sequence[tuple[str, CaseResult]], count: int) -> Callable[[], None]:
    def for_people() -> None:
        for file, result in failed:
            click.echo("\n    ".join([f"{file}: {result.name}", *result.differences]))
        click.echo(f"{many(count, 'case')}, {len(failed)} failed")

    return for_people


def sarif(findings: Iterable[LintFinding], what: str) -> str:
    """Findings as SARIF 2.1.0, relative to where the command runs."""
    levels = {"fault": "error", "warning": "warning"}
    results = []
    for finding in findings:
        file, line, column = finding.place.rsplit(":", 2)
        region = {"startLine": int(line), "startColumn": int(column)}
        uri = {"uri": _relative(file)}
        results.append({
            "ruleId": what,
            "level": levels[finding.level],
            "message": {"text": finding.message},
            "locations": [{"physicalLocation": {"artifactLocation": uri, "region": region}}],
        })  # fmt: skip
    driver = {"name": f"faultline {what}", "version": version("faultline"), "rules": [{"id": what}]}
    document = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def _relative(file: str) -> str:
    path = Path(file)
    return (path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path).as_posix()


def lay_nothing_over() -> None:
    """Have the tables that modules read when they are imported be those that ship: a fault in a site's would end a lint there."""
    from streams.config.table_overlay import VARIABLE

    os.environ.pop(VARIABLE, None)


def lay_over(folder: Path | None) -> None:
    """Have every table read from now on with what a folder lays over it. To be called before any table is."""
    from streams.config.table_overlay import VARIABLE

    if folder is not None:
        os.environ[VARIABLE] = str(folder.resolve())


def in_folder(findings: Iterable[LintFinding], folder: Path | None) -> list[LintFinding]:
    """The findings in a folder's files, by place; all without one."""
    return sorted(
        (one for one in findings if folder is None or Path(one.file).is_relative_to(folder)),
        key=lambda one: (one.file, [int(number) for number in one.place.rsplit(":", 2)[1:]], one.message),
    )


def families_and_uncovered(config: Path | None) -> tuple[Families | None, list[str]]:
    """The table of families as laid over now, None where it is not valid; and the families without a runbook of their own."""
    from faultline.runtime.runbook_files import read_library
    from faultline.runtime.settings import load
    from runbooks.language.lint import uncovered
    from streams.config.yaml_tables import load_table
    from streams.correlate.policy.families import FILE, Families
    from streams.model.errors import ConfigError

    try:
        table = load_table(FILE, Families)
    except ConfigError:
        return None, []  # told of with its place by the lint of the table itself
    library = read_library(load(config).responder.runbook_dirs, shipped=True)
    return table, [] if library.faults else uncovered(library, frozenset(table.families))
