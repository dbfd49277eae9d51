"""`faultline capacity`: what waits for GPUs, since when, and what each pool has left."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultline.cli.groups import examples
from faultline.cli.output import output_option, show, table
from streams.model.clock import moment, rfc3339, utc_now

if TYPE_CHECKING:
    from streams.inventory.gpu_capacity import PoolCapacity, WaitingWork
    from streams.model.facts import Fact


@click.command(
    "capacity",
    epilog=examples(
        ("faultline capacity", "what waits, and what each pool has left"),
        ("faultline capacity --capture docs/examples/gpu-off-bus", "as of the end of a capture"),
    ),
)
@click.option(
    "--capture",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="As of the end of this capture; needs no broker.",
)
@output_option
@click.pass_obj
def command(config: Path | None, capture: Path | None, output: str) -> None:
    """What waits for GPUs, longest first, and the GPUs of each pool.

    Waiting is a condition and no fault: an incident tells of it only when a node that was lost is the reason, or when a job
    that ran before waits far longer than its kind does.
    """
    from faultline.cli.read_topics import read_facts
    from faultline.runtime.settings import load
    from streams.inventory.gpu_capacity import pool_capacity, waiting_work

    settings = load(config)
    if capture is not None:
        facts, now = at_the_end_of(capture)
    else:
        facts, now = asyncio.run(read_facts(settings.kafka, settings.cluster)).values(), utc_now()
    known = list(facts)
    waits, pools = waiting_work(known), pool_capacity(known)
    records = [
        *({"record": "waits", **asdict(work), "since": rfc3339(work.since)} for work in waits),
        *({"record": "pool", **asdict(pool)} for pool in pools),
    ]
    show(output, records, lambda: _show(waits, pools, now))


def at_the_end_of(capture: Path) -> tuple[Iterable[Fact], datetime]:
    """The facts as they stand at the end of a capture, and when that is."""
    from faultline.cli.left_out import tell_left_out
    from faultline.replay.capture import read
    from faultline.replay.replay import facts_of

    whole = read(capture)
    facts: dict[str, Fact] = {}
    for _, key, fact in sorted(facts_of(whole), key=lambda entry: entry[0]):
        if fact is None:
            facts.pop(key, None)
        else:
            facts[key] = fact
    tell_left_out(whole)
    return facts.values(), whole.meta.end


def _length(waited: timedelta) -> str:
    """Days and hours, or hours and minutes."""
    minutes = max(int(waited.total_seconds()), 0) // 60
    days, hours = divmod(minutes // 60, 24)
    return f"{days} d {hours} h" if days else f"{hours} h {minutes % 60:02} min"


def _show(waits: list[WaitingWork], pools: list[PoolCapacity], now: datetime) -> None:
    table(
        ("work", "kind", "is", "waits", "GPUs", "since", "for"),
        (
            (
                f"{work.namespace}/{work.name}",
                work.kind,
                f"{work.workload}{' (a guess)' if work.guessed else ''}",
                "suspended" if work.suspended else f"{work.pods} of {work.of_pods} pods",
                "" if work.gpus is None else work.gpus,
                moment(work.since),
                _length(now - work.since),
            )
            for work in waits
        ),
        empty="nothing waits for GPUs",
    )
    click.echo()
    table(
        ("pool", "nodes", "GPUs", "used", "free", "on cordoned nodes", "lost"),
        ((p.pool or "(none)", p.nodes, p.gpus, p.used, p.free, p.closed, p.lost) for p in pools),
        empty="no nodes with GPUs in the inventory",
    )
