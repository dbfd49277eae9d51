"""The list says of each incident what it waits for: a person, a switch, a limit, the next try, a repair."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from connectors.base import Retry, Waiting
from connectors.chat.slack_blocks import render
from faultline.chat.thread_messages import approval_message, root_message
from runbooks.engine.call_slots import NEW_TICKETS, FreeSlots
from runbooks.engine.run.human_decisions import decided
from runbooks.engine.run.machine import advance
from runbooks.engine.run.outcomes import concluded
from runbooks.engine.wait_reasons import held_by, waits_for
from streams.model.clock import to_the_second
from streams.model.control import Control, Freeze, Switch, Trip
from streams.model.conversation import Command, Verb
from streams.model.incident import Incident, IncidentState
from streams.model.run import Mode, PlannedStep, Run, RunState, StepRecord, StepState
from tests.runbooks.scenes import NOW, Play, at, incident, policy, radius

MITIGATING = incident(state=IncidentState.MITIGATING)


def held(control: Control) -> str:
    """What a run waits for under this control."""
    play = Play(MITIGATING)
    play.take(advance(play.run, replace(play.situation, control=control), play.now))
    return waits_for(MITIGATING, [play.run])


def test_a_kill_switch_is_named_with_who_threw_it() -> None:
    said = held(Control("c1", 1, kill_switch=Switch("eve", NOW, "smoke")))
    assert said == (
        "cordon_node node-03 held: kill switch: engaged by eve at 2026-03-01T12:00:00Z: smoke; "
        "clears with `faultline guard unkill`"
    )


def test_a_freeze_is_named_with_its_end() -> None:
    said = held(Control("c1", 1, freezes=(Freeze("", "eve", NOW, until=at(600.25)),)))
    assert "held: freeze: eve froze cluster c1" in said
    assert "until 2026-03-01T12:10:00Z;" in said


def test_a_full_blast_radius_is_named_with_its_numbers() -> None:
    play = Play(MITIGATING, settings=radius(max_nodes=0))
    play.tick()
    assert waits_for(MITIGATING, [play.run]).startswith("cordon_node node-03 held: ")


def test_an_approval_is_named_with_who_may_give_it_and_until_when() -> None:
    play = Play(MITIGATING, settings=policy(mode=Mode.APPROVE, approvers=("ada", "bob")))
    play.play()
    said = waits_for(MITIGATING, [play.run])
    assert said == (
        "approval of cordon_node node-03 by one of responder.approvers (ada, bob) until 2026-03-01T16:00:00Z: mode approve"
    )


def test_an_approval_for_old_evidence_says_how_old_it_was_and_its_root_says_all_of_it() -> None:
    about = replace(
        MITIGATING, fault_at=at(-21600), evident_at=at(-21600), evident_read_at=NOW, opened_at=NOW
    )
    play = Play(about)
    play.play()
    assert "its newest evidence was 6 h old when it was read" in waits_for(about, [play.run])
    shown = on_slack(about, play.run)
    question = on_slack_question(about, play.run)
    for text in (shown, question):
        assert "off by 6 h almost to the second: the time zone in the logs of node-03 may be wrong" in text


def test_a_step_that_only_asks_is_told_in_its_own_words() -> None:
    play = Play(MITIGATING)
    steps = (PlannedStep("ask", "ask", None, {}, False, describe="please look at its kubelet"),)
    record = StepRecord("ask", StepState.AWAITING_APPROVAL, reason="please look at its kubelet")
    run = replace(play.run, plan=replace(play.run.plan, steps=steps), steps=(record,))
    assert waits_for(MITIGATING, [run]) == "one person to take it over: please look at its kubelet"
    question = approval_message(MITIGATING, run, steps[0])
    assert question.summary == "🟣 Please look at its kubelet"
    assert "Reject if nobody takes it" in json.dumps(render(question))


def on_slack(about: Incident, run: Run) -> str:
    return json.dumps(render(root_message(about, [run])))


def on_slack_question(about: Incident, run: Run) -> str:
    asked = next(p for p in run.plan.steps if run.step(p.id).state is StepState.AWAITING_APPROVAL)
    return json.dumps(render(approval_message(about, run, asked)))


def test_a_call_that_failed_is_named_with_its_next_try() -> None:
    play = Play(MITIGATING)
    play.play(until="cordon_node")
    play.answer(Retry(after_s=4.0, reason="the API server answers 503"), "cordon_node")
    assert held_by(play.run) == (
        "retry of cordon_node node-03 at 2026-03-01T12:00:04Z: the API server answers 503"
    )


def test_what_is_simply_under_way_waits_for_nothing() -> None:
    play = Play(MITIGATING)
    play.play(until="drain_node")
    assert waits_for(MITIGATING, [play.run]) == ""


def test_after_a_no_it_is_said_who_said_it_and_that_a_person_has_to_act() -> None:
    settings = policy(mode=Mode.APPROVE)
    play = Play(MITIGATING, settings=settings)
    play.play()
    no = Command(
        "c-1",
        MITIGATING.id,
        "c1",
        Verb.REJECT,
        "ada",
        play.now,
        digest=play.run.plan.digest,
        reason="tonight",
    )
    play.take(decided(play.run, no, settings, play.now))
    play.play()
    waiting = replace(MITIGATING, state=IncidentState.AWAITING_HUMAN)
    assert waits_for(waiting, [play.run]) == "manual action: run rejected, rejected by ada: tonight"
    assert waits_for(waiting, []) == "manual action: no runbook applies"


KILLED = Control("c1", 1, kill_switch=Switch("eve", NOW, "smoke"))
FROZEN = Control("c1", 1, freezes=(Freeze("", "eve", NOW),))


@pytest.mark.parametrize("control", [KILLED, FROZEN], ids=["kill switch", "freeze"])
def test_a_step_that_goes_on_after_a_hold_no_longer_says_what_held_it(control: Control) -> None:
    play = Play(MITIGATING)
    play.take(advance(play.run, replace(play.situation, control=control), play.now))
    assert "eve" in play.run.step("cordon").reason
    play.tick(5.0)
    cordon = play.run.step("cordon")
    assert (cordon.state, cordon.reason) == (StepState.RUNNING, "")


def test_nor_does_one_that_was_held_half_way_through() -> None:
    play = Play(MITIGATING)
    play.play(until="suspend_job")
    play.answer(Waiting(2.0, "research/llm is suspended, its pods are going"), "suspend_job")
    suspend = next(p.id for p in play.run.plan.steps if p.action == "suspend_job")
    play.now = at(2)
    play.take(advance(play.run, replace(play.situation, control=KILLED), play.now))
    assert "eve" in play.run.step(suspend).reason
    play.tick(1.0)
    assert play.run.step(suspend).state is StepState.RUNNING
    assert "eve" not in play.run.step(suspend).reason


def test_what_a_connector_says_again_and_again_is_told_once() -> None:
    play = Play(MITIGATING)
    play.play(until="suspend_job")
    for _ in range(3):
        play.answer(Waiting(2.0, "its pods are going"), "suspend_job")
        play.tick(2.0)
    assert len([note for note in play.notes if "its pods are going" in note]) == 1


def test_what_holds_the_cordon_is_told_before_what_holds_its_ticket() -> None:
    """Neither a ticket that is not opened nor one whose system does not answer hides that the node stays open."""
    tripped = Control("c1", 1, breaker=Trip("mass faults", NOW, "9 of 16 nodes"))
    room = FreeSlots({NEW_TICKETS: 0}, {}, "60 tickets were opened within 10 minutes; this one is queued")
    play = Play(MITIGATING)
    play.take(advance(play.run, replace(play.situation, control=tripped, free_slots=room), play.now))
    assert play.run.step("ticket").reason
    assert held_by(play.run).startswith("cordon_node node-03 held: breaker: ")


def test_a_cordon_that_is_tried_again_is_told_before_its_ticket() -> None:
    room = FreeSlots({NEW_TICKETS: 0}, {}, "60 tickets were opened within 10 minutes; this one is queued")
    play = Play(MITIGATING)
    play.take(advance(play.run, replace(play.situation, free_slots=room), play.now))
    play.air = [call for call in play.air if call.effect.action == "cordon_node"]
    play.take(concluded(play.run, "cordon", "apply", Retry(4.0, "the API server answers 503"), play.now))
    assert held_by(play.run).startswith("retry of cordon_node node-03 at ")


def test_a_job_whose_pods_are_going_waits_for_them_also_while_they_are_looked_at() -> None:
    play = Play(MITIGATING)
    play.play(until="suspend_job")
    assert waits_for(MITIGATING, [play.run]) == ""
    play.answer(Waiting(2.0, "research/llm is suspended, its pods are going"), "suspend_job")
    said = waits_for(MITIGATING, [play.run])
    assert said.startswith("pods of PyTorchJob research/llm to end until 2026-03-01T12:")
    play.tick(2.0)
    assert [call.effect.action for call in play.air] == ["suspend_job"]
    assert waits_for(MITIGATING, [play.run]) == said


def test_a_job_that_runs_again_waits_for_its_progress() -> None:
    play = Play(MITIGATING)
    play.progress(step=90)
    play.play()
    assert play.stands() is RunState.VERIFYING
    watched = next(
        r for p, r in zip(play.run.plan.steps, play.run.steps, strict=True) if p.action == "await_progress"
    )
    assert watched.deadline_at is not None
    assert waits_for(MITIGATING, [play.run]) == (
        f"progress of PyTorchJob research/llm until {to_the_second(watched.deadline_at)}"
    )
    play.now = at(60)
    play.progress(step=100)
    play.play()
    assert waits_for(MITIGATING, [play.run]) == ""
