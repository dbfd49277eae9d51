"""Which attributes tell two reports of one entity and kind apart: `catalog/noise.yaml`."""

from __future__ import annotations

from functools import cache

from pydantic import Field

from streams.config.vocabularies import KindOrGroup
from streams.config.yaml_tables import Strict
from streams.detect.catalog import load_catalog


class DedupRule(Strict):
    """The rule of one kind. `distinct_by` and `condition` name attributes; the head of the file explains them."""

    distinct_by: tuple[str, ...]
    condition: tuple[str, ...] = ()
    window_s: float = Field(1.0, gt=0)
    variants: int = Field(64, ge=1)

    @property
    def window_ms(self) -> int:
        """Milliseconds between two reports of the same."""
        return round(self.window_s * 1000)


class DedupRules(Strict):
    """The whole file."""

    default: DedupRule
    kinds: dict[KindOrGroup, DedupRule]


@cache
def noise() -> DedupRules:
    """The file, read once."""
    return load_catalog("noise", DedupRules)


@cache
def dedup_rule(kind: str) -> DedupRule:
    """The rule of a kind: by its name, else its family, else the default."""
    kinds = noise().kinds
    return kinds.get(kind) or kinds.get(f"{kind.partition('.')[0]}.*") or noise().default
