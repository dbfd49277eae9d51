"""`faultline jobs`: what runs, and what could be done for it if a node of it failed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultline.cli.groups import examples
from faultline.cli.output import output_option, show, table
from streams.model.clock import moment, rfc3339
from streams.model.message import some

if TYPE_CHECKING:
    from runbooks.engine.job_list import ListedJob
    from streams.config.settings import KafkaSettings
    from streams.model.facts import Fact

SHOWN_NODES = 3


@click.command(
    "jobs",
    epilog=examples(
        "faultline jobs -n research",
        ("faultline jobs --ended --capture docs/examples/gpu-off-bus", "as of the end of a capture"),
    ),
)
@click.option("--cluster", help="The cluster; by default the one of the settings.")
@click.option("--namespace", "-n", help="Only jobs of this namespace.")
@click.option("--ended", is_flag=True, help="Also those that have completed or failed.")
@click.option(
    "--capture",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="As of the end of this capture; needs no broker.",
)
@output_option
@click.pass_obj
def command(
    config: Path | None,
    cluster: str | None,
    namespace: str | None,
    ended: bool,
    capture: Path | None,
    output: str,
) -> None:
    """What runs, the largest first: its GPUs, nodes and owner, and what could be done for it if one of its nodes failed.

    That is what a plan would be made of: how a job is stopped and started elsewhere, what that costs it, whether it heals itself,
    or why nothing can be done. `last progress` is known for jobs that incidents name.
    """
    from faultline.cli.commands.capacity import at_the_end_of
    from faultline.runtime.settings import load
    from runbooks.engine.job_list import listed_jobs
    from streams.inventory.cluster_view import ClusterView

    settings = load(config)
    name = cluster or settings.cluster
    progress: Mapping[str, datetime] = {}
    if capture is not None:
        facts, _ = at_the_end_of(capture)
    else:
        facts, progress = asyncio.run(_read(settings.kafka, name))
    known = list(facts)
    view = ClusterView(known[0].cluster if capture is not None and known else name)
    for fact in known:
        view.put(fact)
    jobs = [job for job in listed_jobs(view, progress, ended=ended) if namespace in (None, job.namespace)]
    records = (
        {
            "record": "job",
            **asdict(job),
            "last_progress": rfc3339(job.last_progress) if job.last_progress else None,
        }
        for job in jobs
    )
    show(output, records, lambda: _show(jobs))


async def _read(settings: KafkaSettings, cluster: str) -> tuple[Iterable[Fact], Mapping[str, datetime]]:
    from faultline.cli.read_topics import read_facts, read_incidents

    facts = (await read_facts(settings, cluster)).values()
    latest: dict[str, datetime] = {}
    for incident in (await read_incidents(settings)).values():
        for seen in incident.progress if incident.cluster == cluster else ():
            latest[seen.job.key] = max(seen.at, latest.get(seen.job.key, seen.at))
    return facts, latest


def _show(jobs: list[ListedJob]) -> None:
    table(
        ("job", "kind", "state", "GPUs", "nodes", "owner", "if a node fails", "retries", "progress"),
        (
            (
                f"{job.namespace}/{job.name}",
                job.kind,
                job.state,
                job.gpus,
                some(job.nodes, SHOWN_NODES) if job.nodes else "",
                job.owner or "",
                job.can,
                "" if job.retries_left is None else job.retries_left,
                moment(job.last_progress) if job.last_progress else "",
            )
            for job in jobs
        ),
        empty="nothing runs that holds GPUs or trains",
    )
