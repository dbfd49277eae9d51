"""What is kept for good is left out of garbage collection, and what was dropped of it does not stay."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from streams.model.garbage import collect_seldom, include_again


class Ring:
    """An object in a cycle."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.freeze()


def test_what_is_there_is_left_out_and_the_collector_runs_seldom() -> None:
    frozen, kept = gc.get_freeze_count(), [Ring() for _ in range(1000)]
    collect_seldom()
    assert gc.get_freeze_count() >= frozen + len(kept)
    assert gc.get_threshold()[0] >= 100_000


def test_garbage_is_not_kept_for_good() -> None:
    ring = Ring()
    seen = weakref.ref(ring)
    del ring
    collect_seldom()
    assert seen() is None


def test_what_was_dropped_since_goes_when_it_is_included_again() -> None:
    ring = Ring()
    seen = weakref.ref(ring)
    collect_seldom()
    del ring
    collect_seldom()
    assert seen() is not None, "it was left out"
    include_again()
    collect_seldom()
    assert seen() is None
