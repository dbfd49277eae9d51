"""An incident has one run, whose plan follows the evidence; a run that has only told does not end its incident."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from runbooks.engine.partition_state import PartitionState
from streams.model.codec import decode, encode
from streams.model.conversation import Command, Verb
from streams.model.entity import Entity
from streams.model.facts import Fact
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.run import Run, RunState, StepState
from tests.runbooks.scenes import ACTIONS, CLUSTER, JOB, LIBRARY, NOW, at, cluster, incident, policy

TICKETLESS = ACTIONS - {"open_ticket"}
NODE = Entity(CLUSTER, node="node-03")


def responder(runs: dict[str, Run] | None = None) -> PartitionState:
    state = PartitionState(LIBRARY, policy(), TICKETLESS, runs)
    view = cluster()
    facts: list[Fact] = [*view.nodes.values(), *view.pods.values(), *view.jobs.values()]
    for fact in facts:
        state.take_fact(fact.key, fact)
    return state


def kernel(**changes: Any) -> Incident:
    """Weak evidence about a host without a job."""
    facts = {"signs": ("node.kernel.soft_lockup",)}
    return incident("host_fault", NODE, jobs=(), certainty=Certainty.WEAK, facts=facts, **changes)


def down(**facts: bool) -> Incident:
    return incident("node_down", NODE, certainty=Certainty.LIKELY, facts={"node_not_ready": True, **facts})


def take(state: PartitionState, about: Incident, seconds: float = 0.0) -> list[str]:
    """Take in a revision; returns the kinds of what is reported to the correlator."""
    state.take_incident(about)
    state.advance(at(seconds))
    return [signal.kind for batch in state.collect().signals for signal in batch.signals]


def only(state: PartitionState) -> Run:
    (run,) = state.runs.values()
    return run


def test_a_run_that_only_tells_neither_mitigates_nor_resolves_its_incident() -> None:
    state = responder()
    assert take(state, kernel()) == []
    run = only(state)
    assert [step.action for step in run.plan.steps] == ["open_ticket"]
    assert run.state is RunState.SUCCEEDED


def test_better_evidence_adds_the_steps_to_the_one_run_also_after_a_takeover() -> None:
    state = responder()
    take(state, kernel())
    told = only(state)
    state = responder({told.id: decode(Run, encode(told))})
    reports = take(state, replace(kernel(), revision=2, certainty=Certainty.LIKELY, jobs=(JOB,)), 60)
    run = only(state)
    assert run.id == told.id
    assert run.state is RunState.AWAITING_APPROVAL
    assert reports[0] == "run.started"
    assert run.plan.digest != told.plan.digest


def test_an_approval_is_bound_to_the_plan_and_oscillating_evidence_leaves_one_run_and_one_question() -> None:
    state = responder()
    take(state, kernel())
    for revision, certainty in enumerate((Certainty.LIKELY, Certainty.WEAK) * 4, 2):
        take(state, replace(kernel(), revision=revision, certainty=certainty), 60 * revision)
        assert only(state).step("cordon").state is StepState.AWAITING_APPROVAL
    run = only(state)
    state.take_command(
        Command("c-1", run.incident, CLUSTER, Verb.APPROVE, "ada", at(700), digest="an earlier one")
    )
    state.advance(at(700))
    assert only(state).step("cordon").state is StepState.AWAITING_APPROVAL
    state.take_command(
        Command("c-2", run.incident, CLUSTER, Verb.APPROVE, "ada", at(701), digest=run.plan.digest)
    )
    state.advance(at(701))
    assert [call.effect.action for call in state.collect().calls] == ["cordon_node"]


def test_evidence_that_fits_another_runbook_gives_the_one_run_another_plan() -> None:
    state = responder()
    take(state, down())
    first = only(state)
    assert first.plan.runbook == "node-down"
    for revision, lives in enumerate((True, False) * 5, 2):
        take(state, replace(down(lives=lives), revision=revision), revision)
        assert only(state).plan.runbook == ("kubelet-down" if lives else "node-down")
    run = only(state)
    assert run.id == first.id
    assert run.plan.digest == first.plan.digest
    again = responder({run.id: decode(Run, encode(run))})
    take(again, replace(down(lives=True), revision=30), 60)
    assert only(again).plan.runbook == "kubelet-down"


def test_a_run_that_has_begun_to_act_keeps_its_plan() -> None:
    state = responder()
    about = incident("node_down", NODE, facts={"node_not_ready": True})
    take(state, about)
    assert only(state).step("cordon").state is StepState.RUNNING
    take(state, replace(about, revision=2, facts={"node_not_ready": True, "lives": True}), 1)
    assert only(state).plan.runbook == "node-down"


def test_a_fault_that_comes_and_goes_is_one_run_with_a_count() -> None:
    state = responder()
    about = kernel()
    take(state, about)
    for flap in range(1, 6):
        over = replace(about, revision=2 * flap, state=IncidentState.RESOLVED)
        take(state, over, flap * 600)
        back = replace(about, revision=2 * flap + 1, state=IncidentState.OPEN, flaps=flap)
        take(state, back, flap * 600 + 300)
    assert only(state).flaps == 5
    assert only(state).created_at == NOW
