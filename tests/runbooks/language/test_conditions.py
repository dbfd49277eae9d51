"""Conditions remember their answers, and never an answer to another question."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbooks.language.conditions import CelCondition, facts_of
from tests.runbooks.scenes import incident

VALUES = st.one_of(st.booleans(), st.integers(-3, 3), st.sampled_from(["", "dict", "missing", "a"]))
FACTS = st.fixed_dictionaries(
    {}, optional={"xid": VALUES, "names": st.lists(st.sampled_from(["a", "b"]), max_size=2)}
)
SOURCES = (
    'incident.family == "a"',
    'incident.family.startsWith("a") && incident.jobs > 0',
    "has(incident.facts.xid) && incident.facts.xid == 1",
    '"xid" in incident.facts',
    'incident["family"] == "a"',
    'incident.facts.names.exists(n, n == "a")',
    "incident.jobs == 1 || incident.facts.xid == true",
)


def _facts(family: Any, jobs: int, facts: dict[str, Any]) -> dict[str, Any]:
    return {"family": family, "jobs": jobs, "facts": facts}


@given(
    st.sampled_from(SOURCES),
    st.lists(st.tuples(st.sampled_from(["", "a", "ab"]), st.integers(0, 2), FACTS), min_size=2, max_size=6),
)
def test_a_condition_that_was_asked_before_answers_like_a_new_one(
    source: str, asked: list[tuple[str, int, dict[str, Any]]]
) -> None:
    used = CelCondition(source)
    for family, jobs, facts in asked:
        seen = _facts(family, jobs, facts)
        assert used.holds(seen) == CelCondition(source).holds(seen)


def test_what_a_condition_does_not_name_does_not_change_its_answer() -> None:
    condition = CelCondition('incident.family == "a"')
    assert condition.holds(_facts("a", 1, {}))
    assert condition.holds(_facts("a", 2, {"xid": 79}))
    assert not condition.holds(_facts("b", 1, {}))
    assert condition.holds(_facts("a", 3, {}))


COMPARED = (
    'incident.family == "a"',
    'incident.family != "a"',
    ' incident.facts.xid=="a" ',
    'incident.facts.xid != ""',
    'incident.jobs == "a"',
    'incident.facts == "a"',
    'incident.nothing == "a"',
    'incident.family.size == "a"',
    'incident.family == "\\u0061"',
)


@given(st.sampled_from(COMPARED), st.sampled_from(["", "a", "ab"]), st.integers(0, 2), FACTS)
def test_a_comparison_with_a_text_answers_as_cel_does(
    source: str, family: str, jobs: int, facts: dict[str, Any]
) -> None:
    condition, seen = CelCondition(source), _facts(family, jobs, facts)
    assert condition._answer(seen, {}) == condition._evaluated(seen, {})


def test_another_node_costs_no_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(CelCondition, "_evaluated")
    condition = CelCondition('incident.family == "a" && incident.root.node != ""')
    for node in ("node-01", "node-02", ""):
        assert condition.holds({"family": "a", "root": {"node": node}}) is bool(node)


def test_what_is_remembered_is_bounded() -> None:
    condition = CelCondition("incident.jobs == 7")
    answers = [condition.holds(_facts("a", jobs, {})) for jobs in range(600)]
    assert answers == [jobs == 7 for jobs in range(600)]
    assert len(condition._answers) <= 256


def test_a_macro_over_a_fact_that_is_no_list_is_false_and_no_crash() -> None:
    asked = CelCondition("incident.facts.xid.all(v, v == 79)")
    facts = facts_of(incident(facts={"xid": 79}))
    assert asked.holds(facts) is False
    with pytest.raises(ValueError, match="cannot be worked out"):
        asked.value(facts, {})


def test_a_fact_that_no_whole_number_can_hold_is_no_answer_and_no_crash() -> None:
    asked = CelCondition("int(incident.facts.ratio) > 1")
    facts = {"facts": {"ratio": float("inf")}}
    assert not asked.holds(facts)
    with pytest.raises(ValueError, match="cannot be worked out"):
        asked.value(facts, {})


PARTS = (
    'incident.family == "a"',
    "incident.facts.xid == 1",
    "incident.facts.xid",
    "has(incident.facts.xid)",
    "!incident.facts.xid",
    'incident.facts.names.exists(n, n == "a")',
    "(incident.jobs > 0 && incident.facts.xid > 0)",
    "incident.jobs == 1 || incident.facts.xid == true",
    "parameters.on",
)


@given(
    st.lists(st.sampled_from(PARTS), min_size=2, max_size=4),
    st.sampled_from(["a", "b"]),
    st.integers(0, 2),
    FACTS,
    st.booleans(),
)
def test_what_is_asked_part_by_part_is_answered_as_in_one_piece(
    parts: list[str], family: str, jobs: int, facts: dict[str, Any], on: bool
) -> None:
    joined = " && ".join(parts)
    seen = _facts(family, jobs, facts)
    # A choice has no outermost `&&`: it is evaluated as it stands.
    assert _answer(joined, seen, on) == _answer(f"({joined}) ? true : false", seen, on)


def _answer(source: str, facts: dict[str, Any], on: bool) -> bool:
    try:
        return CelCondition(source).holds(facts, {"on": on})
    except ValueError:
        return False
