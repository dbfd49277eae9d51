"""How far runbooks go in each pool: watch, act on a few nodes, act on all; and when that falls back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import StrEnum

from pydantic import AwareDatetime, Field

from streams.config.section import Contradiction, Section
from streams.config.setting_types import Name, NodePattern
from streams.model.clock import rfc3339


class Stage(StrEnum):
    """How far runbooks go in a pool."""

    OBSERVE = "observe"
    CANARY = "canary"
    ACT = "act"

    @property
    def rank(self) -> int:
        """0 for observe up to 2 for act."""
        return list(Stage).index(self)


EVERY_POOL = "*"
"""The row for pools that have none of their own, and for nodes without a pool."""


class PoolRollout(Section):
    """The stage of one pool. Once `until` is past, `then` holds: a stage falls back by itself and never goes on."""

    pool: Name = Field(description="pool of nodes; an asterisk for all that have no row of their own")
    stage: Stage = Field(
        description="observe: shadow mode; canary: only canary_nodes are acted on; act: as responder.mode allows"
    )
    canary_nodes: int | tuple[NodePattern, ...] = Field(
        (), description="how many nodes, the first by name, or name patterns, of the pool in stage canary"
    )
    until: AwareDatetime | None = Field(None, description="end of the stage; required for canary")
    then: Stage = Field(Stage.OBSERVE, description="the stage after that: a more careful one")

    def contradictions(self) -> Iterator[Contradiction]:
        """A stage that would go on by itself, has no end, or names nobody."""
        if self.stage is Stage.CANARY and self.until is None:
            yield ("until", "stage"), f"{self.pool}: stage canary needs until"
        if self.stage is Stage.OBSERVE and self.until is not None:
            yield (
                ("until", "stage"),
                f"{self.pool}: stage observe has no end; nothing is more careful",
            )
        elif self.until is not None and self.then.rank >= self.stage.rank:
            yield (
                ("then", "stage"),
                f"{self.pool}: after {self.stage} comes a more careful stage, not {self.then}",
            )
        named = self.canary_nodes
        if isinstance(named, int) and not 0 < named <= 10_000:
            yield ("canary_nodes",), f"{self.pool}: canary_nodes is {named}; at least one node is needed"
        elif Stage.CANARY in (self.stage, self.then if self.until is not None else self.stage) and not named:
            yield ("canary_nodes", "stage", "then"), f"{self.pool}: stage canary needs canary_nodes"

    def stage_at(self, now: datetime) -> Stage:
        """The stage that holds now."""
        return self.then if self.until is not None and now >= self.until else self.stage


def contradictory(rows: Sequence[PoolRollout]) -> Iterator[Contradiction]:
    """Pools with several rows: which of them holds would depend on their order."""
    places: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        places.setdefault(row.pool, []).append(number)
    for pool, found in sorted(places.items()):
        if len(found) > 1:
            keys = tuple(f"rollout.{number}.pool" for number in reversed(found))
            yield keys, f"pool {pool} has {len(found)} rows"


def over(rows: Sequence[PoolRollout], now: datetime) -> Iterator[tuple[str, str]]:
    """Rows whose stage has ended: their keys, and what holds instead."""
    for number, row in enumerate(rows):
        if row.until is not None and now >= row.until:
            yield (
                f"responder.rollout.{number}.until",
                f"{rfc3339(row.until)} is past: pool {row.pool} is in stage {row.then}, no longer in {row.stage}",
            )
