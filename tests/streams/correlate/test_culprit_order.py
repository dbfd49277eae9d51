"""Nested groups, failing connections, processes that ended and ranks learned late: the same incidents however they are told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.model.facts import Fact
from streams.model.signal import Signal
from tests.effort import tries
from tests.streams.correlate.deliveries import Disturbance, essence, on_time, outcome
from tests.streams.correlate.test_death_policy import closed, said, unanswered
from tests.streams.correlate.test_rank_assignment import made, unnumbered
from tests.streams.correlate.world import FOUR, cluster, not_ready, summary, timeouts

Story = tuple[list[Fact], list[Signal]]


def nested() -> Story:
    """Ranks 0-7 lag in one group because another one waits for rank 16 and its node."""
    return cluster({"llama": FOUR}), [
        *timeouts("llama", range(24, 32), 600, pg="2", seq=50),
        *(summary("llama", r, 601, enqueued=49, pg="2") for r in range(8)),
        *timeouts("llama", range(8), 602, pg="5", seq=900),
        *timeouts("llama", range(8, 16), 602, pg="5", seq=900),
        *(summary("llama", r, 603, enqueued=899, pg="5") for r in range(16, 24)),
    ]


def ended() -> Story:
    return cluster({"llama": FOUR}), [
        said("job.failed", 1, 9, subtype="process_exit", exitcode=1),
        closed(0, 1, 10),
        closed(2, 1, 10.5),
        closed(3, 2, 12),
    ]


def unreachable() -> Story:
    return cluster({"llama": FOUR}), [
        unanswered(0, 1, 8),
        unanswered(2, 1, 8.5),
        unanswered(3, 2, 17),
        not_ready("n2", 45),
    ]


def learned() -> Story:
    return unnumbered(), [
        *(made(r, r // 8, -100) for r in range(32)),
        *timeouts("llama", [r for r in range(32) if r != 21], 600),
    ]


def late_rank() -> Story:
    """All wait alike; whoever is told last looks silent until then."""
    return cluster({"llama": FOUR}), timeouts("llama", range(32), 600)


EXPECTED = {
    nested: ("silent_node", "n3"),
    ended: ("application", None),
    unreachable: ("node_down", "n2"),
    learned: ("silent_node", "n3"),
    late_rank: ("hang", None),
}


@pytest.mark.parametrize("story", EXPECTED)
def test_the_stories_end_as_they_should(story: Callable[[], Story]) -> None:
    facts, signals = story()
    assert [(i.family, i.root.node) for i in outcome(on_time(facts, signals))] == [EXPECTED[story]]


@pytest.mark.parametrize("story", EXPECTED)
@settings(max_examples=tries(5))
@given(
    disturbance=st.builds(
        Disturbance,
        delay_s=st.sampled_from([5.0, 60.0, 300.0, 700.0]),
        facts_delay_s=st.sampled_from([0.0, 600.0]),
        repeated=st.sampled_from([0.0, 0.2]),
        restarts=st.sampled_from([0.0, 0.1]),
        seed=st.integers(0, 2**32),
    )
)
def test_late_split_and_repeated_they_end_alike(story: Callable[[], Story], disturbance: Disturbance) -> None:
    facts, signals = story()
    expected = [essence(i) for i in outcome(on_time(facts, signals))]
    told = outcome(disturbance.deliver(facts, signals), restarts=disturbance.restarts, seed=disturbance.seed)
    assert [essence(i) for i in told] == expected
