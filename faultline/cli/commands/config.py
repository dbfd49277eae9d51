"""`faultline config check`: validate the settings and all files they name. `faultline doctor` asks the world outside."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import click

from faultline.cli.groups import Group, examples
from faultline.cli.main import EXIT_BAD_INPUT
from faultline.cli.output import output_option, show, table
from faultline.runtime.processes import PROCESSES

if TYPE_CHECKING:
    from faultline.checks.finding import CheckFinding
    from faultline.runtime.settings import Settings


@click.group(
    "config",
    cls=Group,
    epilog=examples(
        ("faultline config check", "are the settings and all files they name right?"),
    ),
)
def command() -> None:
    """Settings: environment variables FAULTLINE_* over a YAML file over the defaults."""


@command.command(
    "check",
    epilog=examples(
        "faultline config check",
        ("faultline --config faultline.yaml config check --process responder", "the files of one process"),
    ),
)
@click.option(
    "--process",
    "process",
    type=click.Choice(sorted(PROCESSES)),
    default=None,
    help="Check only what this process reads. Default: every process.",
)
@output_option
@click.pass_context
def check(ctx: click.Context, process: str | None, output: str) -> None:
    """Check the settings, every file they name, and what these contradict in each other; then print every setting.

    Asks nobody: `faultline doctor` compares the settings with broker, cluster and services. Exit code 2 for settings or files
    that are not valid.
    """
    from faultline.runtime.settings import examined

    settings, wrong = examined(ctx.obj)
    local = local_findings(settings, wrong, (process,) if process else tuple(PROCESSES))
    if settings is None or wrong or any(finding.level == "fault" for finding in local):
        _refuse(ctx, local, bool(wrong), output)
    _show_settings(settings, local, output)


def local_findings(
    settings: Settings | None, wrong: list[str], processes: tuple[str, ...]
) -> list[CheckFinding]:
    """What is wrong in the settings, in the files that they name, and between them.

    Where settings are wrong, contradictions between the others and files may only follow from that, and are not looked for.
    """
    from faultline.checks.contradictions import contradictions
    from faultline.checks.finding import CheckFinding, worst_first
    from faultline.runtime.setting_files import faults

    found = []
    for line in [*wrong, *(faults(settings, processes) if settings is not None else ())]:
        where, _, told = line.strip().partition(": ")
        what, _, remedy = told.rpartition("; ") if "; " in told else (told, "", "")
        found.append(CheckFinding("fault", where, what, remedy))
    if settings is not None and not wrong:
        found += contradictions(settings)
    found += _overlay_faults()
    return worst_first(found)


def _overlay_faults() -> list[CheckFinding]:
    """Values of a site's tables that do not fit: the detector and the correlator would not start with them."""
    from faultline.checks.finding import CheckFinding
    from faultline.lint import catalog, rules
    from streams.config.table_overlay import overlay_folder
    from streams.model.errors import ConfigError

    folder = overlay_folder()
    if folder is None:
        return []
    found = []
    for lint in (catalog, rules):
        try:
            tables, unreadable = lint.tables(folder)
        except ConfigError:
            return []  # told of with the files
        found += [one for one in unreadable if one.level == "fault"]
        for name, source in tables.items():
            found += lint.value_faults(name, source)
    command = f"faultline catalog lint {folder}"
    return [CheckFinding("fault", one.place, one.message, "correct the row", command) for one in found]


def _refuse(ctx: click.Context, local: list[CheckFinding], in_settings: bool, output: str) -> NoReturn:
    """All findings at once: records on standard output for a program, or a line for each fault for people; exit code 2.

    Raises:
        ConfigError: for people, with every fault.
    """
    from streams.model.errors import ConfigError

    if output != "table":
        show_findings(local, output)
        ctx.exit(EXIT_BAD_INPUT)
    _warn(local)
    lines = [
        f"  {one.where}: {one.what}" + (f"; {one.remedy}" if one.remedy else "")
        for one in local
        if one.level == "fault"
    ]
    what = "settings, and files that they name, are" if in_settings else "files named in the settings are"
    raise ConfigError("\n".join([f"{what} not usable, or contradict each other:", *lines]))


def _warn(local: list[CheckFinding]) -> None:
    for finding in local:
        if finding.level == "warning":
            click.echo(f"faultline: warning: {finding.where}: {finding.what}; {finding.remedy}", err=True)


def _show_settings(settings: Settings, local: list[CheckFinding], output: str) -> None:
    """Every setting on standard output, and warnings on standard error."""
    _warn(local)
    values = settings.model_dump(mode="json")
    show(output, [values], lambda: table(("setting", "value"), _flat(values), empty="no settings"))


def show_findings(findings: list[CheckFinding], output: str) -> None:
    """Findings as a table or as records, and on standard error how many there are of each level."""
    from faultline.checks.finding import LEVELS
    from streams.telemetry.redaction import clean

    # What a service answers may quote what it was asked with.
    findings = [replace(one, what=clean(one.what), remedy=clean(one.remedy)) for one in findings]
    show(output, (one.document() for one in findings), lambda: _show_findings(findings))
    names = {"fault": "faults", "unreachable": "unreachable", "warning": "warnings", "note": "notes"}
    counts = (f"{sum(one.level == level for one in findings)} {names[level]}" for level in LEVELS)
    click.echo(", ".join(counts), err=True)


def _show_findings(findings: list[CheckFinding]) -> None:
    """A table, and below it the commands, one a line: a terminal that breaks a line itself gives it back whole."""
    from faultline.why.tree import printable

    rows = [(one.level, one.where, one.what, one.remedy) for one in findings]
    table(("", "where", "what", "what to do"), rows, empty="nothing found")
    wheres: dict[str, list[str]] = {}
    for one in findings:
        if one.command:
            wheres.setdefault(one.command, []).append(one.where)
    if wheres:
        click.echo("\nto run:")
    for command, places in wheres.items():
        click.echo(
            f"  # {printable(', '.join(dict.fromkeys(places)), _LONGEST)}\n  {printable(command, _LONGEST)}"
        )


_LONGEST = 4000


def _flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = []
    for key, value in values.items():
        rows += _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(prefix + key, value)]
    return rows
