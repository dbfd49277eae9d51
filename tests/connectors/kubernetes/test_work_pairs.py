"""Rounds of pairs, and the vote over their bandwidth."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.kubernetes.work_pairs import MAX_NODES, Pair, rounds, vote


def names(count: int) -> list[str]:
    return [f"gpu-{number:03}" for number in range(count)]


@given(st.integers(2, 70), st.integers(1, 8))
def test_every_node_meets_enough_partners_and_is_in_one_pair_at_a_time(count: int, partners: int) -> None:
    planned = rounds(names(count), partners)
    for pairs in planned:
        assert max(Counter(chain.from_iterable(pairs)).values()) == 1
    every = list(chain.from_iterable(planned))
    assert len(every) == len(set(every))
    met = Counter(chain.from_iterable(every))
    assert all(met[name] >= min(count - 1, partners) for name in names(count))
    assert rounds(names(count)[::-1], partners) == planned


def test_one_node_or_too_many_cannot_be_measured() -> None:
    with pytest.raises(ValueError, match="1 nodes"):
        rounds(["a", "a"])
    with pytest.raises(ValueError, match=f"2 to {MAX_NODES}"):
        rounds(names(MAX_NODES + 1))


def measured(count: int, slow: set[str]) -> dict[Pair, float | None]:
    return {pair: 90.0 if slow & set(pair) else 360.0 for pair in chain.from_iterable(rounds(names(count)))}


@given(
    st.integers(8, 60).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.sampled_from(names(n)), max_size=2))
    )
)
def test_the_slow_nodes_are_named_and_no_partner_of_theirs(case: tuple[int, set[str]]) -> None:
    count, slow = case
    found = vote(measured(count, slow), at_least=300)
    assert set(found.slow) == slow
    assert found.unclear == ()


def test_a_slow_link_between_two_nodes_is_nobodys_fault() -> None:
    pairs = measured(8, set())
    pairs[next(iter(pairs))] = 90.0
    found = vote(pairs)
    assert found.slow == ()
    assert len(found.unclear) == 2


def test_without_a_limit_the_median_pair_decides() -> None:
    found = vote(measured(9, {"gpu-004"}))
    assert (found.slow, found.limit) == (("gpu-004",), 288.0)


def test_two_nodes_cannot_vote() -> None:
    found = vote({("a", "b"): 90.0}, at_least=300)
    assert (found.slow, found.unclear) == ((), ("a", "b"))


def test_what_could_not_be_measured_accuses_nobody() -> None:
    pairs = measured(8, {"gpu-003"})
    for pair in pairs:
        if "gpu-003" in pair:
            pairs[pair] = None
    found = vote(pairs, at_least=300)
    assert (found.slow, found.unmeasured) == ((), ("gpu-003",))
    assert vote({("a", "b"): None}).unmeasured == ("a", "b")
