"""`faultline mcp`: read-only tools for language models, over standard input and output."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path

import click

from faultline.cli.groups import examples


@click.command(
    "mcp",
    epilog=examples(
        ("faultline mcp --config /etc/faultline/settings.yaml", "as a client starts it"),
    ),
)
@click.pass_obj
def command(config: Path | None) -> None:
    """Serve read-only tools over the Model Context Protocol on standard input and output: list, show and explain incidents.

    A client starts it as its child. Nothing can be changed through it.
    """
    if importlib.util.find_spec("mcp") is None:
        raise click.UsageError("'faultline mcp' needs the package 'mcp': install 'faultline[mcp]'")
    from faultline.mcp.server import serve
    from faultline.runtime import logging_setup
    from faultline.runtime.settings import load
    from faultline.why.explanation import explain

    settings = load(config)
    logging_setup.configure("mcp", level=settings.log_level, form=settings.log_format)
    asyncio.run(serve(settings.kafka, explain))
