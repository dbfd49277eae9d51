"""What is wrong with an expression is said at load, at its place; what is right is what the evaluator can do."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbooks.language.cel_syntax import CelFault, conjuncts, parse
from runbooks.language.cel_types import INTEGER, NUMBER, TEXT, YES_NO, Checked, check, record
from runbooks.language.conditions import INCIDENT, CelCondition, Plain, facts_of
from streams.model.entity import Entity, Gpu
from tests.effort import tries
from tests.runbooks.scenes import CLUSTER, JOB, incident

NAMES = {
    "incident": INCIDENT,
    "parameters": record(share=NUMBER, count=INTEGER, word=TEXT, on=YES_NO),
}
PARAMETERS: dict[str, Plain] = {"share": 0.5, "count": 3, "word": "gpu", "on": True}

RIGHT = {
    'incident.family == "hang"': YES_NO,
    "79 in incident.facts.xids": YES_NO,
    '"xid" in incident.facts': YES_NO,
    "has(incident.facts.silent) && incident.facts.silent": YES_NO,
    "incident.facts.names.exists(n, n == incident.cluster)": YES_NO,
    "incident.facts.names.filter(n, n != '')[0] == 'a'": YES_NO,
    "incident['family'].startsWith('gpu_')": YES_NO,
    "incident.root.node.matches('^gpu-[0-9]+$')": YES_NO,
    "size(incident.facts.names) > 2 || incident.jobs >= 1": YES_NO,
    "!parameters.on ? parameters.share : double(incident.jobs) * 60.0": NUMBER,
    "parameters.count % 2 + -1": INTEGER,
    "'every ' + parameters.word": TEXT,
}

WRONG = {
    "incident.familly == 'x'": (10, "there is no `familly`, did you mean family?"),
    "incidnet.family == 'x'": (1, "there is no `incidnet` here, did you mean incident?"),
    "incident.jobs == 'one'": (1, "a whole number is never compared with text"),
    "incident.jobs > 1.5": (1, "a whole number beside a number with a fraction: write 2.0 for 2"),
    "parameters.share * 2": (1, "a number with a fraction beside a whole number"),
    "incident.severity == 'Critical'": (
        22,
        "incident.severity is never 'Critical', did you mean critical?",
    ),
    "incident.certainty in ['likely', 'sure']": (34, "incident.certainty is never 'sure'"),
    "incident.jobs && true": (1, "expected yes or no, this is a whole number"),
    "true && incident.family": (9, "expected yes or no, this is text"),
    "incident.jobs ? 1 : 2": (1, "expected yes or no"),
    "true ? 1 : 'a'": (1, "both have to be of one kind"),
    "incident.root == 'x'": (1, "a group of names is never compared with text"),
    "true < false": (1, "yes or no has no order"),
    "upper(incident.family) == 'X'": (1, "there is no function upper(…)"),
    "incident.family.startswith('x')": (17, "there is no method startswith(…), did you mean startsWith?"),
    "size(incident.family, 1) == 1": (1, "size(…) takes 1, here 2 are given"),
    "incident.family.contains() ": (1, "contains(…) takes 1, here 0 are given"),
    "has(incident)": (1, "has(…) asks for a name after a dot"),
    "incident.facts.names.all(n)": (1, "all(…) takes 2, here 1 are given"),
    "incident.facts.names.all(incident, true)": (26, "`incident` is already a name here"),
    "incident.jobs.exists(n, true)": (1, "exists(…) is for a list, and this is a whole number"),
    "'a' in 'abc'": (8, "`in` looks into a list or into facts, not into text"),
    "incident.facts.xid == null": (23, "null is not supported"),
    "{'a': 1}.a == 1": (1, "this part of CEL is not supported here"),
    "timestamp('2026-01-01T00:00:00Z') == 1": (1, "there is no function timestamp(…)"),
    "[1, 2] + [3] == [1]": (1, "this is not done with a list of a whole number"),
    "incident.family.matches(incident.cluster)": (25, "a pattern is written as a literal"),
    "incident.family.matches('(')": (25, "not a pattern: missing ): ("),
    "incident.family.matches('((a{900}){900}){900}')": (25, "not a pattern: invalid repetition size"),
    "99999999999999999999 > incident.jobs": (1, "a number beyond 64 bits"),
    "parameters.missing": (12, "there is no `missing`; known are count, on, share, word"),
}

REFUSED = {
    "": "it ends too early",
    "incident.jobs >": "it ends too early",
    "incident.jobs > 1 2": "it cannot go on with '2'",
    "a" * 601: "an expression of 601 characters",
    "(" * 250 + "1" + ")" * 250: "nested too deeply",
    "!" * 500 + "true": "nested too deeply",
    "-" * 500 + "1": "nested too deeply",
    "[" * 290 + "]" * 290: "nested too deeply",
    "+".join(["1"] * 299): "nested too deeply, or too many terms",
    "[1].all(a, [1].all(b, true))": "more than one macro",
    "[1].all(a, [1]. // not seen by a pattern\n all (b, true))": "more than one macro",
}


def checked(source: str) -> Checked:
    return check(parse(source), NAMES)


@pytest.mark.parametrize("source", RIGHT)
def test_what_is_right_passes_and_has_its_type(source: str) -> None:
    found = checked(source)
    assert found.faults == []
    assert found.type.name == RIGHT[source].name


@pytest.mark.parametrize("source", WRONG)
def test_what_is_wrong_is_said_once_at_its_place(source: str) -> None:
    column, message = WRONG[source]
    (fault,) = checked(source).faults
    assert message in str(fault)
    assert (fault.line, fault.column) == (1, column)


@pytest.mark.parametrize("source", REFUSED, ids=lambda s: s[:20])
def test_what_could_explode_is_not_even_looked_at(source: str) -> None:
    with pytest.raises(CelFault, match=REFUSED[source].replace("(", r"\(")):
        parse(source)


def test_the_check_knows_exactly_what_an_incident_shows() -> None:
    about = incident(
        root=Entity(CLUSTER, node="n", gpu=Gpu(index=1), nic="e", switch="s", port="p", job=JOB, rack="r")
    )
    seen, declared = facts_of(about), INCIDENT.fields
    assert declared is not None
    assert set(seen) == set(declared)
    assert set(seen["root"]) == set(declared["root"].fields or ())
    for name, value in seen.items():
        kind = declared[name]
        if kind.name in (TEXT.name, INTEGER.name):
            assert isinstance(value, str if kind.name == TEXT.name else int)


ATOMS = st.sampled_from(
    ["1", "2", "0", "1.5", "-3", "true", "false", "'a'", "''", "incident.jobs", "incident.family", "incident.facts.xid",
     "incident.facts.names", "incident.facts.none", "incident.root.node", "parameters.share", "parameters.count",
     "parameters.on", "[1, 2]", "['a']", "9223372036854775807"]
)  # fmt: skip
BINARY = st.sampled_from(["==", "!=", "<", ">=", "&&", "||", "+", "-", "*", "/", "%", "in"])
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, BINARY, inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} ? {p[1]} : {p[2]})"),
        st.tuples(st.sampled_from(["!", "-"]), inner).map("".join),
        st.tuples(st.sampled_from(["size", "int", "double", "string"]), inner).map(
            lambda p: f"{p[0]}({p[1]})"
        ),
        st.tuples(inner, st.sampled_from(["all", "exists", "filter", "map"]), inner).map(
            lambda p: f"{p[0]}.{p[1]}(v, {p[2]} == v)"
        ),
        inner.map(lambda p: f"({p}).contains('a')"),
    ),
    max_leaves=7,
)


@given(EXPRESSIONS)
@settings(max_examples=tries(300))
def test_what_passes_the_check_gives_a_value_of_its_type_or_a_clear_error(source: str) -> None:
    try:
        found = checked(source)
    except CelFault:
        return
    if found.faults:
        return
    facts = facts_of(incident(facts={"xid": 79, "names": ("a", "b")}))
    try:
        value = CelCondition(source).value(facts, PARAMETERS)
    except ValueError:
        return  # a fact that is missing, a division by nothing, a number beyond 64 bits
    kinds: dict[str, type | tuple[type, ...]] = {
        YES_NO.name: bool, INTEGER.name: int, NUMBER.name: (int, float), TEXT.name: str,
    }  # fmt: skip
    assert isinstance(value, kinds.get(found.type.name, object))


@given(st.text(max_size=80))
@settings(max_examples=tries(300))
def test_any_text_is_an_expression_or_is_refused_with_a_reason(source: str) -> None:
    refusal: CelFault | None = None
    try:
        checked(source)
    except CelFault as fault:
        refusal = fault
    assert refusal is None or (str(refusal) and min(refusal.line, refusal.column) >= 1)


def test_conditions_that_must_all_hold_are_told_apart_however_they_are_laid_out() -> None:
    one = conjuncts(parse("incident.jobs > 1 && (incident.family == 'a' && 79 in incident.facts.xids)"))
    two = conjuncts(parse("incident.family == 'a'&&\n  79 in incident.facts.xids && ((incident.jobs>1))"))
    assert {c.key for c in one} == {c.key for c in two}
    assert len(one) == 3
    assert len(conjuncts(parse("incident.jobs > 1 || incident.family == 'a'"))) == 1
    assert len(conjuncts(parse("true && true"))) == 1
