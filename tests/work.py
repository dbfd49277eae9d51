"""Work is counted, not timed: on a busy machine the same work takes longer and is no more."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def calls_counted() -> Iterator[list[int]]:
    """The number of calls, of Python's functions and of others, made within."""
    count = [0]

    def counting(frame: Any, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            count[0] += 1

    before = sys.getprofile()
    sys.setprofile(counting)
    try:
        yield count
    finally:
        sys.setprofile(before)
