"""Which of several matching runbooks is taken: priority, then how much it demands, then its id; and why not the others."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbooks.language.conditions import condition, facts_of
from runbooks.language.loader import load_text
from runbooks.language.schema import Runbook
from runbooks.language.select import rank, select, specificity, unmet
from tests.runbooks.scenes import incident

ASK = "steps: [{id: ask, action: ask, target: incident}]"


def book(name: str, match: str, priority: int = 0) -> Runbook:
    head = f"id: {name}\nrevision: 1\nowner: t\nmode: auto\ndescription: to test with\npriority: {priority}"
    return load_text(f"{head}\nmatch: >-\n  {match}\n{ASK}\n", "book.yaml")


GENERAL = book("general", 'incident.family == "gpu_off_bus"')
EXACT = book("zealous", 'incident.family == "gpu_off_bus" && incident.facts.xid == 79')
TWIN = book("exact-too", 'incident.family == "gpu_off_bus" && incident.jobs == 1')
CATCH_ALL = book("catch-all", "true")
HIGH = book("high", "true", priority=10)
OTHER = book("other", 'incident.family == "hang" && incident.jobs == 1', priority=500)


@pytest.mark.parametrize(
    ("there", "taken"),
    [
        ((GENERAL, EXACT, CATCH_ALL, OTHER), "zealous"),
        ((GENERAL, EXACT, TWIN, OTHER), "exact-too"),
        ((GENERAL, EXACT, HIGH, CATCH_ALL), "high"),
        ((GENERAL, CATCH_ALL, OTHER), "general"),
    ],
)
def test_the_order_in_which_runbooks_are_known_decides_nothing(
    there: tuple[Runbook, ...], taken: str
) -> None:
    choices = [select(incident(), order) for order in permutations(there)]
    assert all(choice == choices[0] for choice in choices)
    assert choices[0].runbook is not None
    assert choices[0].runbook.id == taken


def test_every_loser_is_told_what_it_lost_by() -> None:
    choice = select(incident(), (GENERAL, EXACT, TWIN, CATCH_ALL, OTHER))
    assert choice.why == "exact-too matches with priority 0 and 2 conditions"
    assert dict(choice.rejected) == {
        "general": "less specific than exact-too: 1 condition, not 2",
        "zealous": "as specific as exact-too, whose id comes first",
        "catch-all": "less specific than exact-too: 0 conditions, not 2",
        "other": 'does not match: incident.family == "hang" && incident.jobs == 1',
    }
    assert dict(select(incident(), (GENERAL, HIGH)).rejected) == {
        "general": "priority 0 is below the 10 of high"
    }


@pytest.mark.parametrize(
    ("match", "count"),
    [
        ("true", 0),
        ("incident.jobs > 1", 1),
        ("incident.jobs > 1 && incident.jobs>1", 1),
        ("incident.jobs > 1 && (incident.ranks > 1 && true)", 2),
        ("incident.jobs > 1 || incident.ranks > 1", 1),
        ('incident.facts.names.exists(n, n == "a") && !(incident.jobs == 2)', 2),
    ],
)
def test_specific_is_what_demands_more_of_the_incident(match: str, count: int) -> None:
    assert specificity(match) == count


def test_what_does_not_hold_is_named() -> None:
    facts = facts_of(incident())
    match = "incident.jobs == 1 && (incident.facts.xid == 48 || incident.ranks > 7) && incident.facts.none"
    assert unmet(match, facts) == ("incident.facts.xid == 48 || incident.ranks > 7", "incident.facts.none")
    assert unmet("incident.jobs == 1", facts) == ()


PARTS = st.lists(
    st.sampled_from(
        ["incident.jobs == 1", "incident.jobs > 3", "true", "incident.facts.xid == 79", "incident.facts.no"]
    ),
    min_size=1,
    max_size=4,
)


@given(st.lists(st.tuples(PARTS, st.integers(0, 2)), min_size=1, max_size=5))
def test_the_one_taken_is_the_first_in_rank_of_those_that_match(
    drawn: list[tuple[list[str], int]],
) -> None:
    books = [book(f"b{i}", " && ".join(parts), priority) for i, (parts, priority) in enumerate(drawn)]
    facts = facts_of(incident())
    matching = sorted((b for b in books if condition(b.match).holds(facts)), key=rank)
    choice = select(incident(), books)
    assert choice.runbook == (matching[0] if matching else None)
    assert {name for name, _ in choice.rejected} == {b.id for b in books} - {
        choice.runbook.id if choice.runbook else ""
    }
    for one in books:
        assert bool(unmet(one.match, facts)) == (one not in matching)
