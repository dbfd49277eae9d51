"""The detector's data: codes, patterns, thresholds and severities, each row with its source and samples."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from streams.config.yaml_tables import load_table

T = TypeVar("T", bound=BaseModel)

FOLDER = Path(__file__).parent


def load_catalog(name: str, kind: type[T]) -> T:
    """One data file of this folder, validated as the pydantic model `kind`.

    Raises:
        ConfigError: naming the file and the first key that is wrong.
    """
    return load_table(FOLDER / f"{name}.yaml", kind)
