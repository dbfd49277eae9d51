"""The base of every group of settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

DAY_S = 86400.0

Contradiction = tuple[tuple[str, ...], str]
"""The keys that contradict each other, the one to report it at first, and why."""


def contradicting(found: Sequence[Contradiction]) -> PydanticCustomError:
    """The one error that reports every contradiction of a model."""
    what = "; ".join(f"{keys[0]}: {why}" for keys, why in found)
    return PydanticCustomError("contradictions", "{what}", {"what": what, "found": tuple(found)})


class Section(BaseModel):
    """Base of every group of settings: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def contradictions(self) -> Iterator[Contradiction]:
        """Combinations of values that cannot work, each of them valid by itself."""
        yield from ()

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if found := list(self.contradictions()):
            raise contradicting(found)
        return self
