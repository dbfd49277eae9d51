"""The base of every group of settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

DAY_S = 86400.0

Contradiction = tuple[tuple[str, ...], str]
"""The keys that contradict each other, the one to report it at first, and why."""

ContradictionAt = tuple[tuple[tuple[int | str, ...], ...], str]
"""The same with the paths of the keys from the top."""


def contradicting(found: Sequence[Contradiction]) -> PydanticCustomError:
    """The one error that reports every contradiction of a model."""
    what = "; ".join(f"{keys[0]}: {why}" for keys, why in found)
    return PydanticCustomError("contradictions", "{what}", {"what": what, "found": tuple(found)})


_raises: ContextVar[bool] = ContextVar("contradictions raise", default=True)


@contextmanager
def values_alone() -> Iterator[None]:
    """Models made inside are checked value by value; `contradictions_in` finds what does not go together."""
    token = _raises.set(False)
    try:
        yield
    finally:
        _raises.reset(token)


def raise_contradictions(found: Iterator[Contradiction]) -> None:
    """Raise the one error that reports them, if there are any and this is no look at the values alone."""
    if _raises.get() and (all_of_them := list(found)):
        raise contradicting(all_of_them)


def contradictions_in(value: Any, path: tuple[int | str, ...] = ()) -> Iterator[ContradictionAt]:
    """The contradictions of a model and of all sections in it, each with the full paths of its keys."""
    if isinstance(value, BaseModel):
        for keys, why in getattr(value, "contradictions", tuple)():
            yield tuple((*path, *key.split(".")) for key in keys), why
        value = {name: getattr(value, name) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from contradictions_in(inner, (*path, name))
    elif isinstance(value, tuple):
        for number, inner in enumerate(value):
            yield from contradictions_in(inner, (*path, number))


class Section(BaseModel):
    """Base of every group of settings: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def contradictions(self) -> Iterator[Contradiction]:
        """Combinations of values that cannot work, each of them valid by itself."""
        yield from ()

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        raise_contradictions(self.contradictions())
        return self
