"""`faultline run NAME`: one process of the pipeline, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import asyncio
import atexit
from pathlib import Path

import click

from faultline.cli.groups import examples
from faultline.runtime.processes import PROCESSES


@click.command(
    "run",
    epilog=examples(
        "faultline --config faultline.yaml run responder",
        ("FAULTLINE_HTTP_PORT=8080 faultline run detector", "with /live and /ready"),
    ),
)
@click.argument("name", type=click.Choice(sorted(PROCESSES)))
@click.pass_obj
def command(config: Path | None, name: str) -> None:
    """Start one process. Logs go to stderr: JSON, or one readable line each on a terminal."""
    from faultline.runtime import checked_copy
    from faultline.runtime.logging_setup import configure
    from faultline.runtime.reload import BeginAnew, LiveConfig, Reloader, begin_anew, starting_set
    from faultline.runtime.serve import serve
    from faultline.runtime.setting_files import require
    from faultline.runtime.tracing_setup import traced
    from faultline.runtime.wiring import work_of

    atexit.register(checked_copy.drop)
    begun = checked_copy.begun()
    if begun is None:
        settings, found = starting_set(config)
        require(settings, name)
        begun = checked_copy.Begun(settings, settings, found)
    settings, found = begun.to_work_with, begun.found
    folding = configure(name, level=settings.log_level, form=settings.log_format)
    live = LiveConfig(found.version if found.has_files else None)
    reloader = Reloader(name, config, begun.settings, now=found, live=live)
    watch = [reloader.watch] if settings.reload_s and found.has_files else []
    try:
        with traced(settings, name):
            work = work_of(name, settings, live=live)
            asyncio.run(serve(name, settings, work, look=folding.look, beside=watch))
    except BeginAnew as begin:
        begin_anew(begin.copy)
