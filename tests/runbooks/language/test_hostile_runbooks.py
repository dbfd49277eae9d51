"""Hostile files are refused quickly and clearly; hostile names and texts of an incident are data, whatever they look like."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbooks.engine.run.plan import plan
from runbooks.language.conditions import condition, facts_of
from runbooks.language.loader import library_of, load_text
from runbooks.language.select import select
from streams.model.entity import Entity, JobRef
from streams.model.errors import ConfigError
from streams.model.run import Mode
from tests.effort import tries
from tests.runbooks.language.test_parameters import BOOK
from tests.runbooks.scenes import CLUSTER, LIBRARY, cluster, incident
from tests.work import calls_counted

LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(20)
)

BOMBS = {
    "a billion laughs": (LAUGHS, "book.yaml:1:4: anchors and aliases are not allowed"),
    "a merge of itself": ("a: &a {<<: *a}\n", "book.yaml:1:4: anchors and aliases are not allowed"),
    "lists in lists": ("a: " + "[" * 30_000, "book.yaml:1:15: nested deeper than 12"),
    "maps in maps": ("".join(f"{' ' * i}a:\n" for i in range(300)), "nested deeper than 12"),
    "keys that are maps": ("? " * 20_000 + "a", "nested deeper than 12"),
    "a number of sixty thousand digits": ("revision: " + "9" * 60_000, "book.yaml:1:11: Exceeds the limit"),
    "an object of Python": ("id: !!python/object/apply:os.system [ls]\n", "book.yaml:1:5"),
    "a tag of its own": ("id: !x y\n", "book.yaml:1:5: could not determine a constructor"),
    "a byte that is no text": ("id: \x00\n", "book.yaml:1:1: not YAML"),
    "half a surrogate": ("id: \ud800\n", "book.yaml:1:1: not YAML"),
    "two documents": ("id: a\n---\nid: b\n", "book.yaml:2:1: not YAML"),
    "a megabyte": ("x: " + "y" * 1_000_000, "book.yaml:1:1: longer than 65536 bytes"),
    "thousands of keys": (
        "".join(f"k{i}: 1\n" for i in range(tries(6_000, quick=1_500))),
        "there is no such key",
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_with_its_place_and_in_no_time(name: str) -> None:
    text, message = BOMBS[name]
    with calls_counted() as count, pytest.raises(ConfigError) as error:
        load_text(text, "book.yaml")
    assert message in str(error.value)
    assert count[0] < 5_000 + 200 * len(text)
    assert library_of([("book.yaml", text)]).loaded == {}


@given(st.text(max_size=200))
@settings(max_examples=tries(150))
def test_any_text_is_a_runbook_or_a_clear_refusal(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^book\.yaml:\d+:\d+: "):
        load_text(text, "book.yaml")


PATTERNS = ["(a*)*b", "(a|aa)+$", "^(([a-z])+.)+[A-Z]([a-z])+$", "(.*)(.*)(.*)(.*)x"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_megabyte_of_log_text_is_matched_in_linear_time(pattern: str) -> None:
    facts = facts_of(incident(facts={"text": "a" * 1_000_000}))
    # One that goes back would not come back before the test is ended.
    condition(f"incident.facts.text.matches('{pattern}')").holds(facts)


NASTY = (
    '" || true || "', "') || true || ('", "x && incident.jobs > 0", "parameters.wait_s * 100.0", "{cel: incident.cluster}",
    "$(rm -rf /)", "`id`", "; shutdown -h now #", "${HOME}", "{{ 7 * 7 }}", "%s%n", "../../etc/passwd", "<!channel>", "*_~`>|&",
    'project = OPS AND text ~ "x"', "\u202egnp.exe", "a\nb", "\x1b[31m", "true", "79", "",
)  # fmt: skip


@pytest.mark.parametrize("text", NASTY)
def test_what_an_incident_says_is_never_taken_for_an_expression(text: str) -> None:
    facts: dict[str, Any] = {"bare": True, "word": text, "xid": text, "action": text, text or "x": 1}
    job = JobRef("Job", text or "n", text or "j")
    about = incident(
        root=Entity(CLUSTER, node=text or "n", nic=text), jobs=(job,), facts=facts, title=text, reason=text
    )
    seen = facts_of(about)
    assert condition("incident.facts.word == incident.facts.xid").holds(seen)
    assert not condition("incident.facts.word == 'no such word'").holds(seen)
    assert not condition("incident.facts.word > 5").holds(seen)
    assert condition("incident.facts.word").value(seen, {}) == text

    book = load_text(BOOK.replace("{cel: parameters.only}", "gpu").replace("action: ask\n", "action: open_ticket\n").replace(
        "when: parameters.careful", "params: {summary: {cel: incident.facts.word}}"), "book.yaml")  # fmt: skip
    bound = plan(about, book, cluster(), Mode.AUTO)
    cordon, _, ticket = bound.steps
    assert cordon.target is not None
    assert cordon.target.name == (text or "n")
    assert dict(ticket.params) == {"summary": text}
    assert (
        bound.digest
        != plan(incident(facts={"bare": True, "word": text + "x"}), book, cluster(), Mode.AUTO).digest
    )


@pytest.mark.parametrize("family", NASTY)
def test_a_family_with_a_name_like_an_expression_chooses_nothing_that_acts(family: str) -> None:
    choice = select(incident(family), LIBRARY)
    assert choice.runbook is not None
    assert choice.runbook.id == select(incident("no such family"), LIBRARY).runbook.id  # type: ignore[union-attr]


@given(
    st.dictionaries(
        st.text(max_size=12), st.one_of(st.text(max_size=30), st.integers(), st.floats(), st.booleans())
    )
)
@settings(max_examples=tries(100))
def test_whatever_the_facts_are_the_choice_is_one_or_none_and_never_an_error(facts: dict[str, Any]) -> None:
    choice = select(incident(facts=facts), LIBRARY)
    assert choice.runbook is not None
    assert not [why for _, why in choice.rejected if "is invalid" in why]
