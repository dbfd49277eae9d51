"""`faultline doctor`: what is wrong with Faultline itself and around it, each finding with the command to run next."""

from __future__ import annotations

from pathlib import Path

import click

from faultline.cli.groups import examples
from faultline.cli.main import EXIT_BAD_INPUT, EXIT_NO, EXIT_UNREACHABLE
from faultline.cli.output import output_option
from faultline.runtime.processes import PROCESSES


@click.command(
    "doctor",
    epilog=examples(
        ("faultline doctor", "everything, within half a minute"),
        ("faultline doctor --process responder -o json", "in the pod of a process, for its rights"),
        ("faultline doctor --only groups --only shippers", "one or a few questions"),
        exits="0 nothing worse than a warning, 1 a fault, 2 settings or files are not valid, 3 something did not answer",
    ),
)
@click.option(
    "--process",
    "process",
    type=click.Choice(sorted(PROCESSES)),
    default=None,
    help="Ask only what this process needs. Default: every process.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="PROBE",
    help="kafka (topics, rights, clocks), broker (replicas), groups (lag), shippers, controls, dead-letters, expiry, "
    "teams (whose jobs), kubernetes, pods, or a service: slack, jira, notifier.sinks.NAME …",
)
@output_option
@click.pass_context
def command(ctx: click.Context, process: str | None, only: tuple[str, ...], output: str) -> None:
    """Look at settings, broker, topics, rights, consumer groups, shippers, clocks, tokens, pods and switches, and say what is
    wrong, by which numbers, and what to run next.

    Writes nothing and joins no group. All probes run at once, each has 12 seconds, and all end within 25. Rights are those of
    the user of these settings, so run it as the process, or in its pod.
    """
    from faultline.checks.connect import connected, probes
    from faultline.checks.finding import worst_first
    from faultline.cli.commands.config import local_findings, show_findings
    from faultline.runtime.settings import examined

    config: Path | None = ctx.obj
    processes = (process,) if process else tuple(PROCESSES)
    settings, wrong = examined(config)
    local = local_findings(settings, wrong, processes)
    if settings is None or wrong:
        # Nothing is asked with settings that no process would start with.
        show_findings(local, output)
        ctx.exit(EXIT_BAD_INPUT)
    known = [probe.name for probe in probes(settings, processes)]
    if unknown := [name for name in only if name not in known]:
        raise click.UsageError(f"--only {', '.join(unknown)}: not one of {', '.join(known)}")
    outside = connected(settings, processes, only=only)
    show_findings(worst_first([*local, *outside]), output)
    if any(finding.level == "fault" for finding in local):
        ctx.exit(EXIT_BAD_INPUT)
    levels = {finding.level for finding in outside}
    ctx.exit(EXIT_NO if "fault" in levels else EXIT_UNREACHABLE if "unreachable" in levels else 0)
