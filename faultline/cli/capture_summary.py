"""What a capture holds and lacks, as `faultline capture` prints it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from faultline.cli.output import table
from streams.model.clock import moment, rfc3339

if TYPE_CHECKING:
    from faultline.replay.manifest import Manifest


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


def show_table(directory: Path, manifest: Manifest) -> None:
    """Print how much of each topic is in a capture."""
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
