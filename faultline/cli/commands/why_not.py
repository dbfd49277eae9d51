"""`faultline why-not NODE|JOB`: why something was not done."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultline.cli.groups import examples
from faultline.cli.output import output_option, show
from faultline.cli.trees import fold_options, show_tree

if TYPE_CHECKING:
    from faultline.replay.capture import Capture
    from faultline.runtime.settings import Settings

WARM_UP = timedelta(hours=2)
"""Of an archive, so much before the time is read: longer than the longest timeout with what may lie before it."""


@click.command(
    "why-not",
    epilog=examples(
        ("faultline why-not gpu-07 --capture monday", "a node, at the end of a capture"),
        ("faultline why-not gpu-07 --at 2026-03-03T03:05:00Z --capture monday", "at a time of it"),
        ("faultline why-not research/llm --at 2h --archive s3://archive/gpu-east-1", "a job, two hours ago"),
        ("faultline why-not gpu-07 --capture monday -o json | jq -r .tree.answer", "the answer alone"),
    ),
)
@click.argument("name", metavar="NODE|JOB")
@click.option(
    "--at",
    "when",
    default="",
    help="The time that is asked about: RFC 3339, or 2h before the end (default: the end).",
)
@click.option(
    "--capture", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Look into this capture."
)
@click.option("--archive", default="", help="Look into this archive: a folder, or the address of a bucket.")
@fold_options
@output_option
@click.pass_obj
def command(
    config: Path | None,
    name: str,
    when: str,
    capture: Path | None,
    archive: str,
    depth: int,
    everything: bool,
    output: str,
) -> None:
    """Explain why a node was not cordoned, a job not resumed, or no incident opened.

    What was recorded is replayed in memory up to that time. The tree begins with the answer. Below it: the signals about
    NODE|JOB and as what each was counted, sources that were silent, every explanation that was weighed and what it lacked, the
    incidents that name it, which runbooks missed it by which condition, which guardrail objected, and what people and settings
    held back.
    """
    from faultline.runtime.settings import load
    from faultline.why.observed import observed
    from faultline.why.why_not import document, why_not
    from runbooks.language.loader import load as load_runbooks
    from streams.correlate import Config

    settings = load(config)
    source, at = _source(settings, capture, archive, when)
    runbooks = load_runbooks(settings.responder.runbook_dirs)
    seen = observed(
        source, at, responder=settings.responder, config=Config.of(settings.correlator), runbooks=runbooks
    )
    tree = why_not(name, seen, source, settings.responder, runbooks)
    show(output, [document(tree)], lambda: show_tree(tree, depth=depth, everything=everything))


def _source(settings: Settings, capture: Path | None, archive: str, when: str) -> tuple[Capture, datetime]:
    """What is replayed, and the time that is asked about."""
    from faultline.cli.since import since_of
    from faultline.replay.archived import open_archive
    from faultline.replay.capture import read
    from streams.model.clock import utc_now
    from streams.model.errors import BadInput

    if (capture is None) is (not archive):
        raise BadInput("give --capture or --archive: where to look")
    if capture is not None:
        found = read(capture)
        at = since_of(when, found.meta.end, "--at") if when else found.meta.end
        if not found.meta.lead <= at <= found.meta.end:
            raise BadInput(f"{capture} holds {found.meta.lead} to {found.meta.end}, and nothing of {at}")
        return found, at
    at = since_of(when, utc_now(), "--at") if when else utc_now()
    return open_archive(archive, settings.cluster, at - timedelta(minutes=15), at, warm_up=WARM_UP), at
