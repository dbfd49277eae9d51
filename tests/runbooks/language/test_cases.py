"""Cases in YAML beside a runbook: decided by the real selection, plan and guardrails, and what differs is told line by line."""

from __future__ import annotations

from typing import Any

import pytest

from runbooks.engine.case_result import CaseResult, run_case
from runbooks.language.cases import Cases
from runbooks.language.loader import load_text
from runbooks.language.yaml_source import parse
from streams.model.errors import ConfigError
from tests.runbooks.language.test_parameters import BOOK

BOOKS = (load_text(BOOK, "book.yaml"),)

CASES = """\
cases:
  - name: the node is emptied
    incident:
      family: gpu_off_bus
      root: {node: node-03, gpu: "0000:1b:00"}
      jobs: [PyTorchJob/research/llm]
      facts: {xid: 79, bare: true}
    settings: {mode: auto}
    expect:
      runbook: worked-out
      mode: auto
      steps: [cordon, drain]
      verdicts: {cordon: would, drain: would}
      values:
        cordon: {deadline_s: 300, retry: {attempts: 4}}
        drain: {params: {only: gpu, bare: true}, needs: [cordon]}
"""


def outcome(text: str) -> CaseResult:
    cases = parse(Cases, text, "book.cases.yaml")
    (case,) = cases.cases
    return run_case(case, BOOKS, cases.inventory)


def test_a_case_that_is_as_expected_passes() -> None:
    assert outcome(CASES) == CaseResult("the node is emptied")


DIFFERENT: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "another runbook": ("runbook: worked-out", "runbook: other", ("runbook: expected other, is worked-out",)),
    "none taken": (
        "family: gpu_off_bus", "family: hang",
        ("runbook: expected worked-out, is none", "  timeline: manual action required: no runbook matches family hang")),
    "another mode": ("mode: auto\n      steps", "mode: approve\n      steps", ("mode: expected approve, is auto",)),
    "other steps": (
        "[cordon, drain]", "[cordon, ticket, drain]",
        ("steps (- expected, + is):", "    cordon", "  - ticket", "    drain")),
    "another verdict": (
        "settings: {mode: auto}", "settings: {blast_radius: {max_nodes: 0}}",
        ("verdicts.cordon: expected would, is refused: blast radius: ",
         "verdicts.drain: expected would, is refused: it needs cordon, which is refused")),
    "a verdict on no step": (
        "drain: would}", "dran: would}", ("verdicts.dran: the plan has no such step; it has cordon, drain",)),
    "another value": ("deadline_s: 300", "deadline_s: 301", ("values.cordon.deadline_s: expected 301, is 300.0",)),
    "a value of another type": ("bare: true}, needs", "bare: 1}, needs", ("values.drain.params.bare: expected 1, is True",)),
    "a value that is not there": ("{attempts: 4}", "{atempts: 4}", ("values.cordon.retry.atempts: expected 4, is None",)),
    "another list": ("needs: [cordon]", "needs: []", ("values.drain.needs: expected [], is ['cordon']",)),
    "no plan at all": (
        ", bare: true}\n    settings", "}\n    settings",
        ("runbook: expected worked-out, is none", "  timeline: manual action required: worked-out: step drain")),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_is_not_as_expected_is_told_apart(name: str) -> None:
    old, new, lines = DIFFERENT[name]
    assert old in CASES
    told = outcome(CASES.replace(old, new, 1)).differences
    assert len(told) == len(lines), told
    assert all(line.startswith(start) for line, start in zip(told, lines, strict=True)), told


def test_a_case_may_expect_that_nobody_is_taken_and_what_is_said() -> None:
    none = CASES[: CASES.index("    expect:")].replace(", bare: true", "")
    expected = "    expect: {runbook: null, said: 'no such member in mapping'}\n"
    assert outcome(none + expected).passed
    (first, *_) = outcome(none + expected.replace("no such", "any such")).differences
    assert first == "said: no timeline entry contains 'any such member in mapping'"


def test_the_inventory_of_a_case_is_what_guardrails_see() -> None:
    told = CASES.replace("    expect:", "    inventory: {nodes: {node-03: {managed: false}}}\n    expect:")
    (first, second) = outcome(told).differences
    assert "is refused: opt-out: node-03 has faultline.dev/managed=false" in first
    assert second.startswith("verdicts.drain")
    shared = "inventory: {nodes: {node-03: {maintenance: true}}}\n" + CASES
    assert "needs_approval: maintenance" in outcome(shared).differences[0]


STRICT = {
    "unknown key": (
        "steps: [",
        "stpes: [",
        "book.cases.yaml:12:7: cases.0.expect.stpes: there is no such key",
    ),
    "unknown verdict": (
        "cordon: would",
        "cordon: maybe",
        "book.cases.yaml:13:26: cases.0.expect.verdicts.cordon: 'maybe' is none of would",
    ),
    "no expectation": ("      runbook: worked-out\n", "", "cases.0.expect.runbook: it is missing"),
    "a job of no kind": (
        "PyTorchJob/research",
        "research",
        "book.cases.yaml:6:14: cases.0.incident.jobs.0: String should",
    ),
    "unknown setting": (
        "{mode: auto}",
        "{moed: auto}",
        "book.cases.yaml:8:16: cases.0.settings.moed: there is no such",
    ),
    "no mapping": ("cases:\n", "- 1\ncases:\n", "book.cases.yaml:2:1: not YAML"),
}


def test_two_cases_of_one_name_are_told_apart_by_nobody() -> None:
    with pytest.raises(ConfigError, match=r"^x.cases.yaml:17:11: cases.1.name: there are two cases"):
        parse(Cases, CASES + CASES.removeprefix("cases:\n"), "x.cases.yaml")


@pytest.mark.parametrize("name", STRICT)
def test_a_file_of_cases_is_strict(name: str) -> None:
    old, new, message = STRICT[name]
    with pytest.raises(ConfigError) as error:
        parse(Cases, CASES.replace(old, new, 1), "book.cases.yaml")
    assert message in str(error.value)


@pytest.mark.parametrize("cases", ["3", "[3]", "null", "{}", "text", "[[name]]", "[{name: [a]}]"])
def test_a_file_of_cases_of_any_shape_is_refused_clearly(cases: Any) -> None:
    with pytest.raises(ConfigError, match=r"^x.cases.yaml:1:\d+: cases"):
        parse(Cases, f"cases: {cases}\n", "x.cases.yaml")
