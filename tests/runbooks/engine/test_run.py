"""The run from its plan to its end: order, waiting, failing, deciding, undoing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from connectors.base import Absent, AlreadyDone, Blocked, Done, Refused, Retry, Unknown, Waiting
from runbooks.engine.run.human_decisions import decided, revised
from runbooks.engine.run.machine import MAX_IN_FLIGHT
from runbooks.engine.run.outcomes import recover
from runbooks.engine.run.plan import plan
from runbooks.engine.run.rollback import NOTHING
from runbooks.language.loader import load_text
from streams.model.conversation import Command, Verb
from streams.model.entity import Entity, JobRef
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.run import EffectState, Mode, RunState, StepState
from tests.runbooks.scenes import ACTIONS, AUTO, CLUSTER, JOB, NOW, OTHER_JOB, Play, incident, policy, radius

TICKETLESS = ACTIONS - {"open_ticket"}


def command(play: Play, verb: Verb, **changes: object) -> Command:
    made = Command(
        f"cmd-{verb}", play.run.incident, CLUSTER, verb, "ada", play.now, digest=play.run.plan.digest
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def decide(play: Play, verb: Verb, **changes: object) -> None:
    play.take(decided(play.run, command(play, verb, **changes), play.settings, play.now))
    play.tick()


def revise(play: Play, keep: Mapping[str, str] = NOTHING, **changes: object) -> None:
    play.about = replace(play.about, revision=play.about.revision + 1, **changes)  # type: ignore[arg-type]
    bound = plan(play.about, play.runbook, play.view, play.settings.mode)
    play.take(revised(play.run, play.about, bound, play.now, keep))
    play.tick()


def test_a_lost_gpu_is_closed_in_before_its_job_moves_and_the_run_ends_at_progress() -> None:
    play = Play(incident())
    play.progress()
    play.now = play.now.replace(minute=1)
    play.play()
    assert play.made == [
        "open_ticket",
        "cordon_node",
        "suspend_job",
        "drain_node",
        "resume_job",
        "verify_job",
    ]
    assert play.stands() is RunState.VERIFYING
    play.now = play.now.replace(minute=2)
    play.progress()
    play.tick()
    assert play.stands() is RunState.SUCCEEDED
    assert play.reports == ["run.started", "run.verifying", "run.finished:succeeded"]
    assert not play.run.has_work


def test_a_job_that_stands_still_after_its_resume_is_no_success() -> None:
    play = Play(incident())
    play.progress()
    play.play()
    play.tick(1801)
    assert play.stands() is RunState.FAILED
    assert "no progress" in play.run.reason
    assert play.made.count("undo cordon_node") == 0


def test_a_job_that_never_prints_progress_counts_once_it_has_settled() -> None:
    play = Play(incident())
    play.play()
    play.tick(29)
    assert play.stands() is RunState.VERIFYING
    play.tick(2)
    assert play.stands() is RunState.SUCCEEDED


def test_steps_that_do_not_wait_for_one_another_are_taken_at_the_same_time() -> None:
    play = Play(incident(jobs=(JOB, OTHER_JOB)))
    play.tick()
    assert [c.effect.action for c in play.air] == ["open_ticket", "cordon_node"]
    play.answer(Done(), "cordon_node")
    assert [c.effect.target.name for c in play.air[1:]] == ["eval", "llm"]
    play.answer(Unknown("timeout"), "suspend_job")
    play.answer(Done(), "suspend_job")
    assert [c.effect.action for c in play.air] == ["open_ticket"], "the drain waits for both"


def test_two_calls_to_one_thing_are_never_in_the_air_together() -> None:
    steps = "\n".join(
        f"  - {{id: {name}, action: {action}, target: root_node}}"
        for name, action in (("close", "cordon_node"), ("open", "uncordon_node"))
    )
    book = load_text(
        f"id: both\nrevision: 1\nowner: x\nmode: auto\nmatch: 'true'\npriority: 900\n"
        f"description: two steps on one node\nsteps:\n{steps}",
        "both.yaml",
    )
    play = Play(incident(), actions=TICKETLESS, library=(book,))
    play.tick()
    assert [c.effect.action for c in play.air] == ["cordon_node"]
    play.answer(Done())
    assert [c.effect.action for c in play.air] == ["uncordon_node"]


def test_no_more_than_a_few_calls_of_a_run_are_in_the_air() -> None:
    jobs = tuple(JobRef("PyTorchJob", "research", f"job-{i:02}", f"uid-{i}") for i in range(20))
    play = Play(incident(jobs=jobs), actions=TICKETLESS, settings=radius(max_per_window=100))
    play.tick()
    play.answer(Done())
    assert len(play.air) == MAX_IN_FLIGHT
    play.answer(Done())
    assert len(play.air) == MAX_IN_FLIGHT


def test_a_ticket_system_that_is_down_holds_up_nothing_and_gets_its_ticket_later() -> None:
    play = Play(incident())
    play.tick()
    play.answer(Retry(5.0, "connection refused"), "open_ticket")
    play.play()
    play.tick(31)
    if play.air:
        play.answer(Retry(5.0, "connection refused"), "open_ticket")
    assert play.stands() is RunState.SUCCEEDED
    assert play.run.has_work
    play.tick(120)
    play.answer(Done({"ticket": "GPU-1"}), "open_ticket")
    assert play.state("ticket") is StepState.DONE
    assert not play.run.has_work


def test_without_a_ticket_system_the_step_is_skipped_with_its_reason() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.tick()
    assert play.run.step("ticket").reason == "no ticket system configured"
    assert [c.effect.action for c in play.air] == ["cordon_node"]


def test_without_a_cluster_connector_nothing_is_done_to_a_job() -> None:
    play = Play(incident(), actions=frozenset({"suspend_job", "resume_job"}))
    play.tick()
    assert play.stands() is RunState.FAILED
    assert play.air == []


@pytest.mark.parametrize(
    ("found", "then"),
    [
        (AlreadyDone({"prior": "schedulable"}), "suspend_job"),
        (Absent(), "cordon_node"),
        (Waiting(0.0, "under way"), "cordon_node"),
    ],
)
def test_a_lost_answer_is_looked_up_before_anything_else(found: object, then: str) -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.tick()
    play.answer(Unknown("timeout", after_s=1.0))
    assert play.air == []
    play.tick(1)
    assert [c.kind for c in play.air] == ["lookup"]
    play.answer(found)  # type: ignore[arg-type]
    assert [(c.kind, c.effect.action) for c in play.air] == [("apply", then)]


def test_an_api_that_cannot_be_asked_is_asked_on_and_told_of_once() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.tick()
    play.answer(Unknown("timeout"))
    for _ in range(5):
        play.tick(10)
        assert [c.kind for c in play.air] == ["lookup"]
        play.answer(Unknown("connection refused"))
    assert sum("connection refused" in note for note in play.notes) == 1


def test_a_successor_waits_the_lease_out_looks_and_only_then_acts() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.tick()
    first = play.air.pop()
    play.take(recover(play.run, play.now))
    play.tick(AUTO.lease_s + 1)
    assert play.air == []
    play.tick(1.1)
    assert [c.kind for c in play.air] == ["lookup"]
    play.answer(Absent())
    assert play.air[0].kind == "apply"
    assert play.air[0].effect.key == first.effect.key


def test_a_lookup_whose_answer_died_with_its_process_is_sent_again_at_once() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.tick()
    play.air.clear()
    play.take(recover(play.run, play.now))
    play.tick(22.1)
    assert [c.kind for c in play.air] == ["lookup"]
    play.air.clear()
    play.take(recover(play.run, play.now))
    play.tick()
    assert [c.kind for c in play.air] == ["lookup"]


def test_what_is_refused_ends_the_run_and_gives_the_job_back() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="resume_job")
    play.answer(Refused("the annotation is not ours"))
    assert play.run.outcome == "failed"
    play.play()
    assert play.made[-1] == "undo suspend_job"
    assert play.stands() is RunState.FAILED
    assert "undo cordon_node" not in play.made


def test_a_drain_that_a_budget_blocks_for_good_does_not_keep_the_job_suspended() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="drain_node")
    for _ in range(400):
        if play.state("drain") is not StepState.RUNNING and play.state("drain") is not StepState.BLOCKED:
            break
        if play.air:
            play.answer(Blocked("PodDisruptionBudget web", "1 pod stays", after_s=5))
        else:
            play.tick(5)
    assert play.state("drain") is StepState.FAILED
    assert play.air[0].effect.action == "resume_job"


@pytest.mark.parametrize("action", ["cordon_node", "suspend_job", "drain_node", "resume_job"])
def test_a_persons_change_cancels_the_run_says_so_and_leaves_no_job_suspended(action: str) -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until=action)
    play.answer(Blocked.person("a person uncordoned node-03"))
    play.play()
    assert play.stands() is RunState.CANCELLED
    assert "a person uncordoned node-03" in play.run.reason
    assert any("run.called_off cancelled: a person" in note for note in play.notes)
    assert "undo cordon_node" not in play.made
    assert ("undo suspend_job" in play.made) is (action in ("drain_node", "resume_job"))


def test_a_revision_that_removes_the_reason_takes_everything_back_in_reverse() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="drain_node")
    revise(play, state=IncidentState.MERGED, merged_into="inc-other")
    assert play.run.outcome == "cancelled"
    play.play()
    assert play.made[-2:] == ["undo suspend_job", "undo cordon_node"]
    assert play.stands() is RunState.CANCELLED


def test_a_call_in_the_air_is_waited_for_before_it_is_taken_back() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="cordon_node")
    revise(play, state=IncidentState.RESOLVED)
    assert [c.kind for c in play.air] == ["apply"]
    play.answer(Unknown("timeout"))
    play.tick(1)
    play.answer(AlreadyDone())
    play.play()
    assert play.made == ["undo cordon_node"]


def test_a_merge_after_success_opens_the_node_again_unless_the_other_incident_accuses_it_too() -> None:
    for keep, opened in ((NOTHING, True), ({"node-03": "inc-other"}, False)):
        play = Play(incident(), actions=TICKETLESS)
        play.play()
        play.tick(31)
        assert play.stands() is RunState.SUCCEEDED
        revise(play, keep, state=IncidentState.MERGED, merged_into="inc-other")
        play.play()
        assert ("undo cordon_node" in play.made) is opened
        assert "undo suspend_job" not in play.made
        assert play.stands() is RunState.SUCCEEDED


def test_an_undo_that_a_person_forestalled_is_left_alone() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="suspend_job")
    play.answer(Refused("no such job"))
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="suspend_job")
    revise(play, state=IncidentState.MERGED, merged_into="inc-other")
    play.answer(Refused("no such job"))
    assert [(c.kind, c.effect.action) for c in play.air] == [("undo", "cordon_node")]
    play.answer(Blocked.person("a person cordoned it on purpose"))
    assert play.run.step("cordon").undo is not None
    assert play.run.step("cordon").undo.state is EffectState.REFUSED  # type: ignore[union-attr]
    assert not play.run.has_work


def test_likely_evidence_waits_for_an_approval_of_this_very_plan() -> None:
    play = Play(incident(certainty=Certainty.LIKELY), actions=TICKETLESS)
    play.tick()
    assert play.stands() is RunState.AWAITING_APPROVAL
    assert play.air == []
    decide(play, Verb.APPROVE, digest="0" * 32)
    assert play.air == []
    assert "an outdated plan" in play.notes[-1]
    decide(play, Verb.APPROVE, id="cmd-2")
    assert [c.effect.action for c in play.air] == ["cordon_node"]
    assert play.reports == ["run.started", "run.awaiting_approval", "run.started"]
    decide(play, Verb.REJECT, id="cmd-3", actor="bob")
    assert play.run.outcome == ""


def test_a_person_who_may_not_approve_does_not() -> None:
    play = Play(incident(certainty=Certainty.LIKELY), actions=TICKETLESS, settings=policy(approvers=("eve",)))
    play.tick()
    decide(play, Verb.APPROVE)
    assert play.air == []
    assert "not among responder.approvers" in play.notes[-1]


def test_a_rejection_ends_it_without_a_touch() -> None:
    play = Play(incident(certainty=Certainty.LIKELY), actions=TICKETLESS)
    play.tick()
    decide(play, Verb.REJECT, reason="false alarm")
    assert play.stands() is RunState.CANCELLED
    assert play.run.outcome == "rejected"
    assert play.reports[-1] == "run.finished:rejected"
    assert play.made == []


def test_an_approval_that_nobody_gives_expires() -> None:
    play = Play(incident(certainty=Certainty.LIKELY), actions=TICKETLESS)
    play.tick()
    play.tick(4 * 3600 - 1)
    assert play.stands() is RunState.AWAITING_APPROVAL
    play.tick(1)
    assert play.run.outcome == "expired"
    decide(play, Verb.APPROVE)
    assert play.air == []


def test_evidence_that_becomes_decisive_needs_no_approval_any_more() -> None:
    play = Play(incident(certainty=Certainty.LIKELY), actions=TICKETLESS)
    play.tick()
    revise(play, certainty=Certainty.DECISIVE)
    assert [c.effect.action for c in play.air] == ["cordon_node"]


def test_stop_stops_at_the_next_step_and_says_what_stands() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="suspend_job")
    decide(play, Verb.STOP)
    play.answer(Done())
    assert play.air == []
    assert play.stands() is RunState.CANCELLED
    assert any("cordon_node Node node-03 stays in place" in note for note in play.notes)


def test_a_command_told_twice_counts_once() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.tick()
    decide(play, Verb.RESOLVE)
    before = play.run
    decide(play, Verb.RESOLVE)
    assert play.run == before
    assert play.reports.count("run.resolved") == 1


def test_the_kill_switch_stops_a_running_drain_but_not_a_resume() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="drain_node")
    play.answer(Waiting(1.0, "2 pods left"))
    play.settings = policy(kill_switch=True)
    play.tick(2)
    assert play.air == []
    assert play.run.step("drain").verdict == "refused"
    play.tick(600)
    assert play.air[0].effect.action == "resume_job"


def test_shadow_says_what_it_would_do_and_calls_nobody() -> None:
    play = Play(incident(), settings=policy(mode=Mode.SHADOW))
    play.tick()
    assert play.stands() is RunState.SHADOWED
    assert {r.verdict for r in play.run.steps} == {"would"}
    assert play.air == []
    assert play.reports == ["run.finished:shadowed"]
    revise(play, certainty=Certainty.LIKELY)
    assert {r.id.split(":")[0]: r.verdict for r in play.run.steps} == {
        "ticket": "would", "cordon": "needs_approval", "suspend": "needs_approval", "drain": "needs_approval",
        "resume": "would", "verify": "would", "progress": "would",
    }  # fmt: skip
    assert play.stands() is RunState.SHADOWED


def test_a_job_that_a_later_revision_adds_is_moved_too_before_the_drain() -> None:
    play = Play(incident(jobs=()), actions=TICKETLESS)
    play.play(until="cordon_node")
    digest = play.run.plan.digest
    revise(play, jobs=(JOB,))
    assert play.run.plan.digest != digest
    play.play()
    assert play.made == ["cordon_node", "suspend_job", "drain_node", "resume_job", "verify_job"]


def test_a_job_that_leaves_the_incident_while_it_is_moved_is_moved_all_the_way() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="suspend_job")
    revise(play, jobs=())
    play.play()
    assert play.made == ["cordon_node", "suspend_job", "drain_node", "resume_job", "verify_job"]


@pytest.mark.parametrize(
    ("about", "acts_on"),
    [
        (
            incident("pfc_storm", Entity(CLUSTER, node="node-05", nic="mlx5_1"), jobs=(OTHER_JOB, JOB)),
            {"node-05", "llm", "eval"},
        ),
        (
            incident("pfc_storm", Entity(CLUSTER, node="node-06", nic="mlx5_1"), jobs=(OTHER_JOB, JOB)),
            {"node-06", "eval"},
        ),
        (incident("pfc_storm", Entity(CLUSTER, switch="leaf-1", port="Ethernet4")), set()),
        (incident("application", Entity(CLUSTER, job=JOB)), set()),
        (incident("hang", Entity(CLUSTER, job=JOB)), set()),
        (incident("something_new", Entity(CLUSTER, node="node-01")), set()),
        (incident("silent_node", Entity(CLUSTER, node="node-03")), {"node-03", "llm"}),
        (incident("gpu_off_bus", Entity(CLUSTER)), set()),
    ],
)
def test_only_the_source_and_the_jobs_on_it_are_touched(about: Incident, acts_on: set[str]) -> None:
    play = Play(about)
    touched = {s.target.name for s in play.run.plan.steps if s.destructive and s.target}
    assert touched == acts_on


def test_who_is_asked_and_answers_ends_the_run() -> None:
    play = Play(incident("hang", Entity(CLUSTER, job=JOB)), actions=TICKETLESS)
    play.tick()
    assert play.stands() is RunState.AWAITING_APPROVAL
    decide(play, Verb.APPROVE)
    assert play.stands() is RunState.SUCCEEDED


def test_nothing_due_changes_nothing() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.tick()
    before = play.run
    assert play.tick(1).run == before
    assert play.now > NOW


def test_a_change_under_way_that_was_held_goes_on_as_soon_as_it_may() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="drain_node")
    play.answer(Waiting(10.0, "pods are going"), "drain_node")
    play.settings = policy(kill_switch=True)
    play.tick(11)
    assert (play.state("drain"), play.air) == (StepState.BLOCKED, [])
    play.settings = policy()
    play.tick(5)
    assert [call.effect.action for call in play.air] == ["drain_node"]


def test_a_question_that_was_held_for_long_is_asked_anew_with_all_its_time() -> None:
    play = Play(incident("gpu_fault", jobs=()), actions=TICKETLESS)
    play.tick()
    assert play.state("cordon") is StepState.AWAITING_APPROVAL
    play.settings = policy(kill_switch=True)
    play.tick(60)
    assert play.state("cordon") is StepState.BLOCKED
    play.tick(2 * play.settings.approval_expiry_s)
    play.settings = policy()
    play.tick()
    play.tick(play.settings.approval_expiry_s - 1)
    assert play.state("cordon") is StepState.AWAITING_APPROVAL
    play.tick(1)
    assert play.run.outcome == "expired"
