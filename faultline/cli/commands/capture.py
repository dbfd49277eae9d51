"""`faultline capture DIR`: takes what the topics hold of a time out of Kafka, with all that a replay of it needs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultline.cli.output import output_option, show, table
from faultline.cli.since import since_of, span_of
from streams.model.clock import moment, rfc3339, utc_now
from streams.model.errors import BadInput

if TYPE_CHECKING:
    from faultline.replay.kafka_capture.take import Order
    from faultline.replay.manifest import Manifest
    from faultline.runtime.settings import Settings


@click.command(
    "capture",
    epilog="""\b
Examples:
  faultline capture monday --from 2026-03-02T03:00:00Z --to 2026-03-02T05:00:00Z
  faultline capture last-hours --from 6h                       # until now
  faultline capture short --from 2h --lead 30m --topics raw.node-logs,raw.job-logs,inventory
  faultline replay monday                                      # decide it again

\b
The same command goes on after Ctrl-C or a crash, and says so when all is there.
Exit codes: 0 complete, 2 bad input or another capture in DIR, 3 Kafka is unreachable.""",
)
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--from", "begin_text", required=True, help="Where it begins: 90m, 12h, 7d ago, or a time (RFC 3339)."
)
@click.option("--to", "end_text", default=None, help="Where it ends, likewise (default: now).")
@click.option(
    "--lead",
    "lead_text",
    default="2h",
    show_default=True,
    help="Begin the records this much earlier, for what a running pipeline knows by then.",
)
@click.option(
    "--topics", default=None, help="Only these topics, with commas between (default: all but bookkeeping)."
)
@output_option
@click.pass_obj
def command(
    config: Path | None,
    directory: Path,
    begin_text: str,
    end_text: str | None,
    lead_text: str,
    topics: str | None,
    output: str,
) -> None:
    """Take what the topics hold of a time into DIRECTORY: raw records, signals, inventory, incidents, runs, timeline and all that
    people said, what compacted topics stood at when it begins, settings without secrets, runbooks and topology.

    Records are those with a Kafka time in the range. What is not there any more is said, and stands in manifest.json.
    """
    from faultline.runtime.settings import load

    settings = load(config)
    order = _order(begin_text, end_text, lead_text, topics)
    manifest = asyncio.run(_take(settings, directory, order))
    for line in doubts(manifest):
        click.echo(f"faultline: {line}", err=True)
    show(output, lines(directory, manifest), lambda: _show(directory, manifest))


def _order(begin_text: str, end_text: str | None, lead_text: str, topics: str | None) -> Order:
    from faultline.replay.kafka_capture.take import CAPTURED, Order

    now = utc_now()
    begin = since_of(begin_text, now, "--from")
    end = since_of(end_text, now, "--to") if end_text else now
    if begin >= end:
        raise BadInput(f"--from {rfc3339(begin)} is not before --to {rfc3339(end)}")
    asked = {"from": begin_text, "to": end_text or "now", "lead": lead_text}
    return Order(
        begin, end, begin - span_of(lead_text, "--lead"), _topics(topics) if topics else CAPTURED, asked=asked
    )


def _topics(names: str) -> tuple[Any, ...]:
    from faultline.replay.kafka_capture.take import CAPTURED

    known = {topic.name: topic for topic in CAPTURED}
    wanted = list(dict.fromkeys(name for name in map(str.strip, names.split(",")) if name))
    if unknown := [name for name in wanted if name not in known]:
        raise BadInput(f"--topics: {', '.join(unknown)}: not one of {', '.join(known)}")
    return tuple(known[name] for name in wanted)


async def _take(settings: Settings, directory: Path, order: Order) -> Manifest:
    from faultline.cli.progress import progress
    from faultline.replay.kafka_capture.take import begun, damaged, take

    before = begun(directory, order, settings.cluster)
    if before is not None and before.complete:
        if wrong := damaged(directory, before):
            raise BadInput(f"{directory} is complete, but not what its manifest says: {', '.join(wrong)}")
        click.echo(
            f"faultline: {directory} is complete already; its files are what its manifest says", err=True
        )
        return before
    if before is not None:
        click.echo(f"faultline: going on with {directory}", err=True)
    with progress("taking records", unit="offsets") as bar:
        try:
            return await take(settings, directory, order, bar)
        except OSError as error:
            raise BadInput(f"{directory}: {error.strerror or error}; the same command goes on") from error


def doubts(manifest: Manifest) -> Iterator[str]:
    """What a capture may lack or hold besides, a line each."""
    if manifest.missing:
        yield f"not on the broker: {', '.join(manifest.missing)}"
    for topic, part in manifest.topics.items():
        if part.complete_from is not None and part.complete_from > manifest.lead:
            yield (
                f"{topic}: what is before {moment(part.complete_from)} has been deleted; "
                f"records were asked for from {moment(manifest.lead)} on"
            )
        parts = part.partitions.values()
        if lost := sum(one.lost for one in parts):
            yield f"{topic}: {lost} offsets were deleted before they were read"
        if late := sum(one.late for one in parts):
            yield f"{topic}: {late} records have an earlier time than the first; they are in it, where they came"
        if ahead := sum(one.ahead for one in parts):
            yield f"{topic}: {ahead} records among or right after the others have a later time; they are left out"
    for topic, state in manifest.state.items():
        if state.unknown_keys:
            yield (
                f"{topic}: of {state.unknown_keys} keys the first record that is left is later than "
                f"{moment(manifest.lead)}: they are new, or compaction has removed what they stood at"
            )


def lines(directory: Path, manifest: Manifest) -> Iterator[dict[str, Any]]:
    """What is in a capture in the shape of `--output json`: a `topic` each, last the `summary`."""
    for topic, part in manifest.topics.items():
        parts = part.partitions.values()
        yield {
            "record": "topic",
            "topic": topic,
            "records": sum(one.records for one in parts),
            "state": manifest.state[topic].records if topic in manifest.state else None,
            "bytes": sum(one.bytes for one in parts),
            "size": sum(one.size for one in parts),
            "late": sum(one.late for one in parts),
            "ahead": sum(one.ahead for one in parts),
        }
    yield {
        "record": "summary",
        "directory": str(directory),
        "from": rfc3339(manifest.begin),
        "to": rfc3339(manifest.end),
        "lead": rfc3339(manifest.lead),
        "records": sum(p.records for t in manifest.topics.values() for p in t.partitions.values()),
        "size": size_of(directory),
        "missing": list(manifest.missing),
        "doubts": list(doubts(manifest)),
    }


def _show(directory: Path, manifest: Manifest) -> None:
    *topics, summary = lines(directory, manifest)
    table(
        ("topic", "records", "state", "bytes", "compressed"),
        ((t["topic"], f"{t['records']:,}", t["state"], f"{t['bytes']:,}", f"{t['size']:,}") for t in topics),
        empty="no topics",
    )
    click.echo(
        f"\n{summary['records']:,} records from {moment(manifest.lead)} to {moment(manifest.end)} in {directory}, "
        f"{summary['size'] / 1024 / 1024:.1f} MiB"
    )


def size_of(directory: Path) -> int:
    """Bytes of all files of a capture."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
