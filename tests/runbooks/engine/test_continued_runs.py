"""A run that ended early is taken up again, or one of its steps is done again: nothing confirmed is sent a second time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from connectors.base import Absent, Effect, Outcome, Refused, Retry
from runbooks.engine.partition_state import PartitionState
from runbooks.engine.run.continuation import continuation
from runbooks.engine.run.transition import LOOKUPS
from runbooks.language.loader import load_text
from streams.config.settings import BlastRadius, ResponderSettings
from streams.model.codec import decode, encode
from streams.model.conversation import Command, TimelineEntry, Verb
from streams.model.errors import BadInput
from streams.model.incident import Incident, IncidentState
from streams.model.run import EffectState, Mode, Run, RunOutcome, StepState
from tests.runbooks.scenes import ACTIONS, CLUSTER, JOB, NOW, incident, policy
from tests.runbooks.small_world import SmallWorld

BOOK = load_text(
    """
id: move
revision: 1
owner: tests
mode: auto
description: Close the node, move its job, say so.
match: incident.family == "gpu_off_bus"
steps:
  - {id: ticket, action: open_ticket, target: incident, on_failure: continue}
  - {id: cordon, action: cordon_node, target: root_node, undo: true}
  - {id: suspend, action: suspend_job, target: jobs, needs: [cordon], undo: true}
  - {id: drain, action: drain_node, target: root_node, needs: [suspend], deadline_s: 60}
  - {id: resume, action: resume_job, target: jobs, needs: [drain]}
  - {id: verify, action: verify_job, target: jobs, needs: [resume], deadline_s: 60}
""",
    "move.yaml",
)
SUSPEND, RESUME, VERIFY = (f"{step}:PyTorchJob/research/llm" for step in ("suspend", "resume", "verify"))
Answer = Callable[[Effect], Outcome | None]


class Shift:
    """A responder with a small world, and a person at the command line."""

    def __init__(self, settings: ResponderSettings | None = None, about: Incident | None = None) -> None:
        self.settings = settings or policy(blast_radius=BlastRadius(max_nodes=6, max_share=1.0))
        self.now: datetime = NOW
        self.world = SmallWorld({"node-03"})
        self.about = about or incident(jobs=(JOB,))
        self.timeline: list[TimelineEntry] = []
        self.sent: list[tuple[str, str]] = []
        """Action and key of every call that changes something."""
        self.looked_up: list[str] = []
        self.number = 0
        self.answer: Answer = lambda effect: None
        self.state = PartitionState([BOOK], self.settings, ACTIONS)
        self.see()
        self.state.take_incident(self.about)

    def see(self) -> None:
        for key, fact in self.world.news(self.now):
            self.state.take_fact(key, fact)

    def work(self, seconds: float = 400.0, answer: Answer | None = None) -> None:
        """Let time pass; what the outside does not answer otherwise is done."""
        self.answer = answer or self.answer
        until = self.now + timedelta(seconds=seconds)
        while self.now < until:
            self.now += timedelta(seconds=2)
            self.world.settle()
            self.see()
            self.turn()

    def turn(self) -> None:
        for _ in range(20):
            self.state.advance(self.now)
            batch = self.state.collect()
            self.timeline += batch.timeline
            if not batch.calls:
                return
            for call in batch.calls:
                if call.kind in LOOKUPS:
                    self.looked_up.append(call.effect.action)
                else:
                    self.sent.append(
                        (("undo " if call.kind == "undo" else "") + call.effect.action, call.effect.key)
                    )
                outcome = self.answer(call.effect) if call.kind == "apply" else None
                outcome = outcome or self.world.carry_out(call.kind, call.effect, self.now)
                self.state.take_outcome(call, outcome, self.now)

    def restart(self) -> None:
        """Another machine goes on from what was committed."""
        runs = {key: decode(Run, encode(run)) for key, run in self.state.runs.items()}
        self.state = PartitionState([BOOK], self.settings, ACTIONS, runs)
        for key, fact in self.world.facts(self.now):
            self.state.take_fact(key, fact)
        self.state.take_incident(self.about)
        list(self.state.recovering(self.now))

    def say(self, verb: Verb, old: Run | None = None, step: str = "", **more: Any) -> Command:
        self.number += 1
        command = Command(f"c{self.number}", self.about.id, CLUSTER, verb, "ada", self.now)
        if old is not None:
            shown = continuation(old, self.state.view(CLUSTER), self.settings.mode, self.now, step=step)
            seen = {"run": old.id, "digest": shown.plan.digest, "seen": shown.lines, "step": step or None}
            command = replace(command, **seen)  # type: ignore[arg-type]
        command = replace(command, **more)
        self.state.take_command(command)
        self.turn()
        return command

    def told(self, command: Command) -> str:
        return "; ".join(e.text for e in self.timeline if e.attributes.get("command") == command.id)

    @property
    def runs(self) -> list[Run]:
        return self.state.runs.of(self.about.id)

    def count(self, action: str) -> int:
        return sum(name == action for name, _ in self.sent)


def refused_drain(effect: Effect) -> Outcome | None:
    return Refused("a pod stays") if effect.action == "drain_node" else None


def well(effect: Effect) -> Outcome | None:
    return None


def failed() -> Shift:
    """The run closed its node and stopped its job; the drain failed, and the job was resumed."""
    shift = Shift()
    shift.work(60, refused_drain)
    (run,) = shift.runs
    assert run.outcome is RunOutcome.FAILED
    assert not run.has_work
    shift.answer = well
    return shift


def test_a_failed_run_goes_on_in_a_run_of_its_own() -> None:
    shift = failed()
    (old,) = shift.runs
    told = shift.say(Verb.CONTINUE, old, reason="the pod is gone")
    shift.work(100, well)
    assert f"ada took up {old.id} again: the pod is gone" in shift.told(told)
    first, second = shift.runs
    assert first == replace(old)
    assert (second.continues, second.started_by, second.outcome) == (old.id, "ada", RunOutcome.SUCCEEDED)


def test_what_was_confirmed_is_looked_up_and_not_sent_again() -> None:
    shift = failed()
    shift.say(Verb.CONTINUE, shift.runs[0])
    shift.work(100, well)
    assert shift.count("cordon_node") == 1
    assert shift.count("open_ticket") == 1
    assert "cordon_node" in shift.looked_up
    assert "found in place" in shift.runs[1].step("cordon").reason


def test_a_job_that_the_rollback_resumed_elsewhere_is_not_stopped_again() -> None:
    shift = failed()
    assert shift.count("undo suspend_job") == 1
    shift.say(Verb.CONTINUE, shift.runs[0])
    shift.work(100, well)
    assert shift.world.count("suspend_job") == 1
    assert shift.runs[1].step(SUSPEND).state is StepState.SKIPPED


def test_a_step_that_is_done_again_has_a_key_of_its_own() -> None:
    shift = failed()
    old_key = shift.runs[0].step("drain").effect
    shift.say(Verb.CONTINUE, shift.runs[0])
    shift.work(100, well)
    new_key = shift.runs[1].step("drain").effect
    assert old_key is not None
    assert new_key is not None
    assert new_key.key != old_key.key
    cordon = [run.step("cordon").effect for run in shift.runs]
    assert cordon[0] is not None
    assert cordon[1] is not None
    assert cordon[0].key == cordon[1].key


def test_the_same_command_twice_and_two_people_at_once_are_one_run() -> None:
    shift = failed()
    (old,) = shift.runs
    command = shift.say(Verb.CONTINUE, old)
    shift.state.take_command(command)
    second = replace(command, id="other", actor="bob")
    shift.state.take_command(second)
    shift.turn()
    assert len(shift.runs) == 2
    new = shift.runs[1]
    assert (
        f"{new.id} (move) came after {old.id}, started by ada: that one is the one to take up"
        in shift.told(second)
    )


def test_another_machine_takes_over_in_the_middle_and_nothing_is_done_twice() -> None:
    shift = failed()
    shift.say(Verb.CONTINUE, shift.runs[0])
    shift.restart()
    shift.work(200, well)
    assert shift.runs[1].outcome is RunOutcome.SUCCEEDED
    assert shift.world.count("cordon_node") == 1
    assert shift.world.count("open_ticket") == 1


def test_a_run_is_not_taken_up_while_it_is_still_at_work() -> None:
    shift = Shift()
    shift.work(4)
    (run,) = shift.runs
    with pytest.raises(BadInput, match="is at work: a run is taken up once it has ended"):
        continuation(run, shift.state.view(CLUSTER), Mode.AUTO, shift.now)
    command = shift.say(Verb.CONTINUE, run=run.id, digest="x")
    assert "is at work" in shift.told(command)
    assert len(shift.runs) == 1


def test_a_run_of_an_incident_that_is_over_is_not_taken_up() -> None:
    shift = failed()
    old = shift.runs[0]
    shift.state.take_incident(replace(shift.about, revision=2, state=IncidentState.RESOLVED))
    command = shift.say(Verb.CONTINUE, old)
    assert f"{shift.about.id} is over" in shift.told(command)
    assert len(shift.runs) == 1


def test_a_node_that_somebody_uncordoned_meanwhile_is_left_alone() -> None:
    shift = failed()
    old = shift.runs[0]
    shift.world.person_turns_node("node-03", closed=False, at=shift.now)
    shift.now += timedelta(seconds=30)
    shift.see()
    with pytest.raises(BadInput, match="was uncordoned since by somebody else"):
        continuation(old, shift.state.view(CLUSTER), Mode.AUTO, shift.now)


def test_a_node_that_somebody_uncordons_right_then_ends_the_run() -> None:
    shift = failed()
    command = shift.say(Verb.CONTINUE, shift.runs[0], id="late")
    assert "took up" in shift.told(command)
    shift = failed()
    shift.world.person_turns_node("node-03", closed=False, at=shift.now)  # the inventory does not show it yet
    shift.say(Verb.CONTINUE, shift.runs[0])
    shift.work(60, well)
    new = shift.runs[1]
    assert (new.outcome, new.overruled) == (RunOutcome.CANCELLED, True)
    assert "uncordoned manually" in new.reason
    assert shift.world.count("cordon_node") == 1
    assert shift.count("drain_node") == 1


def test_a_machine_replaced_under_the_same_name_is_not_acted_on() -> None:
    shift = failed()
    shift.world.nodes["node-03"]["metadata"]["uid"] = "another"
    shift.see()
    with pytest.raises(BadInput, match="node-03 was replaced since"):
        continuation(shift.runs[0], shift.state.view(CLUSTER), Mode.AUTO, shift.now)


def test_an_old_command_and_one_for_another_state_take_up_nothing() -> None:
    shift = failed()
    old = shift.runs[0]
    stale = shift.say(Verb.CONTINUE, old, at=shift.now - timedelta(hours=3))
    assert "count as fresh" in shift.told(stale)
    other = shift.say(Verb.CONTINUE, old, digest="other", seen=("cordon: cordon_node is done",))
    assert f"{old.id} is not as it was shown: no longer: cordon: cordon_node is done" in shift.told(other)
    assert len(shift.runs) == 1


def test_only_approvers_take_up_a_run() -> None:
    shift = failed()
    shift.settings = policy(approvers=("bob",))
    shift.restart()
    command = shift.say(Verb.CONTINUE, shift.runs[0])
    assert "ada is not an approver" in shift.told(command)


def test_a_run_that_a_person_stopped_is_taken_up_with_its_job_still_suspended() -> None:
    shift = Shift()
    shift.work(20, lambda effect: Retry(5.0, "busy") if effect.action == "drain_node" else None)
    shift.say(Verb.STOP)
    shift.work(10, well)
    (old,) = shift.runs
    assert old.outcome is RunOutcome.CANCELLED
    assert shift.world.held_job(JOB) == shift.about.id
    shift.say(Verb.CONTINUE, old)
    shift.work(100)
    new = shift.runs[1]
    assert new.outcome is RunOutcome.SUCCEEDED
    assert shift.world.count("suspend_job") == 1
    assert shift.world.count("resume_job") == 1
    assert shift.world.held_job(JOB) is None


def test_a_job_that_a_person_resumed_meanwhile_is_theirs() -> None:
    shift = Shift()
    shift.work(20, lambda effect: Retry(5.0, "busy") if effect.action == "drain_node" else None)
    shift.say(Verb.STOP)
    shift.work(10, well)
    marks = shift.world.jobs[JOB.key]["metadata"]["annotations"]
    marks.clear()
    shift.world.person_turns_job(JOB, suspended=False, at=shift.now)
    shift.say(Verb.CONTINUE, shift.runs[0])
    shift.work(60)
    assert shift.runs[1].overruled
    assert shift.world.count("suspend_job") == 1


def test_a_failed_step_is_done_again_with_what_waited_for_it() -> None:
    shift = Shift()
    shift.work(200, lambda effect: Refused("no pods") if effect.action == "verify_job" else None)
    (old,) = shift.runs
    assert old.step(VERIFY).state is StepState.FAILED
    shift.answer = well
    command = shift.say(Verb.REDO, old, VERIFY)
    assert f"did {VERIFY} of {old.id} again" in shift.told(command)
    shift.work(100, well)
    new = shift.runs[1]
    assert new.outcome is RunOutcome.SUCCEEDED
    assert [shift.world.count(a) for a in ("cordon_node", "suspend_job", "resume_job")] == [1, 1, 1]


def test_a_step_is_not_done_again_where_others_would_stay_unfinished_or_what_it_needs_is_gone() -> None:
    shift = failed()
    (old,) = shift.runs
    view = shift.state.view(CLUSTER)
    with pytest.raises(BadInput, match="did not fail: it is done"):
        continuation(old, view, Mode.AUTO, shift.now, step="cordon")
    with pytest.raises(BadInput, match="has no step dran"):
        continuation(old, view, Mode.AUTO, shift.now, step="dran")
    with pytest.raises(BadInput, match="which does not stand; `faultline runbook continue"):
        continuation(old, view, Mode.AUTO, shift.now, step="drain")


def test_a_run_that_ended_as_planned_or_in_shadow_mode_is_not_taken_up() -> None:
    shift = Shift()
    shift.work(200, well)
    with pytest.raises(BadInput, match="ended as planned"):
        continuation(shift.runs[0], shift.state.view(CLUSTER), Mode.AUTO, shift.now)
    shadow = Shift(policy(mode=Mode.SHADOW))
    shadow.work(10)
    with pytest.raises(BadInput, match="was in shadow mode"):
        continuation(shadow.runs[0], shadow.state.view(CLUSTER), Mode.AUTO, shadow.now)
    assert shadow.say(Verb.CONTINUE, run=shadow.runs[0].id, digest="x")
    assert len(shadow.runs) == 1


def test_the_limits_count_a_step_that_is_carried_over_once() -> None:
    shift = failed()
    counts = shift.state._documents.cluster(CLUSTER).run_counts
    before, _, _ = counts.spent(shadow=False, since=NOW)
    shift.say(Verb.CONTINUE, shift.runs[0])
    shift.work(100, well)
    after, reserved, _ = counts.spent(shadow=False, since=NOW)
    assert (after - before, reserved) == (1, 0)  # the drain alone


def test_the_kill_switch_holds_a_run_that_is_taken_up() -> None:
    shift = failed()
    shift.state.take_command(Command("kill", "", CLUSTER, Verb.KILL, "bob", shift.now))
    shift.turn()
    shift.say(Verb.CONTINUE, shift.runs[0])
    shift.work(30, well)
    assert shift.runs[1].step("drain").state in (StepState.PENDING, StepState.BLOCKED)
    assert shift.count("drain_node") == 1


def test_a_lookup_that_finds_nothing_out_is_repeated_before_anything_is_sent() -> None:
    shift = failed()
    original = shift.world.lookup
    silent: list[int] = []

    def lookup(effect: Effect) -> Outcome:
        if effect.action == "cordon_node" and len(silent) < 2:
            silent.append(1)
            return Retry(1.0, "the API server does not answer")
        return original(effect)

    shift.world.lookup = lookup  # type: ignore[method-assign]
    shift.say(Verb.CONTINUE, shift.runs[0])
    assert shift.count("drain_node") == 1
    shift.work(100, well)
    assert len(silent) == 2
    assert shift.runs[1].outcome is RunOutcome.SUCCEEDED
    assert shift.world.count("cordon_node") == 1


def test_absent_work_that_later_steps_rely_on_is_done_again() -> None:
    shift = Shift()
    shift.work(200, lambda effect: Refused("no pods") if effect.action == "verify_job" else None)
    (old,) = shift.runs
    original = shift.world.lookup
    shift.answer = well

    def lookup(effect: Effect) -> Outcome:
        return Absent() if effect.action == "drain_node" else original(effect)

    shift.world.lookup = lookup  # type: ignore[method-assign]
    drains = shift.count("drain_node")
    shift.say(Verb.CONTINUE, old)
    shift.work(100, well)
    new = shift.runs[1]
    assert new.step("drain").carried_from == ""
    assert shift.count("drain_node") > drains
    first, second = old.step("drain").effect, new.step("drain").effect
    assert first is not None
    assert second is not None
    assert first.state is EffectState.CONFIRMED
    assert first.key != second.key
