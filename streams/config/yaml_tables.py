"""Policy and wording as data: YAML files beside the code that reads them, validated once, with errors that name the key."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from streams.model.errors import ConfigError

T = TypeVar("T")

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Ten times faster where PyYAML was built with libyaml, as its wheels are: a process waits for its tables when it starts."""


class Strict(BaseModel):
    """What every row and sheet is: nothing it does not know is let through, and nothing of it changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def load_table(path: Path, kind: type[T]) -> T:
    """One data file, validated as `kind`.

    Raises:
        ConfigError: naming the file and the first key that is wrong.
    """
    try:
        return TypeAdapter(kind).validate_python(yaml.load(path.read_text(), _LOADER))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path.name} cannot be read: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ConfigError(f"{path.name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
