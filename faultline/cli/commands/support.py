"""`faultline support`: a bundle for whoever helps, with pseudonyms for every name in it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from faultline.cli.groups import examples
from faultline.cli.main import EXIT_NO
from faultline.cli.output import output_option, show, table


@click.command(
    "support",
    epilog=examples(
        ("faultline support", "into a file of this folder, named by the time"),
        (
            "faultline support --log responder.log --metrics http://127.0.0.1:8080/metrics",
            "with logs and metrics",
        ),
        ("faultline support --incidents 3 --to /tmp", "the last three incidents only"),
        exits="0 written, 1 a known name is left and nothing was written, 2 bad input, 3 Kafka is unreachable",
    ),
)
@click.option(
    "--to", "folder", type=click.Path(path_type=Path, file_okay=False, exists=True), default=Path(),
    help="Folder for the bundle (default: this one).",
)  # fmt: skip
@click.option(
    "--incidents", type=click.IntRange(0, 500), default=20, show_default=True,
    help="How many of the latest incidents are in it, with their runs and timeline.",
)  # fmt: skip
@click.option(
    "--log", "logs", multiple=True, type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="A log file; of a long one the end is taken. May be repeated.",
)  # fmt: skip
@click.option(
    "--metrics", multiple=True, metavar="URL", help="Where a process shows its metrics. May be repeated."
)
@click.option(
    "--redaction-key", "key_file", type=click.Path(path_type=Path, dir_okay=False),
    help="File with the key of the pseudonyms, as of `faultline capture`; made when it is not there. Without it the key is "
    "printed once.",
)  # fmt: skip
@output_option
@click.pass_obj
def command(
    config: Path | None,
    folder: Path,
    incidents: int,
    logs: tuple[Path, ...],
    metrics: tuple[str, ...],
    key_file: Path | None,
    output: str,
) -> None:
    """Write versions, settings that decide, what `doctor` finds, lags, the latest incidents with runs and timeline, controls,
    logs and metrics into one archive. Names of hosts, users, jobs, pods and tickets, addresses and serial numbers are replaced
    by pseudonyms; secrets are never read into it.

    It is read once more for every known name before it is written: with one left, nothing is.
    """
    from faultline.checks.connect import connected
    from faultline.cli.commands.capture import learning_of
    from faultline.cli.commands.config import local_findings
    from faultline.replay.kafka_capture.proof import NamesLeft
    from faultline.runtime.processes import PROCESSES
    from faultline.runtime.reload import starting_set
    from faultline.support import gather
    from faultline.support.bundle import Gathered, name_of, redact, write
    from streams.model.clock import utc_now

    settings, found = starting_set(config)
    at = utc_now()
    file = folder / name_of(at)
    learning = learning_of(settings.cluster, file, key_file)
    gathered = Gathered()
    gather.add_versions(gathered)
    gather.add_settings(gathered, settings, found.version)
    gather.learn_settings(learning, settings)
    findings = [*local_findings(settings, [], tuple(PROCESSES)), *connected(settings, tuple(PROCESSES))]
    gathered.add_rows("doctor.jsonl", [one.document() for one in findings])
    gather.add_logs(gathered, logs)

    async def outside() -> None:
        await gather.add_topics(gathered, settings, learning, incidents)
        await gather.add_metrics(gathered, metrics)

    asyncio.run(outside())
    try:
        parts = redact(gathered, learning)
    except NamesLeft as error:
        click.echo(f"faultline: {error}", err=True)
        sys.exit(EXIT_NO)
    size = write(file, parts, gathered.left_out, {"redaction": learning.id, "config": found.version}, at)
    rows = gather.counted(parts)
    for name, why in sorted(gathered.left_out.items()):
        click.echo(f"faultline: {name}: {why}", err=True)
    record = {"bundle": str(file), "bytes": size, "parts": dict(rows), "left_out": gathered.left_out}
    show(output, [record], lambda: table(("part", "lines"), rows, empty="nothing"))
    click.echo(f"faultline: {file}, {size} bytes; look into it before you give it away", err=True)
