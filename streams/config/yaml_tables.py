"""Loads the YAML tables of policy and wording that lie beside the code, validated, with errors that name the key."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from streams.config.plain_faults import faults, said
from streams.config.table_overlay import laid_over, overlay_of, read_yaml
from streams.model.errors import ConfigError

T = TypeVar("T")

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Ten times faster with libyaml, which PyYAML's wheels contain: every start waits for tables, and topology files are long."""


class Strict(BaseModel):
    """Base of all rows and tables: unknown keys are refused, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def load_table(path: Path, kind: type[T]) -> T:
    """One data file, with what a site lays over it (`table_overlay`), validated as `kind`.

    Raises:
        ConfigError: naming the file and every value that is wrong.
    """
    content, source = read_yaml(path, LOADER), path.name
    if (overlay := overlay_of(path)) is not None:
        content, source = laid_over(content, read_yaml(overlay, LOADER)), f"{overlay} over {path.name}"
    try:
        return TypeAdapter(kind).validate_python(content)
    except ValidationError as error:
        lines = [f"{source}: {said(path, what, content)}" for path, what in faults(error, kind)]
        raise ConfigError("\n".join(lines)) from error
