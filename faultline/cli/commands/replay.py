"""`faultline replay CAPTURE`: replays a capture offline and prints the decisions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultline.cli.groups import examples
from faultline.cli.output import MAX_CELL, output_option, show, table
from streams.model.clock import moment
from streams.model.message import plain

if TYPE_CHECKING:
    from faultline.replay.replay import Replayed
    from faultline.replay.threads import Posted


@click.command(
    "replay",
    epilog=examples(
        ("faultline replay docs/examples/gpu-off-bus", "what is decided"),
        ("faultline replay docs/examples/gpu-off-bus --threads", "what readers would see"),
        (
            "faultline replay docs/examples/gpu-off-bus -o json | jq -r .record | sort | uniq -c",
            "for scripts",
        ),
    ),
)
@click.argument("capture", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--threads",
    is_flag=True,
    help="Print the threads that would have been posted, as their readers see them.",
)
@output_option
@click.pass_obj
def command(config: Path | None, capture: Path, output: str, *, threads: bool) -> None:
    """Run detector, inventory, correlator and responder over CAPTURE, in shadow mode, with the time of its records.

    The same capture gives the same decision hash, however its partitions interleave.
    """
    from faultline.cli.thread_text import posted_line
    from faultline.replay.replay import replay
    from faultline.replay.threads import RecordedThreads
    from faultline.runtime.settings import load
    from streams.correlate import Config

    settings = load(config)
    recorded = RecordedThreads() if threads else None
    decided = replay(
        capture, responder=settings.responder, config=Config.of(settings.correlator), threads=recorded
    )
    if recorded is not None:
        threads_of = recorded.by_incident().values()
        show(
            output,
            (posted_line(one) for thread in threads_of for one in thread),
            lambda: _show_threads(threads_of),
        )
        return
    show(output, decided.lines(), lambda: _show(decided))


def _show_threads(threads: Collection[Sequence[Posted]]) -> None:
    from faultline.cli.thread_text import WIDTH, thread_lines

    for number, posted in enumerate(threads):
        if number:
            click.echo("-" * WIDTH)
        for line in thread_lines(posted):
            click.echo(line)


def _show(decided: Replayed) -> None:
    incidents = sorted(decided.incidents.values(), key=lambda i: (i.fault_at, i.id))
    table(
        ("incident", "fault at", "type", "root cause", "state", "cause"),
        ((i.id, moment(i.fault_at), i.family, i.root, i.state.value, i.reason) for i in incidents),
        empty="no incidents in this capture",
    )
    click.echo()
    table(
        ("incident", "runbook", "step", "action", "target", "verdict", "reason"),
        (
            (a.incident, a.runbook, a.step, a.action, f"{a.target.kind} {a.target.name}", a.verdict, a.reason)
            for a in decided.actions
        ),
        empty="no actions would be taken",
    )
    click.echo()
    for entry in decided.late:
        click.echo(f"{moment(entry.at)}  {plain(entry.text, MAX_CELL)}")
    click.echo(f"{decided.records} records, {decided.signals} signals, {decided.dead_letters} dead letters")
    click.echo(f"decision hash {decided.decision_hash}")
