"""Figures over several incidents that are honest about how few there are. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from statistics import median

MEDIAN_FROM = 3
"""With fewer values a median says no more than the values themselves."""
P90_FROM = 10
"""With fewer values the 90th percentile is the greatest of them, or a guess."""


@dataclass(frozen=True, slots=True)
class Count:
    """How many incidents, and which."""

    value: int
    incidents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Amount:
    """A sum over incidents; `unknown` are those that belong to it and whose part is not known."""

    value: float
    incidents: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Times:
    """Durations in seconds. `median_s` needs 3 values and `p90_s` 10; with fewer they are None, and the extremes say it all."""

    count: int
    median_s: float | None
    p90_s: float | None
    least_s: float | None
    most_s: float | None
    incidents: tuple[str, ...] = ()


def count_of(incidents: Iterable[str]) -> Count:
    """How many, each counted once, in their order."""
    ids = tuple(dict.fromkeys(incidents))
    return Count(len(ids), ids)


def times_of(values: Iterable[tuple[str, float]]) -> Times:
    """The figures of some durations, each with the incident that it is of."""
    found = list(values)
    seconds = sorted(value for _, value in found)
    number = len(seconds)
    return Times(
        count=number,
        median_s=float(median(seconds)) if number >= MEDIAN_FROM else None,
        # Nearest rank: a value that was measured, not one between two of them.
        p90_s=seconds[ceil(0.9 * number) - 1] if number >= P90_FROM else None,
        least_s=seconds[0] if seconds else None,
        most_s=seconds[-1] if seconds else None,
        incidents=tuple(dict.fromkeys(name for name, _ in found)),
    )


def amount_of(values: Iterable[tuple[str, float | None]]) -> Amount:
    """A sum of what is known, each part with the incident that it is of."""
    known: dict[str, float] = {}
    unknown: dict[str, None] = {}
    for name, value in values:
        if value is None:
            unknown[name] = None
        else:
            known[name] = known.get(name, 0.0) + value
    return Amount(sum(known.values()), tuple(known), tuple(unknown))
