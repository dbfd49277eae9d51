"""`faultline topics apply|diff`: Kafka topics after the table in `streams.topics`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from faultline.cli import EXIT_NO
from faultline.output import json_line, output_option, table
from faultline.settings import load
from streams import provisioning
from streams.provisioning import Change


@click.group("topics")
def command() -> None:
    """Create, alter or compare the Kafka topics. Nothing is ever deleted."""


@command.command("apply")
@output_option
@click.pass_obj
def apply(config: Path | None, output: str) -> None:
    """Create and alter what differs, and wait until the brokers show it."""
    _show(
        asyncio.run(provisioning.apply(load(config).kafka)), output, empty="all topics are as they have to be"
    )


@command.command("diff")
@output_option
@click.pass_context
def diff(ctx: click.Context, output: str) -> None:
    """Print what differs; exit code 1 when anything does."""
    changes = asyncio.run(provisioning.diff(load(ctx.obj).kafka))
    _show(changes, output, empty="all topics are as they have to be")
    if any(change.kind != "advice" for change in changes):
        ctx.exit(EXIT_NO)


def _show(changes: list[Change], output: str, *, empty: str) -> None:
    if output == "json":
        for change in changes:
            json_line({"topic": change.topic, "change": change.kind, "detail": change.detail})
        return
    table(("topic", "change", "detail"), ((c.topic, c.kind, c.detail) for c in changes), empty=empty)
