"""`faultline digest`: the incidents of the last days, how long they took, what they cost, and what to look at."""

from __future__ import annotations

import asyncio
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from faultline.cli.groups import examples
from faultline.cli.output import output_option, show
from faultline.cli.since import since_of
from faultline.cli.write_out import FORMATS, format_of, write_out

if TYPE_CHECKING:
    from faultline.cli.incident_documents import ClusterDocuments


@click.command(
    "digest",
    epilog=examples(
        ("faultline digest", "the last seven days, Markdown on stdout"),
        ("faultline digest --since 30d --out march.html", "a month, as a page to send around"),
        ("faultline digest --since 24h --format json", "every number with the ids that made it"),
        ("faultline digest --capture docs/examples/gpu-off-bus", "of a replay"),
        exits="0 written, 2 bad input, 3 Kafka is unreachable",
    ),
)
@click.option(
    "--since", default="7d", show_default=True, help="How far back: 90m, 12h, 7d, or a time (RFC 3339)."
)
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
    help="Replay this capture and report all of it; needs no broker. --since is ignored.",
)
@output_option
@click.pass_obj
def command(
    config: Path | None,
    since: str,
    chosen: str | None,
    out: Path | None,
    capture: Path | None,
    output: str,
) -> None:
    """What happened on the cluster: incidents by family and state, times to notice, decide and recover, GPU-hours lost and saved,
    repeat offenders, what waited for people, what they overruled, and what shadow mode would have done.

    Every number carries the incidents that made it.
    """
    from faultline.cli.incident_documents import cluster_of_capture, cluster_of_topics
    from faultline.runtime.settings import load

    settings, kind = load(config), format_of(chosen, out)
    if capture is not None:
        documents = cluster_of_capture(settings, capture)
        begin = min([documents.now, *(one.opened_at for one in documents.incidents.values())])
    else:
        documents = asyncio.run(cluster_of_topics(settings))
        begin = since_of(since, documents.now)
    if output == "table":
        write_out(written(documents, kind, begin, documents.now), out)
    else:
        show(output, [orjson.loads(written(documents, "json", begin, documents.now))])


def written(documents: ClusterDocuments, kind: str, since: datetime, until: datetime) -> str:
    """The digest in one of the formats. Pure."""
    from faultline.report.digest import digest_of

    digest = digest_of(
        documents.cluster, documents.incidents, documents.runs, documents.timeline, documents.nodes,
        since=since, until=until,
    )  # fmt: skip
    if kind == "json":
        from faultline.report.incident_report import json_of

        return json_of(digest)
    from faultline.report.digest_page import digest_page

    if kind == "md":
        from faultline.report.markdown import markdown

        return markdown(digest_page(digest))
    from faultline.report.html import html

    return html(digest_page(digest))
