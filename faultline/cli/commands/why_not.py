"""`faultline why-not NODE|JOB`: why something was not done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from faultline.cli.groups import examples
from faultline.cli.output import output_option, show
from faultline.cli.trees import fold_options, show_tree
from streams.model.errors import BadInput

if TYPE_CHECKING:
    from faultline.replay.capture import Capture
    from faultline.runtime.settings import Settings

LOOKED_AT = timedelta(hours=1)
"""Of Kafka and an archive, so much before the time is read, and what a replay needs to be warm by then."""
_LONGEST_NAME = 600
"""Characters of NAMESPACE/NAME, each of which Kubernetes allows 253 of."""


@click.command(
    "why-not",
    epilog=examples(
        ("faultline why-not gpu-07", "a node, now, by what Kafka has"),
        ("faultline why-not gpu-07 --capture captures/monday", "at the end of a capture"),
        ("faultline why-not gpu-07 --at 2026-03-03T03:05:00Z --capture captures/monday", "at a time of it"),
        ("faultline why-not research/llm --at 2h --archive s3://archive/gpu-east-1", "a job, two hours ago"),
        (
            "faultline why-not gpu-07 --capture captures/monday -o json | jq -r .tree.answer",
            "the answer alone",
        ),
    ),
)
@click.argument("name", metavar="NODE|JOB")
@click.option(
    "--at",
    "when",
    default="",
    help="The time that is asked about: RFC 3339, or 2h: before the end of a capture, else before now (default: that end).",
)
@click.option(
    "--capture",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Look into this capture, not into Kafka.",
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

    What Kafka still has, or a capture or archive, is replayed in memory up to that time. The tree begins with the answer. Below
    it: the signals about NODE|JOB and as what each was counted, sources that were silent, every explanation that was weighed and
    what it lacked, the incidents that name it, which runbooks missed it by which condition, which guardrail objected, and what
    people and settings held back.
    """
    from faultline.runtime.settings import load
    from faultline.why.observed import observed
    from faultline.why.why_not import document, why_not
    from runbooks.language.loader import load as load_runbooks
    from streams.correlate import Config

    if not name.strip() or len(name) > _LONGEST_NAME:
        raise BadInput(f"NODE|JOB has {len(name)} characters: no name of a node or job has")
    settings = load(config)
    runbooks = load_runbooks(settings.responder.runbook_dirs)
    with _source(settings, capture, archive, when) as (source, at):
        seen = observed(
            source, at, responder=settings.responder, config=Config.of(settings.correlator), runbooks=runbooks
        )
        tree = why_not(name, seen, source, settings.responder, runbooks)
    show(output, [document(tree)], lambda: show_tree(tree, depth=depth, everything=everything))


@contextmanager
def _source(
    settings: Settings, capture: Path | None, archive: str, when: str
) -> Iterator[tuple[Capture, datetime]]:
    """What is replayed, and the time that is asked about."""
    from faultline.cli.left_out import tell_left_out
    from faultline.cli.since import since_of
    from faultline.replay.sources import KAFKA, opened
    from faultline.why.observed import AFTER
    from streams.model.clock import moment, utc_now

    if capture is not None and archive:
        raise BadInput("give --capture or --archive, not both")
    if capture is not None:
        with opened(str(capture), settings) as found:
            at = since_of(when, found.meta.end, "--at") if when else found.meta.end
            if not found.meta.lead <= at <= found.meta.end:
                held = f"{moment(found.meta.lead)} to {moment(found.meta.end)}"
                raise BadInput(f"{capture} holds {held}, and nothing of {moment(at)}")
            yield found, at
            tell_left_out(found)
        return
    now = utc_now()
    at = since_of(when, now, "--at") if when else now
    if at > now:
        raise BadInput(f"--at {moment(at)} is still to come")
    with opened(archive or KAFKA, settings, at - LOOKED_AT, min(at + AFTER, now)) as found:
        yield found, at
        tell_left_out(found)
