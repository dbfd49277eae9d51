"""What tells two reports of one entity and kind apart: `catalog/noise.yaml`."""

from __future__ import annotations

from functools import cache

from pydantic import Field

from streams.config.yaml_tables import Strict
from streams.detect.catalog import load_catalog


class DedupRule(Strict):
    """Of one kind. `distinct_by` and `condition` name attributes; see the head of the file."""

    distinct_by: tuple[str, ...]
    condition: tuple[str, ...] = ()
    window_s: float = Field(1.0, gt=0)
    variants: int = Field(64, ge=1)

    @property
    def window_ms(self) -> int:
        """How far apart the tellings of repeats are."""
        return round(self.window_s * 1000)


class DedupRules(Strict):
    """The whole file."""

    default: DedupRule
    kinds: dict[str, DedupRule]


@cache
def noise() -> DedupRules:
    """The file, read once.

    Raises:
        ConfigError: naming the first key that is wrong.
    """
    return load_catalog("noise", DedupRules)


@cache
def dedup_rule(kind: str) -> DedupRule:
    """What tells reports of this kind apart."""
    kinds = noise().kinds
    return kinds.get(kind) or kinds.get(f"{kind.partition('.')[0]}.*") or noise().default
