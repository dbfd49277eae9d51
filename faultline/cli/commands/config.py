"""`faultline config check`: validate the settings and print them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from faultline.cli.groups import Group, examples
from faultline.cli.output import output_option, show, table
from faultline.runtime.processes import PROCESSES
from streams.model.errors import ConfigError


@click.group(
    "config",
    cls=Group,
    epilog=examples(
        ("faultline config check", "are the settings and all files they name right?"),
    ),
)
def command() -> None:
    """Settings: environment variables FAULTLINE_* over a YAML file over the defaults."""


@command.command(
    "check",
    epilog=examples(
        "faultline config check",
        ("faultline --config faultline.yaml config check --process responder", "the files of one process"),
        "faultline config check -o yaml",
    ),
)
@click.option(
    "--process",
    "process",
    type=click.Choice(sorted(PROCESSES)),
    default=None,
    help="Check only the files that this process reads. Default: those of every process.",
)
@output_option
@click.pass_obj
def check(config: Path | None, process: str | None, output: str) -> None:
    """Load the settings and print every one. All errors are reported together, with exit code 2.

    Files, runbooks and templates that settings name are checked too, as each process does before it starts. What is valid but
    hardly meant, a stage of a pool that has ended, is a warning on standard error.
    """
    from faultline.runtime.setting_files import faults
    from faultline.runtime.settings import load
    from streams.config.rollout_settings import over
    from streams.model.clock import utc_now

    settings = load(config)
    if found := faults(settings, (process,) if process else tuple(PROCESSES)):
        raise ConfigError(
            "\n".join(["files named in the settings are not usable:", *(f"  {one}" for one in found)])
        )
    for key, what in over(settings.responder.rollout, utc_now()):
        click.echo(f"faultline: warning: {key}: {what}", err=True)
    values = settings.model_dump(mode="json")
    show(output, [values], lambda: table(("setting", "value"), _flat(values), empty="no settings"))


def _flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = []
    for key, value in values.items():
        rows += _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(prefix + key, value)]
    return rows
