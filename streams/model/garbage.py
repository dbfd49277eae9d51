"""When the garbage collector runs, the same in every process.

What a process handles makes thousands of objects, few of them in cycles, and nearly all are freed at once; what it keeps stays
for hours. Python's own settings look through all of that again and again: a quarter of the correlator's computing time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_COLLECT_AFTER = 100_000
"""New objects before the garbage collector runs: more than all records in hand make."""


def collect_seldom() -> None:
    """Exclude all that is there from garbage collection, and look through what comes after it less often.

    Called when a process has started, and whenever it has read back what it keeps.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 50)


def include_again() -> None:
    """Include what was excluded: much of it was dropped, and what is in cycles would stay for good."""
    gc.unfreeze()


@contextmanager
def collected_seldom() -> Iterator[None]:
    """`collect_seldom` for a piece of work in a process that goes on to do something else."""
    before = gc.get_threshold()
    collect_seldom()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        include_again()
