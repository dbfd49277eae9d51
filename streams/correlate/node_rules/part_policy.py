"""When trouble on several nodes is one event of a part that they share: `shared_parts.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import cache, partial
from math import ceil
from pathlib import Path

from streams.config.vocabularies import FamilyName
from streams.config.yaml_tables import Strict, load_table
from streams.model.entity import Part


class _Enough(Strict):
    nodes: int
    share: float
    within_s: int

    @property
    def within(self) -> timedelta:
        return timedelta(seconds=self.within_s)

    def are_met(self, hit: int, known: int) -> bool:
        return hit >= self.needed(known)

    def needed(self, known: int) -> int:
        return max(2, min(self.nodes, known), ceil(round(self.share * known, 6)))


class PartPolicy(Strict):
    """The whole file."""

    power: _Enough
    sudden: _Enough
    software: _Enough
    unfelt_s: float
    blaming: int
    covers: float
    all: float
    several: int
    prefer: tuple[str, ...]
    not_power: frozenset[str]
    not_dark: frozenset[str]
    trouble: Mapping[FamilyName, str]
    takes: frozenset[FamilyName]
    feeds_hot: str
    feeds_dark: str
    complains_before_s: float

    @property
    def feeds(self) -> frozenset[str]:
        """Kinds of parts whose devices may tell why nodes are hot or dark."""
        return frozenset({self.feeds_hot, self.feeds_dark})

    @property
    def complains_before(self) -> timedelta:
        """How long before its nodes are in trouble a device may have begun to complain."""
        return timedelta(seconds=self.complains_before_s)

    @property
    def unfelt(self) -> timedelta:
        """How long a part must tell of heat while none of its nodes is in trouble."""
        return timedelta(seconds=self.unfelt_s)

    def size(self, part: Part, known: int) -> tuple[int, int, Part]:
        """For choosing between parts: the smaller first, of equal ones the kind that people look at first."""
        rank = self.prefer.index(part.kind) if part.kind in self.prefer else len(self.prefer)
        return (known, rank, part)


part_policy = cache(partial(load_table, Path(__file__).with_name("shared_parts.yaml"), PartPolicy))
"""The policy that ships."""
