"""The detector's data: codes, wordings, thresholds and severities, each row with its source and samples."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from streams.model.errors import ConfigError

T = TypeVar("T", bound=BaseModel)

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Ten times faster where PyYAML was built with libyaml, as its wheels are: a process waits for its catalogs when it starts."""

FOLDER = Path(__file__).parent


class Strict(BaseModel):
    """What every row and sheet is: nothing it does not know is let through, and nothing of it changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def load_catalog(name: str, kind: type[T]) -> T:
    """One data file of this folder, validated as the pydantic model `kind`.

    Raises:
        ConfigError: naming the file and the first key that is wrong.
    """
    path = FOLDER / f"{name}.yaml"
    try:
        return kind.model_validate(yaml.load(path.read_text(), _LOADER))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"catalog {name}.yaml cannot be read: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ConfigError(
            f"catalog {name}.yaml: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        ) from error
