"""`faultline report ID`: what happened, why, what was done, what it cost and what to change."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from faultline.cli.completion import incident_argument
from faultline.cli.groups import examples
from faultline.cli.output import output_option, show
from faultline.cli.write_out import FORMATS, format_of, write_out
from streams.model.clock import parse_rfc3339

if TYPE_CHECKING:
    from faultline.cli.incident_documents import IncidentDocuments


@click.command(
    "report",
    epilog=examples(
        ("faultline report inc-57ab", "Markdown on stdout"),
        ("faultline report inc-57ab --out inc-57ab.html", "one file, pictures inside"),
        ("faultline report inc- --capture docs/examples/gpu-off-bus", "from a replay"),
        exits="0 written, 2 no such incident or bad input, 3 Kafka is unreachable",
    ),
)
@incident_argument
@click.option(
    "--format",
    "chosen",
    type=click.Choice(FORMATS),
    help="Markdown, one self-contained HTML file, or JSON (default: by the name of --out, else md).",
)
@click.option(
    "--out", type=click.Path(path_type=Path, dir_okay=False), help="File to write (default: stdout)."
)
@click.option(
    "--capture",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Replay this capture and report one of its incidents; needs no broker.",
)
@click.option(
    "--at",
    "at_text",
    default=None,
    help="Report as of this time (RFC 3339). Default: now while anything is going on, else the last change.",
)
@output_option
@click.pass_obj
def command(
    config: Path | None,
    incident_id: str,
    chosen: str | None,
    out: Path | None,
    capture: Path | None,
    at_text: str | None,
    output: str,
) -> None:
    """Report one incident: what happened, when and by what it was noticed, why this is the cause, what was done and by whom, what
    it cost, and what to change. A unique prefix of INCIDENT_ID is enough.

    The same documents give the same report, whether they come from Kafka or from a replay.
    """
    from faultline.cli.incident_documents import of_capture, of_topics
    from faultline.runtime.settings import load

    settings = load(config)
    at = parse_rfc3339(at_text) if at_text is not None else None
    kind = format_of(chosen, out)
    found = (
        of_capture(settings, capture, incident_id)
        if capture
        else asyncio.run(of_topics(settings, incident_id))
    )
    if output == "table":
        write_out(written(found, kind, at or found.as_of), out)
    else:
        show(output, [orjson.loads(written(found, "json", at or found.as_of))])


def written(documents: IncidentDocuments, kind: str, at: datetime) -> str:
    """The report in one of the formats. Pure."""
    from faultline.report.incident_report import json_of, report_of

    report = report_of(documents.incident, documents.runs, documents.timeline, documents.nodes, at)
    if kind == "json":
        return json_of(report)
    from faultline.report.incident_page import incident_page

    if kind == "md":
        from faultline.report.markdown import markdown

        return markdown(incident_page(report))
    from faultline.drawings import decision_svg, timeline_svg, topology_svg
    from faultline.report.document import Picture
    from faultline.report.html import html

    drawn = (
        Picture(timeline_svg(documents.incident, documents.runs, documents.timeline, at)),
        Picture(topology_svg(documents.incident, documents.nodes)),
        Picture(decision_svg(documents.incident, documents.runs, documents.nodes)),
    )
    return html(incident_page(report, drawn))
