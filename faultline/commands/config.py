"""`faultline config check`: are the settings usable, and what are they?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from faultline.output import json_line, output_option, table
from faultline.settings import load


@click.group("config")
def command() -> None:
    """Settings: environment variables FAULTLINE_* over a YAML file over the defaults."""


@command.command("check")
@output_option
@click.pass_obj
def check(config: Path | None, output: str) -> None:
    """Load the settings and print every one. Wrong keys and values are named, with exit code 2."""
    settings = load(config)
    values = settings.model_dump(mode="json")
    if output == "json":
        json_line(values)
        return
    table(("setting", "value"), _flat(values), empty="no settings")


def _flat(values: dict[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = []
    for key, value in values.items():
        rows += _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(prefix + key, value)]
    return rows
