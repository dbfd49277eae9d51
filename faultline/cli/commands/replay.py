"""`faultline replay SOURCE`: replays a capture, an archive or Kafka offline and prints the decisions, or how they compare."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultline.cli.groups import examples
from faultline.cli.output import output_option, show

if TYPE_CHECKING:
    from faultline.cli.replay_runs import ReplayOrder
    from faultline.replay.capture import Capture
    from faultline.replay.threads import Posted


@click.command(
    "replay",
    epilog=examples(
        ("faultline replay docs/examples/gpu-off-bus", "what is decided"),
        ("faultline replay docs/examples/gpu-off-bus --threads", "what readers would see"),
        ("faultline replay docs/examples/gpu-off-bus --step", "event by event, forward and back"),
        ("faultline replay captures/month --assert-same captures/month --record", "keep its results"),
        ("faultline replay --assert-same captures", "are kept results still the same?"),
        (
            "faultline replay docs/examples/gpu-off-bus -o json | jq -r .record | sort | uniq -c",
            "for scripts",
        ),
        exits="0 replayed or the same, 1 different, 2 bad input, 3 Kafka or the archive does not answer",
    ),
)
@click.argument("source", required=False)
@click.option(
    "--from",
    "begin",
    metavar="TIME",
    help="Where the replay begins, for an archive or `kafka`: RFC 3339, or 2h ago.",
)
@click.option("--to", "end", metavar="TIME", help="Where it ends, likewise (default: now).")
@click.option(
    "--decide-from",
    type=click.Choice(("raw", "signals")),
    help="Detect again in raw records, or take the recorded signals (default: raw records where there are any).",
)
@click.option(
    "--until",
    metavar="TIME",
    help="Stop at this time: RFC 3339, or 2h before the end of the capture, or of --to.",
)
@click.option("--incident", "only", metavar="ID", help="Print this incident only; the id may be cut.")
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="Real time × N, telling what happens.",
)
@click.option("--step", "stepping", is_flag=True, help="Walk through it event by event, forward and back.")
@click.option(
    "--against", is_flag=True, help="Compare with what production decided; exit 1 on unexplained differences."
)
@click.option(
    "--assert-same",
    "same_as",
    type=click.Path(path_type=Path, exists=False),
    metavar="FILE|DIR",
    help="Compare with the results kept in FILE (expected.json), or in DIR for each capture there; exit 1 if they differ.",
)
@click.option("--record", is_flag=True, help="With --assert-same: write the results instead.")
@click.option(
    "--threads",
    is_flag=True,
    help="Print the threads that would have been posted, as their readers see them.",
)
@click.option(
    "--changed-ok", is_flag=True, help="Take a capture whose files are not what its manifest.json says."
)
@output_option
@click.pass_obj
def command(
    config: Path | None,
    source: str | None,
    begin: str | None,
    end: str | None,
    decide_from: str | None,
    until: str | None,
    only: str | None,
    speed: float | None,
    same_as: Path | None,
    output: str,
    *,
    stepping: bool,
    against: bool,
    record: bool,
    threads: bool,
    changed_ok: bool,
) -> None:
    """Run detector, correlator and responder over SOURCE, in shadow mode, with the time of its records.

    SOURCE is a capture's directory, an archive's directory or address, or `kafka`. The settings and runbooks that a capture
    holds count, unless --config names others. What people commanded then counts as it did; nothing is changed anywhere.
    The same source gives the same decision hash, however its partitions interleave.
    """
    from faultline.cli.replay_runs import ReplayOrder, times_of
    from faultline.runtime.settings import load

    settings = load(config)
    order = ReplayOrder(settings, decide_from, until, are_chosen=config is not None, changed_ok=changed_ok)
    if same_as is not None:
        _assert_same(order, source, same_as, record=record)
        return
    if source is None:
        raise click.UsageError("give a capture's directory, or --assert-same with a folder of kept captures")
    with order.opened(source, *times_of(begin, end)) as capture:
        if against:
            _against(order, capture, only or "", output)
        elif stepping:
            _step(order, capture)
        elif threads:
            _threads(order, capture, output)
        else:
            _decide(order, capture, only or "", speed, output)


def _decide(order: ReplayOrder, capture: Capture, only: str, speed: float | None, output: str) -> None:
    from faultline.cli.names import picked
    from faultline.cli.replay_view import decided_records, decided_table
    from faultline.cli.step_view import happened_lines
    from faultline.replay.steps import Pace, Printer, Together

    watcher = None
    if speed is not None:
        told = Printer(happened_lines, lambda line: click.echo(line, err=output != "table"))
        watcher = Together([Pace(speed), told])
    decided = order.replayed(capture, watcher=watcher)
    see = _there_are(decided.incidents)
    name = picked(decided.incidents, only, what="incident", prefix="inc-", see=see).id if only else ""
    if not only and capture.incident in decided.incidents:
        name = capture.incident
        click.echo(f"faultline: the capture was cut to {name}: only that is shown", err=True)
    show(output, decided_records(decided, name), lambda: decided_table(decided, name))


def _there_are(incidents: Collection[str]) -> str:
    from faultline.cli.names import listed

    return f"there are {listed(incidents)}" if incidents else "there is none"


def _step(order: ReplayOrder, capture: Capture) -> None:
    from faultline.cli.step_view import typed, walk
    from faultline.replay.steps import Steps

    steps = Steps()
    order.replayed(capture, watcher=steps)
    walk(steps, typed(), click.echo)


def _against(order: ReplayOrder, capture: Capture, only: str, output: str) -> None:
    from faultline.cli.names import picked
    from faultline.cli.replay_view import compared_record, compared_table

    found = list(order.compared(capture))
    if only:
        known = {one.pair.either.incident: one for one in found}
        found = [picked(known, only, what="incident", prefix="inc-", see=_there_are(known))]
    show(output, map(compared_record, found), lambda: compared_table(found))
    if any(one.differences for one in found):
        raise click.exceptions.Exit(1)


def _assert_same(order: ReplayOrder, source: str | None, same_as: Path, *, record: bool) -> None:
    from faultline.replay.expected import EXPECTED, kept_captures, write_expected

    if source is not None:
        file = same_as / EXPECTED if same_as.is_dir() else same_as
        kept = [(Path(source), file)]
    else:
        kept = kept_captures(same_as)
    differ = False
    for directory, file in kept:
        if record:
            write_expected(file, order.results(directory))
            click.echo(f"{file}: written")
            continue
        lines = order.differing(directory, file)
        differ = differ or bool(lines)
        click.echo("\n".join(lines) if lines else f"{directory}: the same decisions")
    if differ:
        raise click.exceptions.Exit(1)


def _threads(order: ReplayOrder, capture: Capture, output: str) -> None:
    from faultline.cli.thread_text import posted_line
    from faultline.replay.threads import RecordedThreads

    recorded = RecordedThreads()
    order.replayed(capture, threads=recorded)
    posted = recorded.by_incident().values()
    show(output, (posted_line(one) for thread in posted for one in thread), lambda: _show_threads(posted))


def _show_threads(threads: Collection[Sequence[Posted]]) -> None:
    from faultline.cli.thread_text import WIDTH, thread_lines

    for number, posted in enumerate(threads):
        if number:
            click.echo("-" * WIDTH)
        for line in thread_lines(posted):
            click.echo(line)
