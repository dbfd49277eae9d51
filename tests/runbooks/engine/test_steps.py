"""How single steps go: tried again, in waves, failing each in its own way, and taken back by another action."""

from __future__ import annotations

from dataclasses import replace

import pytest

from connectors.base import Absent, AlreadyDone, Blocked, Done, Refused, Retry, Unknown, Waiting
from runbooks.engine.partition_state import PartitionState
from runbooks.engine.run.outcomes import recover
from runbooks.language.loader import load_text
from runbooks.language.schema import Runbook
from streams.model.codec import decode, encode
from streams.model.conversation import Verb
from streams.model.entity import Entity, JobRef
from streams.model.facts import Fact
from streams.model.incident import IncidentState
from streams.model.run import EffectState, Run, RunState, StepState
from tests.runbooks.engine.test_run import decide, revise
from tests.runbooks.scenes import (
    ACTIONS,
    AUTO,
    CLUSTER,
    JOB,
    LIBRARY,
    NOW,
    Play,
    at,
    cluster,
    incident,
    radius,
)

TICKETLESS = ACTIONS - {"open_ticket"}
BACK = "compensate: {action: uncordon_node}"


def book(
    cordon: str = "", suspend: str = "", drain: str = "", *, revision: int = 1, more: str = ""
) -> Runbook:
    """Close, stop, drain; each argument adds keys to a step."""
    return load_text(
        f"""
id: ours
revision: {revision}
owner: x
mode: auto
priority: 900
description: a runbook of the test
match: incident.family == "gpu_off_bus"
escalation: {{to: ours-next, per: node}}
steps:
  - {{id: cordon, action: cordon_node, target: root_node{cordon and ", " + cordon}}}
  - {{id: suspend, action: suspend_job, target: jobs, needs: [cordon]{suspend and ", " + suspend}}}
  - {{id: drain, action: drain_node, target: root_node, needs: [suspend, cordon]{drain and ", " + drain}}}
{more}""",
        "ours.yaml",
    )


NEXT = load_text(
    "id: ours-next\nrevision: 1\nowner: x\nmode: auto\nmatch: incident.family == 'none'\n"
    "description: the rung above\nsteps:\n  - {id: ask, action: ask, target: incident}\n",
    "next.yaml",
)


def begun(one: Runbook, *, jobs: tuple[JobRef, ...] = (JOB,), **changes: object) -> Play:
    about = incident(jobs=jobs)
    settings = radius(max_per_window=100)
    return Play(about, actions=TICKETLESS, library=(one, NEXT), settings=settings, **changes)  # type: ignore[arg-type]


# ── retries ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_call_is_tried_again_by_the_steps_own_policy_and_given_up_after_its_attempts() -> None:
    play = begun(book("retry: {attempts: 4, first_s: 10, factor: 3, longest_s: 60}"))
    play.tick()
    for pause in (10, 30, 60):
        play.answer(Retry(0.0, "503"))
        play.tick(pause - 0.5)
        assert play.air == []
        play.tick(0.5)
        assert [call.kind for call in play.air] == ["apply"]
    play.answer(Retry(0.0, "503"))
    assert play.stands() is RunState.FAILED
    assert "cordon failed: failed after 4 attempts: 503" in play.run.reason


def test_what_the_other_side_asks_for_counts_where_it_is_longer() -> None:
    play = begun(book("retry: {first_s: 1}"))
    play.tick()
    play.answer(Retry(45.0, "429"))
    play.tick(44)
    assert play.air == []
    play.tick(1)
    assert len(play.air) == 1


def test_a_call_that_was_looked_up_and_never_made_is_a_try_too_but_a_long_change_is_none() -> None:
    play = begun(book("retry: {attempts: 2}"))
    play.tick()
    for _ in range(5):
        play.answer(Waiting(1.0, "under way"))
        play.tick(1)
    for _ in range(2):
        play.answer(Unknown("timeout"))
        play.tick(1)
        play.answer(Absent())
    assert play.stands() is RunState.FAILED


def test_a_call_that_we_held_back_ourselves_and_was_never_made_is_no_try() -> None:
    play = begun(book("retry: {attempts: 1}"))
    play.tick()
    for _ in range(3):
        play.answer(Unknown("called back", withheld=True))
        play.tick(1)
        play.answer(Absent())
        play.tick(1)
    assert [call.kind for call in play.air] == ["apply"]
    play.answer(Unknown("timeout"))
    play.tick(1)
    play.answer(Absent())
    assert play.stands() is RunState.FAILED


def test_tries_are_counted_over_restarts() -> None:
    play = begun(book("retry: {attempts: 2, first_s: 1}"))
    play.tick()
    play.answer(Retry(0.0, "503"))
    play.run = decode(Run, encode(play.run))
    play.take(recover(play.run, play.now))
    play.tick(1)
    play.answer(Retry(0.0, "503"))
    assert play.run.outcome == "failed"


# ── waves ───────────────────────────────────────────────────────────────────────────────────────────────────────────

JOBS = tuple(JobRef("PyTorchJob", "research", f"job-{i}", f"uid-{i}") for i in range(5))
WAVES = "waves: {size: 2, pause_s: 30}"


def names(play: Play) -> list[str]:
    return [call.effect.target.name for call in play.air]


def test_targets_are_taken_in_waves_with_a_pause_between_them() -> None:
    play = begun(book(suspend=WAVES), jobs=JOBS)
    play.tick()
    play.answer(Done())
    assert names(play) == ["job-0", "job-1"]
    play.answer(Done())
    assert names(play) == ["job-1"], "the second wave waits for all of the first"
    play.answer(Done())
    play.tick(29)
    assert names(play) == []
    play.tick(1)
    assert names(play) == ["job-2", "job-3"]
    play.answer(Done())
    play.answer(Done())
    play.tick(30)
    assert names(play) == ["job-4"]


def test_after_a_wave_that_failed_no_further_one_is_begun() -> None:
    play = begun(book(suspend=WAVES), jobs=JOBS)
    play.tick()
    play.answer(Done())
    play.answer(Refused("no"))
    play.tick(300)
    assert names(play) == ["job-1"]
    play.answer(Done())
    play.play()
    touched = [line for line in play.made if line == "suspend_job"]
    assert len(touched) == 1
    assert play.run.outcome == "failed"


def test_a_failure_that_the_runbook_goes_on_after_does_not_end_the_waves() -> None:
    play = begun(book(suspend=f"{WAVES}, on_failure: continue"), jobs=JOBS)
    play.tick()
    play.answer(Done())
    play.answer(Refused("no"))
    play.answer(Done())
    play.tick(30)
    assert names(play) == ["job-2", "job-3"]


def test_the_pause_between_waves_is_a_due_time_in_the_document() -> None:
    play = begun(book(suspend=WAVES), jobs=JOBS)
    play.tick()
    play.answer(Done())
    play.answer(Done())
    play.answer(Done())
    play.run = decode(Run, encode(play.run))
    assert play.run.step("suspend:PyTorchJob/research/job-2").due_at == at(30)


# ── failing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("on_failure", "outcome", "undone"),
    [
        ("stop", "failed", ["undo suspend_job"]),
        ("escalate", "escalated", ["undo suspend_job"]),
        ("undo", "failed", ["undo suspend_job", "undo cordon_node"]),
    ],
)
def test_a_failure_ends_the_run_as_the_step_says(on_failure: str, outcome: str, undone: list[str]) -> None:
    play = begun(book("undo: true", "undo: true", f"on_failure: {on_failure}"))
    play.play(until="drain_node")
    play.answer(Refused("no"))
    play.play()
    assert [line for line in play.made if line.startswith("undo")] == undone
    assert play.run.outcome == outcome
    assert play.reports[-1] == f"run.finished:{outcome}"


def test_a_verification_that_fails_escalates_when_the_runbook_says_so() -> None:
    more = (
        "  - {id: resume, action: resume_job, target: jobs, needs: [drain]}\n"
        "  - {id: verify, action: verify_job, target: jobs, needs: [resume], deadline_s: 60, on_failure: escalate}\n"
    )
    play = begun(book("undo: true", "undo: true", more=more))
    play.play(until="verify_job")
    play.answer(Waiting(100.0, "3 of 4 pods are ready"))
    assert play.run.outcome == "escalated"
    assert "verify:PyTorchJob/research/llm failed: not done within 60 s" in play.run.reason


def test_time_in_a_queue_counts_against_no_deadline_and_starting_does() -> None:
    more = (
        "  - {id: resume, action: resume_job, target: jobs, needs: [drain]}\n"
        "  - {id: verify, action: verify_job, target: jobs, needs: [resume], deadline_s: 60, on_failure: escalate}\n"
    )
    play = begun(book("undo: true", "undo: true", more=more))
    play.play(until="verify_job")
    play.answer(Waiting(30.0, "llm waits for quota in ClusterQueue gpus", queued=True))
    play.tick(3 * 3600)  # the responder was away, or the queue is long
    play.answer(Waiting(30.0, "llm waits for quota in ClusterQueue gpus", queued=True))
    assert play.run.step("verify:PyTorchJob/research/llm").state is StepState.RUNNING
    play.tick(30)
    play.answer(Waiting(3.0, "0 of 4 pods are ready"))
    assert not play.run.outcome
    play.tick(3)
    play.answer(Waiting(100.0, "3 of 4 pods are ready"))
    assert play.run.outcome == "escalated"
    assert "not done within 60 s: 3 of 4 pods are ready" in play.run.reason


def test_a_week_in_a_queue_is_too_long() -> None:
    more = (
        "  - {id: resume, action: resume_job, target: jobs, needs: [drain]}\n"
        "  - {id: verify, action: verify_job, target: jobs, needs: [resume], deadline_s: 60, on_failure: escalate}\n"
    )
    play = begun(book("undo: true", "undo: true", more=more))
    play.play(until="verify_job")
    play.answer(Waiting(30.0, "llm waits for quota in ClusterQueue gpus", queued=True))
    play.tick(8 * 86400)
    assert play.run.outcome == "escalated"
    assert "waits for quota" in play.run.reason


def test_a_job_without_progress_escalates_when_the_runbook_says_so() -> None:
    more = (
        "  - {id: resume, action: resume_job, target: jobs, needs: [drain]}\n"
        "  - {id: go, action: await_progress, target: jobs, needs: [resume], deadline_s: 60, on_failure: escalate}\n"
    )
    play = begun(book("undo: true", "undo: true", more=more))
    play.progress()
    play.play()
    play.tick(61)
    assert play.run.outcome == "escalated"


def test_a_job_that_reports_its_progress_itself_is_waited_for_until_its_reports_move_on() -> None:
    more = (
        "  - {id: resume, action: resume_job, target: jobs, needs: [drain]}\n"
        "  - {id: go, action: await_progress, target: jobs, needs: [resume], deadline_s: 600, on_failure: escalate}\n"
    )
    play = begun(book(more=more))

    def reported(ago_s: float, percent: int) -> None:
        told_at = at(-3600 + ago_s)  # by a clock that is an hour slow
        fact = play.view.jobs[JOB.key]
        play.view.put(replace(fact, progress_at=told_at, progress_percent=percent))

    reported(0, 42)
    play.play()
    play.tick(120)
    record = next(record for record in play.run.steps if record.reports)
    assert record.state is StepState.RUNNING, "one that reports is not taken for one that never does"
    reported(130, 40)
    play.tick(15)
    assert play.run.step(record.id).state is StepState.RUNNING, "it may have reported before its first step"
    play.run = decode(Run, encode(play.run))
    reported(145, 40)
    play.tick(15)
    assert play.run.step(record.id).state is StepState.DONE
    assert "as it reports itself (40 %)" in play.run.step(record.id).reason


# ── compensation ────────────────────────────────────────────────────────────────────────────────────────────────────


def compensating() -> Play:
    play = begun(book(f"undo: true, {BACK}", "undo: true", "on_failure: undo"))
    play.play(until="drain_node")
    play.answer(Refused("no"))
    play.answer(Done())
    return play


def test_a_step_is_taken_back_by_the_action_that_compensates_it_under_a_key_of_its_own() -> None:
    play = compensating()
    (call,) = play.air
    assert (call.kind, call.effect.action) == ("compensate", "uncordon_node")
    cordon = play.run.step("cordon").effect
    assert cordon is not None
    assert call.effect.key != cordon.key
    play.answer(Done())
    assert play.stands() is RunState.FAILED
    assert play.made[-2:] == ["undo suspend_job", "back by uncordon_node"]


@pytest.mark.parametrize(("found", "sent_again"), [(AlreadyDone(), False), (Absent(), True)])
def test_a_compensation_whose_answer_was_lost_is_looked_up_and_made_once(
    found: object, sent_again: bool
) -> None:
    play = compensating()
    first = play.answer(Unknown("timeout"))
    play.tick(1)
    assert [call.kind for call in play.air] == ["compensate_lookup"]
    play.answer(found)  # type: ignore[arg-type]
    assert [call.kind for call in play.air] == (["compensate"] if sent_again else [])
    assert all(call.effect.key == first.effect.key for call in play.air)


def test_a_compensation_in_the_air_is_looked_up_by_a_successor() -> None:
    play = compensating()
    play.air.clear()
    play.take(recover(decode(Run, encode(play.run)), play.now))
    play.tick(5)
    assert play.air == []
    play.tick(18)
    assert [(call.kind, call.effect.action) for call in play.air] == [("compensate_lookup", "uncordon_node")]


def test_a_persons_change_stands_against_a_compensation() -> None:
    play = compensating()
    play.answer(Blocked.person("a person keeps the node closed"))
    undo = play.run.step("cordon").undo
    assert undo is not None
    assert undo.state is EffectState.REFUSED
    assert not play.run.has_work


def test_an_undo_that_cannot_be_told_of_is_looked_up_on_and_not_sent_again() -> None:
    for answer in (Retry(1.0, "429"), Refused("403"), Blocked("x", "y"), Unknown("z")):
        play = begun(book("undo: true"))
        play.play(until="suspend_job")
        revise(play, state=IncidentState.RESOLVED)
        play.answer(Refused("no"))
        play.answer(Unknown("timeout"))
        for _ in range(4):
            play.tick(90)
            assert [call.kind for call in play.air] == ["undo_lookup"]
            play.answer(answer)


# ── jobs that need no moving, questions, and incidents that cannot be read ──────────────────────────────────────────


def test_a_job_that_ended_well_before_it_was_stopped_is_skipped_with_all_that_follows() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="suspend_job")
    play.answer(Refused("research/llm has ended: Succeeded", moot=True))
    play.play()
    assert play.stands() is RunState.SUCCEEDED
    assert play.made == ["cordon_node", "drain_node"]
    for step in ("suspend", "resume", "verify", "progress"):
        assert play.state(step) is StepState.SKIPPED


def test_a_job_that_inventory_knows_to_be_over_is_not_asked_to_stop() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.tick()
    play.view.put(replace(play.view.jobs[JOB.key], finished=True))
    play.play()
    assert "suspend_job" not in play.made
    assert play.stands() is RunState.SUCCEEDED


def test_a_job_that_failed_is_no_job_that_needs_nothing() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="suspend_job")
    play.answer(Refused("research/llm has ended: Failed"))
    assert play.run.outcome == "failed"


def test_a_job_that_ends_well_while_it_is_watched_has_recovered() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.progress()
    play.play()
    assert play.stands() is RunState.VERIFYING
    play.view.put(replace(play.view.jobs[JOB.key], finished=True))
    play.tick()
    assert play.stands() is RunState.SUCCEEDED


def test_a_question_that_a_person_took_does_not_resolve_the_incident() -> None:
    play = Play(incident("hang", Entity(CLUSTER, job=JOB)))
    play.tick()
    play.answer(Done({"ticket": "GPU-1"}))
    decide(play, Verb.APPROVE)
    assert play.stands() is RunState.SUCCEEDED
    assert play.run.outcome == "handed_over"
    assert play.reports[-1] == "run.finished:handed_over"


def unreadable(play: Play) -> PartitionState:
    """A successor that finds the run but not its incident."""
    run = decode(Run, encode(play.run))
    board = PartitionState(LIBRARY, AUTO, TICKETLESS, {run.id: run})
    facts: list[Fact] = list(cluster().nodes.values())
    for fact in facts:
        board.take_fact(fact.key, fact)
    list(board.recovering(play.now))
    return board


def test_a_run_whose_incident_cannot_be_read_says_so_gives_its_job_back_and_ends() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="drain_node")
    board = unreadable(play)
    board.advance(at(25))
    changes = board.collect()
    assert [entry.event for entry in changes.timeline if entry.event == "run.blind"] == ["run.blind"]
    assert [call.kind for call in changes.calls] == ["lookup"]
    board.take_outcome(changes.calls[0], Absent(), at(26))
    board.advance(at(27))
    assert board.collect().calls == (), "nothing new is begun without knowing why"
    due = board.due_at()
    assert due is not None
    board.advance(at(400))
    (call,) = board.collect().calls
    assert (call.kind, call.effect.action) == ("undo", "suspend_job")
    board.take_outcome(call, Done(), at(400))
    board.advance(at(401))
    (run,) = board.runs.values()
    assert (run.outcome, run.has_work) == ("failed", False)
    assert "could not be read" in run.reason


def test_a_run_goes_on_when_its_incident_can_be_read_again() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="suspend_job")
    board = unreadable(play)
    board.advance(at(1))
    board.take_incident(incident())
    board.advance(at(60))
    assert [call.kind for call in board.collect().calls] == ["lookup"]
    assert next(iter(board.runs.values())).blind_since is None


# ── a run keeps to the runbook it was begun with ────────────────────────────────────────────────────────────────────


def test_a_new_revision_of_the_runbook_changes_nothing_about_a_run_already_begun() -> None:
    def board(one: Runbook, runs: dict[str, Run] | None = None) -> PartitionState:
        made = PartitionState((one, NEXT), AUTO, TICKETLESS, runs)
        view = cluster()
        facts: list[Fact] = [*view.nodes.values(), *view.pods.values(), *view.jobs.values()]
        for fact in facts:
            made.take_fact(fact.key, fact)
        return made

    first = board(book(drain="deadline_s: 100"))
    first.take_incident(incident())
    first.advance(NOW)
    runs = {key: decode(Run, encode(run)) for key, run in first.runs.items()}
    (before,) = runs.values()
    second = board(book(drain="deadline_s: 7, on_failure: continue", revision=2), runs)
    list(second.recovering(at(60)))
    second.take_incident(replace(incident(), revision=2, jobs=()))
    second.advance(at(61))
    assert second.runs[before.id].plan == before.plan
    assert len(second.runs) == 1


def test_whoever_lets_a_node_be_closed_has_not_taken_what_is_asked_afterwards() -> None:
    one = load_text(
        "id: ours\nrevision: 1\nowner: x\nmode: approve\npriority: 900\ndescription: closes, then asks\n"
        "match: incident.family == 'gpu_off_bus'\nsteps:\n"
        "  - {id: cordon, action: cordon_node, target: root_node}\n"
        "  - {id: ask, action: ask, target: incident, needs: [cordon], describe: replace the GPU}\n",
        "ours.yaml",
    )
    play = Play(incident(jobs=()), actions=TICKETLESS, library=(one,))
    play.tick()
    decide(play, Verb.APPROVE)
    play.play()
    assert (play.state("cordon"), play.state("ask")) == (StepState.DONE, StepState.AWAITING_APPROVAL)
    decide(play, Verb.APPROVE, id="cmd-2")
    assert (play.state("ask"), play.run.state) == (StepState.DONE, RunState.SUCCEEDED)


@pytest.mark.parametrize("stuck", ["drain_node", "suspend_job", "resume_job"])
def test_a_call_of_which_nobody_can_ever_tell_keeps_no_job_suspended_for_ever(stuck: str) -> None:
    """Its connector is not set up any more, or may not look: the step is given up long after its deadline."""
    play = Play(incident(), actions=TICKETLESS)
    play.play(until=stuck)
    play.answer(Unknown("nothing here knows it any more", 30.0), stuck)
    for _ in range(100):
        play.tick(31)
        for call in list(play.air):
            play.answer(Unknown("still nothing", 30.0) if call.kind == "lookup" else Done())
    given_back = "resume_job" if stuck == "drain_node" else "undo suspend_job"
    assert play.made.count(given_back) == 1
    assert "undo cordon_node" not in play.made
    assert play.run.state.is_over or play.state("progress") is StepState.RUNNING
