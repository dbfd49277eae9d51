"""What a shell is offered for an argument. Whatever goes wrong, nothing is offered: a person is typing, and wants no error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from streams.model.errors import FaultlineError

KAFKA_S = 1.0
"""How long somebody who presses Tab waits for the broker."""


def incident_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of incidents with their titles, from Kafka, if it answers at once."""
    wanted = incomplete if incomplete.startswith("inc-"[: len(incomplete)]) else f"inc-{incomplete}"
    return _offered(lambda: _incidents(_config(ctx)), wanted)


def runbook_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids of the runbooks that ship and of those in `responder.runbook_dirs`, with what they are for."""
    return _offered(lambda: _runbooks(_config(ctx)), incomplete)


def incident_argument(function: Callable[..., None]) -> Callable[..., None]:
    """The argument `INCIDENT_ID`, with completion."""
    return click.argument("incident_id", shell_complete=incident_ids)(function)


def _config(ctx: click.Context) -> Path | None:
    found = ctx.find_root().params.get("config")
    return found if isinstance(found, Path) else None


def _offered(known: Callable[[], Iterable[tuple[str, str]]], incomplete: str) -> list[CompletionItem]:
    try:
        return [CompletionItem(name, help=about) for name, about in known() if name.startswith(incomplete)]
    except (FaultlineError, OSError, TimeoutError):
        return []


def _incidents(config: Path | None) -> Iterable[tuple[str, str]]:
    from aiokafka.errors import KafkaError

    from faultline.cli.read_topics import read_incidents
    from faultline.runtime.settings import load

    async def read() -> Iterable[tuple[str, str]]:
        async with asyncio.timeout(KAFKA_S):
            found = await read_incidents(load(config).kafka)
        return [(name, incident.title) for name, incident in found.items()]

    try:
        return asyncio.run(read())
    except KafkaError as error:
        raise OSError(str(error)) from error


def _runbooks(config: Path | None) -> Iterable[tuple[str, str]]:
    from faultline.runtime.runbook_files import read_library
    from faultline.runtime.settings import load

    found = read_library(load(config).responder.runbook_dirs, shipped=True)
    return [(name, one.runbook.description.split(".")[0]) for name, one in found.loaded.items()]
