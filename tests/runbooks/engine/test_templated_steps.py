"""Steps that other controllers carry out, and diagnoses of a job's nodes: what a plan makes of them."""

from __future__ import annotations

import pytest

from runbooks.engine.run.plan import plan
from runbooks.language.approval_rules import rules
from runbooks.language.loader import load_text
from runbooks.language.schema import NODE_WORK, Runbook
from streams.config.settings import ResponderSettings
from streams.model.errors import FaultlineError
from streams.model.run import Mode, Plan
from tests.runbooks.scenes import ACTIONS, JOB, OTHER_JOB, cluster, incident

HEAD = """
id: book
revision: 1
owner: tests
mode: auto
description: A book with one step of the kind under test.
match: "true"
steps:
  - {id: cordon, action: cordon_node, target: root_node}
"""


def book(step: str) -> Runbook:
    return load_text(f"{HEAD}  - {step}\n", "book.yaml")


def planned(step: str, actions: frozenset[str] = ACTIONS | NODE_WORK) -> Plan:
    return plan(incident(jobs=(JOB, OTHER_JOB)), book(step), cluster(), Mode.AUTO, actions)


def a_template(counts_as: str, more: str = "needs: [cordon], ") -> str:
    return f"{{id: do, action: apply_template, target: root_node, {more}params: {{template: t, as: {counts_as}}}}}"


@pytest.mark.parametrize(
    ("counts_as", "destructive", "approvals"),
    [
        ("nothing", False, 1),
        ("close", True, 1),
        ("reset", True, 1),
        ("reboot", True, 2),
        ("replace", True, 2),
    ],
)
def test_a_template_counts_as_what_the_runbook_says(
    counts_as: str, destructive: bool, approvals: int
) -> None:
    step = planned(a_template(counts_as)).steps[-1]
    assert step.destructive is destructive
    policy = ResponderSettings(approval_groups={"ops": ("alice", "bob")})
    assert [demand.quorum for demand in rules(step, policy)] == [approvals]


def test_what_a_template_does_to_a_node_comes_after_its_cordon() -> None:
    with pytest.raises(FaultlineError, match="must need a cordon_node step"):
        book(a_template("reboot", more=""))
    assert planned(a_template("nothing", more="")).steps[-1].action == "apply_template"


@pytest.mark.parametrize("params", ["{as: reboot}", "{template: t}", "{template: t, as: fun}"])
def test_a_template_and_its_class_are_named_in_the_runbook(params: str) -> None:
    with pytest.raises(FaultlineError, match="apply_template needs"):
        book(f"{{id: do, action: apply_template, target: root_node, needs: [cordon], params: {params}}}")


def test_a_node_is_replaced_by_two_people_after_its_cordon() -> None:
    step = planned("{id: do, action: replace_node, target: root_node, needs: [cordon]}").steps[-1]
    assert step.destructive
    policy = ResponderSettings(approval_groups={"ops": ("alice", "bob")})
    assert [demand.quorum for demand in rules(step, policy)] == [2]


def test_without_its_template_a_step_is_left_out_and_the_setting_named() -> None:
    left = planned(a_template("reboot"), ACTIONS)
    assert [step.id for step in left.steps] == ["cordon"]
    assert "node_work.object_templates is not set" in left.left_out[0]


def test_a_diagnosis_names_all_nodes_of_each_job() -> None:
    steps = planned("{id: do, action: diagnose_nodes, target: job_nodes}").steps[1:]
    assert {step.target.key if step.target else "": step.params["nodes"] for step in steps} == {
        OTHER_JOB.key: "node-05,node-06",
        JOB.key: "node-02,node-03,node-04,node-05",
    }
    assert not any(step.destructive for step in steps)
    with pytest.raises(FaultlineError, match="job_nodes is the target of"):
        book("{id: do, action: diagnose_nodes, target: jobs}")
