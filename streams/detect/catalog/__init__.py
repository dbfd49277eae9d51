"""The detector's data: codes, wordings, thresholds and severities, each row with its source and samples."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from streams.model.errors import ConfigError

T = TypeVar("T", bound=BaseModel)


def load_catalog(name: str, kind: type[T]) -> T:
    """One data file of this folder, validated as the pydantic model `kind`.

    Raises:
        ConfigError: naming the file and the first key that is wrong.
    """
    path = Path(__file__).parent / f"{name}.yaml"
    try:
        return kind.model_validate(yaml.safe_load(path.read_text()))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"catalog {path.name} cannot be read: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ConfigError(
            f"catalog {path.name}: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        ) from error
