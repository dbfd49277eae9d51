"""A job that lives and says how is asked for a checkpoint before it is stopped; nothing waits for one that cannot answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from connectors.base import Refused, Waiting
from runbooks.engine.run.outcomes import recover
from streams.config.settings import ResponderSettings
from streams.inventory.cluster_view import ClusterView
from streams.model.checkpoint import Checkpoint
from streams.model.clock import rfc3339
from streams.model.codec import decode, encode
from streams.model.entity import Entity, JobRef, PodRef
from streams.model.incident import Incident, Progress, Proof
from streams.model.run import Mode, Run, RunState, StepState
from tests.runbooks.scenes import ACTIONS, CLUSTER, JOB, OTHER_JOB, Play, at, cluster, incident

TICKETLESS = (ACTIONS - {"open_ticket"}) | {"request_checkpoint"}
WAITS = Waiting(5.0, "asked by annotation, and no newer checkpoint yet")


def declaring(said: str | None = "annotation", within_s: float = 120.0, **changes: object) -> ClusterView:
    view = cluster()
    fact = replace(view.jobs[JOB.key], checkpoint_by=said, checkpoint_within_s=within_s)
    view.put(replace(fact, **changes))  # type: ignore[arg-type]
    return view


def alive(**changes: object) -> Incident:
    """A job that has gone on since the fault."""
    return replace(incident(), progress=(Progress(JOB, at(1), 48213),), **changes)  # type: ignore[arg-type]


def asked(about: Incident | None = None, view: ClusterView | None = None) -> Play:
    """A run whose job was asked, and has not answered yet."""
    play = Play(about or alive(), actions=TICKETLESS, view=view or declaring())
    play.play(until="request_checkpoint")
    play.answer(WAITS, "request_checkpoint")
    return play


def saves(play: Play, seconds: float, step: int = 48250, job: JobRef = JOB) -> None:
    saved = Checkpoint(job, at(seconds), at(seconds), step)
    play.about = replace(play.about, revision=play.about.revision + 1, checkpoints=(saved,))


def test_it_is_asked_after_its_node_is_closed_and_stopped_once_it_has_saved() -> None:
    play = asked()
    assert play.made == ["cordon_node"]
    assert play.state("suspend") is StepState.PENDING
    saves(play, 20)
    play.tick(21)
    assert play.state("checkpoint") is StepState.DONE
    assert any("has saved a checkpoint of step 48,250" in note for note in play.notes)
    play.play()
    assert play.made == ["cordon_node", "suspend_job", "drain_node", "resume_job", "verify_job"]


def test_one_from_before_it_was_asked_is_no_answer() -> None:
    play = asked(alive(checkpoints=(Checkpoint(JOB, at(-300), at(-300)),)))
    play.tick(2)
    saves(play, -1)
    play.tick(1)
    assert play.state("checkpoint") is StepState.RUNNING
    saves(play, 2, job=OTHER_JOB)
    play.tick(1)
    assert play.state("checkpoint") is StepState.RUNNING, "another job's is none either"


def test_no_answer_holds_the_move_up_until_the_deadline_and_no_longer() -> None:
    play = asked(view=declaring(within_s=60))
    play.tick(59)
    if play.air:
        play.answer(WAITS, "request_checkpoint")
    assert play.state("suspend") is StepState.PENDING
    play.tick(1)
    assert play.state("checkpoint") is StepState.FAILED
    assert any("no answer within 60 s" in note for note in play.notes)
    play.play()
    assert "resume_job" in play.made
    play.now = at(400)
    play.progress()
    play.tick()
    assert play.stands() is RunState.SUCCEEDED


def test_that_it_cannot_be_asked_stops_nothing() -> None:
    play = Play(alive(), actions=TICKETLESS, view=declaring())
    play.play(until="request_checkpoint")
    play.answer(Refused("not permitted"), "request_checkpoint")
    assert play.state("checkpoint") is StepState.FAILED
    play.play()
    assert "suspend_job" in play.made


def test_a_job_that_declares_nothing_has_no_such_step() -> None:
    play = Play(alive(), actions=TICKETLESS)
    assert not [step for step in play.run.plan.steps if step.action == "request_checkpoint"]
    (suspend,) = [step for step in play.run.plan.steps if step.action == "suspend_job"]
    assert suspend.needs == ("cordon",)


def test_a_job_that_declares_nothing_does_not_wait_for_one_that_is_asked() -> None:
    about = alive(jobs=(JOB, OTHER_JOB))
    play = Play(about, actions=TICKETLESS, view=declaring())
    needs = {step.id: step.needs for step in play.run.plan.steps}
    assert needs[f"suspend:{JOB.key}"] == (f"checkpoint:{JOB.key}", "cordon")
    assert needs[f"suspend:{OTHER_JOB.key}"] == ("cordon",)


def test_what_it_declares_is_in_the_plan() -> None:
    play = Play(alive(), actions=TICKETLESS, view=declaring("http:8080/save", within_s=45))
    (step,) = [step for step in play.run.plan.steps if step.action == "request_checkpoint"]
    assert step.deadline_s == 45
    assert step.describe.endswith("by http:8080/save, for at most 45 s")


def test_who_reads_the_plan_sees_that_the_time_a_job_declares_cannot_be_read() -> None:
    play = Play(alive(), actions=TICKETLESS, view=declaring(checkpoint_within_unreadable="soon"))
    (step,) = [one for one in play.run.plan.steps if one.action == "request_checkpoint"]
    assert step.describe.endswith(
        "for at most 120 s; its faultline.dev/checkpoint-within-s is no number from 1 to 3600: soon"
    )
    assert not step.destructive


def proof(kind: str, seconds: float, pod: str | None = None) -> Proof:
    place = Entity(CLUSTER, pod=PodRef(JOB.namespace, pod) if pod else None)
    return Proof(f"{kind}-{seconds}", kind, place, at(seconds), "symptom", "")


@pytest.mark.parametrize(
    ("about", "why"),
    [
        (incident(), "has made no progress since the fault"),
        (incident(progress=(Progress(JOB, at(-1), 1),)), "has made no progress since the fault"),
        (incident("gpu_memory", proofs=(proof("nccl.timeout", 5),)), "it hangs or has died (nccl.timeout"),
        (alive(proofs=(proof("job.failed", 5, f"{JOB.name}-1"),)), "it hangs or has died (job.failed"),
    ],
    ids=["off the bus", "silent since", "its ranks wait", "died after a last step"],
)
def test_a_dead_or_hung_job_is_not_waited_for(about: Incident, why: str) -> None:
    play = Play(about, actions=TICKETLESS, view=declaring())
    play.play()
    assert play.state("checkpoint") is StepState.SKIPPED
    (record,) = (r for r in play.run.steps if r.id.startswith("checkpoint"))
    assert why in record.reason
    assert "request_checkpoint" not in play.made
    assert "suspend_job" in play.made


@pytest.mark.parametrize(
    "about",
    [
        incident("gpu_memory"),
        alive(proofs=(proof("nccl.timeout", -50),)),
        alive(proofs=(proof("job.failed", 5, "of-another-job"),)),
    ],
    ids=["a fault that jobs go on after", "waited and went on", "a pod of another job"],
)
def test_a_job_that_may_live_is_asked(about: Incident) -> None:
    play = Play(about, actions=TICKETLESS, view=declaring())
    play.play(until="request_checkpoint")
    assert [call.effect.action for call in play.air] == ["request_checkpoint"]


@pytest.mark.parametrize(
    ("view", "why"),
    [
        (declaring("ftp:21"), "cannot be read: ftp:21: it gets SIGTERM"),
        (declaring(heals_within_s=300.0, lever="suspend"), "left to its own controller"),
        (declaring(suspended=True), "it is suspended"),
    ],
)
def test_why_else_it_is_not_asked(view: ClusterView, why: str) -> None:
    play = Play(alive(), actions=TICKETLESS, view=view)
    play.play()
    (record,) = (r for r in play.run.steps if r.id.startswith("checkpoint"))
    assert record.state is StepState.SKIPPED
    assert why in record.reason


def notice(left_s: float) -> Incident:
    facts = {"deadline": rfc3339(at(left_s)), "deadline_s": left_s, "notice_s": left_s, "node_ends": "gone"}
    return incident("preemption", facts=facts)


def test_on_a_node_that_goes_it_has_what_is_left_before_it_must_be_stopped() -> None:
    """A job is given 180 s to stop: of 220 s it is waited for 40, though it says that it saves within 120."""
    play = asked(notice(220))
    (record,) = (r for r in play.run.steps if r.id.startswith("checkpoint"))
    assert record.deadline_at == at(40)
    play.tick(40)
    assert play.state("checkpoint") is StepState.FAILED
    assert any(call.effect.action == "suspend_job" for call in play.air)


def test_on_a_node_that_goes_too_soon_it_is_not_asked() -> None:
    play = Play(notice(182), actions=TICKETLESS, view=declaring())
    play.play(until="suspend_job")
    (record,) = (r for r in play.run.steps if r.id.startswith("checkpoint"))
    assert record.state is StepState.SKIPPED
    assert "node-03 goes" in record.reason
    assert "stop_s" in record.reason


def test_after_a_crash_it_is_looked_up_and_the_time_does_not_start_anew() -> None:
    play = Play(alive(), actions=TICKETLESS, view=declaring(within_s=60))
    play.play(until="request_checkpoint")
    play.air.clear()
    play.run = decode(Run, encode(play.run))
    play.now = at(30)
    play.take(recover(play.run, play.now))
    play.tick(31)
    assert [(call.kind, call.effect.action) for call in play.air] == [("lookup", "request_checkpoint")]
    play.answer(WAITS, "request_checkpoint")
    assert play.state("checkpoint") is StepState.FAILED, "its time was over meanwhile"
    assert any("no answer within 60 s" in note for note in play.notes)
    play.play()
    assert "suspend_job" in play.made


def test_in_shadow_it_would_be_asked() -> None:
    settings = ResponderSettings(mode=Mode.SHADOW)
    play = Play(alive(), settings=settings, actions=TICKETLESS, view=declaring())
    play.tick()
    (record,) = (r for r in play.run.steps if r.id.startswith("checkpoint"))
    assert (record.state, record.verdict) == (StepState.WOULD, "would")


def test_evidence_is_collected_beside_it_where_that_is_set_up_and_holds_nothing_up_for_long() -> None:
    actions = TICKETLESS | {"collect_evidence"}
    play = Play(alive(), actions=actions, view=declaring())
    needs = {step.id.partition(":")[0]: step.needs for step in play.run.plan.steps}
    assert needs["evidence"] == ("cordon",)
    assert "evidence" in needs["suspend"]
    (step,) = [step for step in play.run.plan.steps if step.action == "collect_evidence"]
    assert step.params == {"pods": f"{JOB.namespace}/{JOB.name}-1"}
    play.play(until="collect_evidence")
    assert {call.effect.action for call in play.air} == {"collect_evidence", "request_checkpoint"}
    play.answer(Refused("not permitted"), "collect_evidence")
    play.play()
    assert "suspend_job" in play.made


def test_without_hooks_there_is_no_such_step_and_on_a_node_that_goes_nothing_is_collected() -> None:
    assert "collect_evidence" not in {s.action for s in Play(alive(), actions=TICKETLESS).run.plan.steps}
    play = Play(notice(900), actions=TICKETLESS | {"collect_evidence"})
    play.play(until="suspend_job")
    assert play.state("evidence") is StepState.SKIPPED
