"""What tells two reports of one entity and kind apart: `catalog/noise.yaml`."""

from __future__ import annotations

from functools import cache

from pydantic import Field

from streams.config.yaml_tables import Strict
from streams.detect.catalog import load_catalog


class Distinctions(Strict):
    """Of one kind. `telling` and `condition` name attributes; see the head of the file."""

    telling: tuple[str, ...]
    condition: tuple[str, ...] = ()
    window_s: float = Field(1.0, gt=0)
    variants: int = Field(64, ge=1)

    @property
    def window_ms(self) -> int:
        """How far apart the tellings of repeats are."""
        return round(self.window_s * 1000)


class Noise(Strict):
    """The whole file."""

    default: Distinctions
    kinds: dict[str, Distinctions]


@cache
def noise() -> Noise:
    """The file, read once.

    Raises:
        ConfigError: naming the first key that is wrong.
    """
    return load_catalog("noise", Noise)


@cache
def distinctions(kind: str) -> Distinctions:
    """What tells reports of this kind apart."""
    kinds = noise().kinds
    return kinds.get(kind) or kinds.get(f"{kind.partition('.')[0]}.*") or noise().default
