"""Values that are worked out: typed at load, bounded when the plan is made, and a runbook is not taken when one fails."""

from __future__ import annotations

import pytest

from runbooks.engine.partition_state import PartitionState
from runbooks.engine.run.plan import plan
from runbooks.language.loader import load_text
from streams.model.errors import ConfigError
from streams.model.run import Mode, Plan
from tests.runbooks.scenes import ACTIONS, AUTO, NOW, cluster, incident

BOOK = """\
id: worked-out
revision: 1
owner: team
mode: auto
description: something to test with
match: incident.family == "gpu_off_bus"
parameters:
  wait_s: {type: number, default: 600, min: 60, max: 7200, describe: how long a drain may take}
  tries: {type: integer, default: 3, min: 1}
  only: {type: text, default: gpu}
  careful: {type: yes_no, default: false}
steps:
  - id: cordon
    action: cordon_node
    target: root_node
    undo: true
    deadline_s: {cel: parameters.wait_s / 2.0}
    retry: {attempts: {cel: parameters.tries + incident.jobs}, first_s: 2}
  - id: drain
    action: drain_node
    target: root_node
    needs: [cordon]
    params: {only: {cel: parameters.only}, bare: {cel: "incident.facts.bare"}}
    waves: null
  - id: ask
    action: ask
    target: incident
    when: parameters.careful
"""


def bound(text: str = BOOK, **facts: object) -> Plan:
    about = incident(facts={"bare": True, **facts})
    return plan(about, load_text(text, "book.yaml"), cluster(), Mode.AUTO)


def test_values_are_worked_out_when_the_plan_is_made() -> None:
    cordon, drain = bound().steps
    assert cordon.deadline_s == 300
    assert (cordon.retry.attempts, cordon.retry.first_s) == (4, 2)
    assert dict(drain.params) == {"only": "gpu", "bare": True}
    assert bound().parameters == {"wait_s": 600.0, "tries": 3, "only": "gpu", "careful": False}


def test_a_parameter_may_decide_whether_a_step_is_there() -> None:
    assert [s.id for s in bound(BOOK.replace("default: false", "default: true")).steps][-1] == "ask"


def test_the_digest_tells_one_value_from_another() -> None:
    assert bound().digest == bound().digest
    assert bound().digest != bound(BOOK.replace("default: 600", "default: 900")).digest


AT_LOAD = {
    "default out of its bounds": ("default: 600", "default: 5", "8:35: parameters.wait_s.default: 5 is below 60"),
    "default of another type": ("default: 3", "default: 3.5", "9:35: parameters.tries.default: 3.5 is not a whole"),
    "yes is no number": ("default: 3", "default: true", "parameters.tries.default: True is not a whole number"),
    "bounds of a choice": ("default: false", "default: false, min: 1", "parameters.careful.min: a yes or no has no"),
    "bounds the wrong way": ("max: 7200", "max: 1", "parameters.wait_s.min: min 60 is above max 1"),
    "unknown type": ("type: integer", "type: int", "parameters.tries.type: 'int' is none of number"),
    "unknown parameter": (
        "parameters.wait_s / 2.0",
        "parameters.wait / 2.0",
        "17:34: steps.0.deadline_s.cel: there is no `wait`, did you mean wait_s?",
    ),
    "text for a time": (
        "parameters.wait_s / 2.0",
        "parameters.only",
        "17:23: steps.0.deadline_s.cel: expected a number with a fraction, this is text",
    ),
    "a fraction for a count": ("parameters.tries + incident.jobs", "parameters.wait_s", "expected a whole number"),
    "a type of the action": ("{cel: parameters.only}", "{cel: parameters.tries}", "expected text, this is a"),
    "a plain value of another type": ('{cel: "incident.facts.bare"}', "maybe", "steps.1.params.bare: expected yes or no"),
    "a word that is none": ("{cel: parameters.only}", "gpus", "steps.1.params.only: known are all, gpu"),
    "a parameter the action has not": ("bare:", "bear:", "no such parameter; drain_node takes bare, dead_no"),
    "a list for a value": ("{cel: parameters.only}", "[gpu]", "steps.1.params.only: expected one plain value or {cel: …}"),
    "a key beside cel": ("{cel: parameters.only}", "{cel: '1', sh: ls}", "steps.1.params.only.sh: there is no such"),
    "when over text": ("when: parameters.careful", "when: parameters.only", "28:11: steps.2.when: expected yes or no"),
    "match over parameters": ('== "gpu_off_bus"', '== parameters.only', "6:27: match: there is no `parameters` here"),
    "infinity": ("first_s: 2", "first_s: .inf", "steps.0.retry.first_s: must be a finite number"),
}  # fmt: skip


@pytest.mark.parametrize("name", AT_LOAD)
def test_what_cannot_be_is_refused_at_load_with_its_place(name: str) -> None:
    old, new, message = AT_LOAD[name]
    assert old in BOOK
    with pytest.raises(ConfigError) as error:
        load_text(BOOK.replace(old, new), "book.yaml")
    assert message in str(error.value)
    assert str(error.value).startswith("book.yaml:")


def test_every_fault_of_a_file_is_told_not_only_the_first() -> None:
    text = BOOK.replace("parameters.wait_s / 2.0", "parameters.wait").replace(
        "only: {cel: p", "onyl: {cel: p"
    )
    with pytest.raises(ConfigError) as error:
        load_text(text.replace("needs: [cordon]", "needs: [cord]"), "book.yaml")
    assert [line.split(": ")[0] for line in str(error.value).splitlines()] == [
        "book.yaml:22:12", "book.yaml:17:34", "book.yaml:23:20",
    ]  # fmt: skip


@pytest.mark.parametrize("style", [">-\n    {}", "|\n    {}", "'{}'", '"{}"', "{}"])
def test_a_place_in_an_expression_is_found_however_yaml_writes_it(style: str) -> None:
    source = "incident.jobs > 1 &&{}incident.fmaily == incident.cluster"
    written = style.format(source.format("\n      " if "\n" in style else " "))
    text = BOOK.replace('incident.family == "gpu_off_bus"', written)
    with pytest.raises(ConfigError) as error:
        load_text(text, "book.yaml")
    line, column = (int(part) for part in str(error.value).split(":")[1:3])
    assert text.splitlines()[line - 1][column - 1 :].startswith("fmaily")


AT_PLAN = {
    "a fact that is missing": ("incident.facts.bare", "incident.facts.none", "cannot be worked out: no such member"),
    "a fact of another type": ("incident.facts.bare", "incident.facts.word", "step drain, params.bare is 'x'"),
    "a division by nothing": ("/ 2.0", "/ double(incident.flaps)", "deadline_s: 'parameters.wait_s / double("),
    "below its bounds": ("/ 2.0", "* -1.0", "step cordon, deadline_s is -600.0 by 'parameters.wait_s * -1.0'"),
    "above its bounds": ("parameters.tries + incident.jobs", "parameters.tries * 1000", "less than or equal to 1000"),
    "a sum beyond 64 bits": ("parameters.tries + incident.jobs", "9223372036854775807 + 1", "overflow"),
    "a text without end": ("cel: parameters.only", "cel: incident.facts.long", "gives 90000 characters"),
}  # fmt: skip


@pytest.mark.parametrize("name", AT_PLAN)
def test_a_value_that_fails_is_a_clear_error_and_the_runbook_is_not_taken(name: str) -> None:
    old, new, message = AT_PLAN[name]
    text = BOOK.replace(old, new)
    facts = {"word": "x", "long": "a" * 90_000}
    with pytest.raises(ValueError, match="worked-out: step ") as error:
        bound(text, **facts)
    assert message in str(error.value)

    board = PartitionState([load_text(text, "book.yaml")], AUTO, ACTIONS)
    board.take_incident(incident(facts={"bare": True, **facts}))
    board.advance(NOW)
    changes = board.collect()
    assert changes.runs == ()
    (said,) = changes.timeline
    assert said.event == "run.none"
    assert "manual action required: worked-out: step " in said.text
    assert len(said.text) < 1000
