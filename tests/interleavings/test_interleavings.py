"""Whoever acts in between: nothing that is not ours is undone, and nothing of ours is left behind."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.interleavings.play import Played
from tests.interleavings.run import play_all

EVERY_COMMIT = range(8)
AT_NIGHT = range(1000)


def problems_in(played: list[Played]) -> list[str]:
    return [f"seed {one.seed}: {problem}" for one in played for problem in one.problems]


async def test_nothing_of_others_is_undone_and_nothing_of_ours_is_left_behind() -> None:
    played = await play_all(EVERY_COMMIT)
    assert problems_in(played) == []
    assert sum(one.acts for one in played) > 60
    assert sum(one.deaths for one in played) > 0


async def test_a_seed_is_always_the_same_story() -> None:
    first, second = await play_all([7, 7])
    assert first == second


@pytest.mark.nightly
@pytest.mark.timeout(3600)
async def test_so_it_is_in_a_thousand() -> None:
    played = await play_all(AT_NIGHT)
    assert problems_in(played) == []
    runs = Counter(outcome for one in played for outcome in one.outcomes)
    assert {"node succeeded", "move succeeded", "back cancelled", "other cancelled"} <= runs.keys()
