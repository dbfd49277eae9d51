"""What a runbook may say of its steps, and what the plan carries of it."""

from __future__ import annotations

import pytest

from runbooks.engine.run.plan import plan
from runbooks.language.loader import load_text
from runbooks.language.schema import NODE_WORK
from streams.model.codec import decode, encode
from streams.model.errors import ConfigError
from streams.model.run import Compensation, Escalation, Mode, PlannedRetry, PlannedStep
from tests.runbooks.scenes import JOB, OTHER_JOB, cluster, incident

RICH = """\
id: rich-book
revision: 3
owner: team
mode: auto
description: something to test with
match: incident.family == "gpu_off_bus"
escalation: {to: replace, after: 2, within_s: 3600, per: node}
steps:
  - id: cordon
    action: cordon_node
    target: root_node
    undo: true
    compensate: {action: validate_node, params: {level: 2}}
  - id: suspend
    action: suspend_job
    target: jobs
    needs: [cordon]
    waves: {size: 1, pause_s: 30}
    approval: {group: leads, quorum: 2}
  - id: reset
    action: reset_gpu
    target: root_node
    needs: [suspend]
    retry: {attempts: 3, first_s: 5, factor: 3, longest_s: 50}
    on_failure: escalate
"""


def test_the_plan_carries_what_the_runbook_says() -> None:
    bound = plan(
        incident(jobs=(JOB, OTHER_JOB)), load_text(RICH, "book.yaml"), cluster(), Mode.AUTO, NODE_WORK
    )
    cordon, one, two, reset = bound.steps
    assert bound.escalation == Escalation("replace", 2, 3600, "node")
    assert cordon.compensation == Compensation("validate_node", {"level": 2})
    assert (one.wave, two.wave, one.wave_pause_s) == (0, 1, 30)
    assert (one.approval, one.approval_group, one.quorum) == (True, "leads", 2)
    assert reset.retry == PlannedRetry(3, 5, 3, 50)
    assert reset.destructive
    assert reset.on_failure == "escalate"


def test_a_step_of_a_former_document_is_what_it_was() -> None:
    former = b'{"id":"a","action":"notify","target":{"kind":"Incident","name":"i"},"params":{},"destructive":false}'
    step = decode(PlannedStep, former)
    assert (step.retry, step.wave, step.compensation, step.quorum) == (PlannedRetry(), 0, None, 1)
    assert decode(PlannedStep, encode(step)) == step


REFUSED = {
    "a reset before the node is closed": (
        "needs: [suspend]",
        "needs: []",
        "23:12: steps.2.needs: step reset",
    ),
    "compensation of what is not undone": (
        "    undo: true\n",
        "",
        "12:17: steps.0.compensate: needs undo: true",
    ),
    "compensation that takes more away": (
        "action: validate_node",
        "action: drain_node",
        "13:17: steps.0.compensate: drain_node does not roll anything back",
    ),
    "waves of one target": (
        "retry: {attempts: 3, ",
        "waves: {size: 2}\n    retry: {",
        "24:12: steps.2.waves: root_node is a single target",
    ),
    "escalation to nothing": (
        "escalation: {to: replace",
        "#",
        "steps.2.on_failure: the runbook has no escala",
    ),
    "no call at all": (
        "attempts: 3",
        "attempts: 0",
        "24:23: steps.2.retry.attempts: must be greater",
    ),
    "a key that is none": (
        "quorum: 2",
        "quorom: 2",
        "19:30: steps.1.approval.quorom: there is no such key",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused(name: str) -> None:
    old, new, message = REFUSED[name]
    with pytest.raises(ConfigError) as error:
        load_text(RICH.replace(old, new), "book.yaml")
    assert message in str(error.value)
