"""Something that shows how far a long work is, and something that shows nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Bar(Protocol):
    """Shows how far a work is; `total` is how much there is in all, None when nobody knows."""

    total: int | None

    def advance(self, by: int = 1) -> None:
        """So much more is done."""


class _NoBar:
    total: int | None = None

    def advance(self, by: int = 1) -> None:
        """So much more is done."""


@contextmanager
def no_bar() -> Iterator[Bar]:
    """Shows nothing."""
    yield _NoBar()
