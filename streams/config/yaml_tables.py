"""Loads the YAML tables of policy and wording that lie beside the code, validated, with errors that name the key."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from streams.model.errors import ConfigError

T = TypeVar("T")

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Ten times faster with libyaml, which PyYAML's wheels contain: every start waits for tables, and topology files are long."""


class Strict(BaseModel):
    """Base of all rows and tables: unknown keys are refused, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def load_table(path: Path, kind: type[T]) -> T:
    """One data file, validated as `kind`.

    Raises:
        ConfigError: naming the file and the first key that is wrong.
    """
    try:
        return TypeAdapter(kind).validate_python(yaml.load(path.read_text(), LOADER))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path.name} cannot be read: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ConfigError(f"{path.name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
