"""`faultline explain ID`: the rule, the evidence, the rejected candidates, and what each step did or would do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultline.cli.completion import incident_argument
from faultline.cli.output import output_option, show

if TYPE_CHECKING:
    from faultline.runtime.settings import Settings
    from runbooks.engine.containment import PendingRepair
    from streams.model.incident import Incident
    from streams.model.run import Run


@click.command("explain")
@incident_argument
@click.option(
    "--capture",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Replay this capture and explain one of its incidents; needs no broker.",
)
@output_option
@click.pass_obj
def command(config: Path | None, incident_id: str, capture: Path | None, output: str) -> None:
    """Explain how the root cause and the actions of an incident were decided. A unique prefix of INCIDENT_ID is enough."""
    from faultline.replay.explain import explain
    from faultline.runtime.settings import load
    from streams.model.codec import encode_plain

    settings = load(config)
    incident, runs, repairs = (
        _from_capture(capture, settings, incident_id)
        if capture
        else asyncio.run(_live(settings, incident_id))
    )
    record = {"incident": encode_plain(incident), "runs": [encode_plain(run) for run in runs]}
    show(output, [record], lambda: click.echo(explain(incident, runs, repairs)))


async def _live(settings: Settings, prefix: str) -> tuple[Incident, list[Run], tuple[PendingRepair, ...]]:
    from faultline.cli.incident_overview import read_nodes
    from faultline.cli.read_topics import read_incident, read_runs
    from runbooks.engine.containment import pending_repairs

    incident = await read_incident(settings.kafka, prefix)
    runs, nodes = await asyncio.gather(
        read_runs(settings.kafka, incident), read_nodes(settings.kafka, incident.cluster)
    )
    return incident, runs, pending_repairs(incident.id, runs, nodes)


def _from_capture(
    capture: Path, settings: Settings, prefix: str
) -> tuple[Incident, list[Run], tuple[PendingRepair, ...]]:
    from faultline.cli.read_topics import pick
    from faultline.replay.replay import replay
    from streams.correlate import Config

    decided = replay(capture, responder=settings.responder, config=Config.of(settings.correlator))
    incident = pick(decided.incidents, prefix)
    return incident, [run for run in decided.runs if run.incident == incident.id], ()
