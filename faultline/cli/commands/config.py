"""`faultline config check`: validate the settings and all files they name, and ask broker, cluster and services on wish."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn

import click

from faultline.cli.groups import Group, examples
from faultline.cli.main import EXIT_BAD_INPUT, EXIT_NO, EXIT_UNREACHABLE
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
        ("faultline config check --connect", "and do broker, cluster and services fit them?"),
    ),
)
def command() -> None:
    """Settings: environment variables FAULTLINE_* over a YAML file over the defaults."""


@command.command(
    "check",
    epilog=examples(
        "faultline config check",
        ("faultline --config faultline.yaml config check --process responder", "the files of one process"),
        ("faultline config check --connect", "topics, rights, tokens, clocks and versions too"),
        ("faultline config check --connect --process responder -o json", "in the pod of a process"),
    ),
)
@click.option(
    "--process",
    "process",
    type=click.Choice(sorted(PROCESSES)),
    default=None,
    help="Check only what this process reads and asks. Default: every process.",
)
@click.option(
    "--connect",
    is_flag=True,
    help="Ask the broker, the API server and the services too; changes nothing there.",
)
@output_option
@click.pass_context
def check(ctx: click.Context, process: str | None, connect: bool, output: str) -> None:
    """Check the settings, every file they name, and what these contradict in each other; then print every setting.

    With `--connect` the findings are printed instead: topics, rights by topic and in the cluster, tokens and when they expire,
    clocks, versions. Each probe has 5 seconds. Rights are those of the user of these settings, so run it as the process, or in
    its pod. Exit code 2 for settings or files that are not valid, 1 for faults outside, 3 where something did not answer.
    """
    from faultline.runtime.settings import examined

    settings, wrong = examined(ctx.obj)
    processes = (process,) if process else tuple(PROCESSES)
    local = _local(settings, wrong, processes)
    faulty = any(finding.level == "fault" for finding in local)
    if settings is None or wrong or (faulty and not connect):
        _refuse(ctx, local, bool(wrong), output)
    if not connect:
        _show_settings(settings, local, output)
        return
    from faultline.checks.connect import connected

    outside = asyncio.run(connected(settings, processes))
    _show(local + outside, output)
    if any(finding.level == "fault" for finding in local):
        ctx.exit(EXIT_BAD_INPUT)
    levels = {finding.level for finding in outside}
    ctx.exit(EXIT_NO if "fault" in levels else EXIT_UNREACHABLE if "unreachable" in levels else 0)


def _local(settings: Settings | None, wrong: list[str], processes: tuple[str, ...]) -> list[CheckFinding]:
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
    return worst_first(found)


def _refuse(ctx: click.Context, local: list[CheckFinding], in_settings: bool, output: str) -> NoReturn:
    """All findings at once: records on standard output for a program, or a line for each fault for people; exit code 2.

    Raises:
        ConfigError: for people, with every fault.
    """
    from streams.model.errors import ConfigError

    if output != "table":
        _show(local, output)
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


def _show(findings: list[CheckFinding], output: str) -> None:
    rows = [(one.level, one.where, one.what, one.remedy) for one in findings]
    headings = ("", "where", "what", "what to do")
    show(output, (one.document() for one in findings), lambda: table(headings, rows, empty="nothing found"))
    counts = {
        level: sum(one.level == level for one in findings) for level in ("fault", "unreachable", "warning")
    }
    click.echo(
        f"{counts['fault']} faults, {counts['unreachable']} unreachable, {counts['warning']} warnings",
        err=True,
    )


def _flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = []
    for key, value in values.items():
        rows += _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(prefix + key, value)]
    return rows
