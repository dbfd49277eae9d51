"""`faultline drill`: plays a synthetic GPU fault through the real pipeline, in shadow mode, and says how far it came."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultline.cli.arguments import Finite
from faultline.cli.groups import examples
from faultline.cli.main import EXIT_NO
from faultline.cli.output import output_option, show, table
from streams.model.clock import moment, rfc3339

if TYPE_CHECKING:
    from faultline.cli.drill import Played

WAIT_S = 60.0


@click.command(
    "drill",
    epilog=examples(
        ("faultline drill", "every hop with its time"),
        ("faultline drill --output json", "for a timer that alerts when it fails"),
        exits="0 it went all the way and its incident is closed, 1 it stopped at a hop, 2 bad input, 3 Kafka is unreachable",
    ),
)
@click.option(
    "--wait", "wait_s", type=Finite(min=1, max=75), default=WAIT_S, show_default=True,
    help="Seconds that the fault may take to its last hop.",
)  # fmt: skip
@click.option("--as", "actor", default=None, help="Who plays the drill (default: the user name).")
@output_option
@click.pass_obj
def command(config: Path | None, wait_s: float, actor: str | None, output: str) -> None:
    """Write one log line of a GPU fault on a host that does not exist, and follow it: raw record, signal, incident, plan in
    shadow mode, and the thread where Slack is configured. Then the incident is resolved. It takes two minutes at most.

    Nothing can be done for it: a responder plans for such hosts in shadow mode only, and has to confirm that before anything is
    written. A thread is posted, and its end shown in it.
    """
    from faultline.cli.drill import play
    from faultline.runtime.settings import load

    played = asyncio.run(play(load(config), wait_s, actor))
    show(output, lines(played), lambda: show_hops(played))
    if not played.passed:
        raise SystemExit(EXIT_NO)


def lines(played: Played) -> list[dict[str, Any]]:
    """A `hop` each in the order in which they were seen, last the `summary`."""
    hops = played.watch.hops
    told: list[dict[str, Any]] = [
        {
            "record": "hop", "name": hop.name, "at": rfc3339(hop.at),
            "after_s": round((hop.at - hops[0].at).total_seconds(), 3), "detail": hop.detail,
        }
        for hop in hops
    ]  # fmt: skip
    incident = played.watch.incident
    told.append(
        {
            "record": "summary", "host": played.watch.host, "passed": played.passed,
            "incident": incident.id if incident else None, "stopped_at": played.failed_at or None,
            "why": _why(played) or None, "left_over": list(played.left_over),
        }
    )  # fmt: skip
    return told


def show_hops(played: Played) -> None:
    """The hops as a table, and the outcome in a sentence."""
    from faultline.cli.drill_watch import RESPONDER

    hops = played.watch.hops
    table(
        ("hop", "at", "after", "what"),
        (
            (hop.name, moment(hop.at), f"{(hop.at - hops[0].at).total_seconds():.1f} s", hop.detail)
            for hop in hops
        ),
        empty=f"it stopped at the first hop: {RESPONDER}",
    )
    click.echo()
    if played.left_over:
        click.echo(f"closed what earlier drills had left open: {', '.join(played.left_over)}")
    if played.passed:
        click.echo(f"passed: {played.watch.host} went through every hop, and its incident is closed")
    else:
        click.echo(f"failed at {played.failed_at or 'plan in shadow mode'}: {_why(played)}")


def _why(played: Played) -> str:
    from faultline.cli.drill_watch import MISSING

    if played.watch.unsafe:
        return f"{played.watch.unsafe}; it was stopped and its incident resolved"
    return played.error or MISSING.get(played.failed_at, "")
