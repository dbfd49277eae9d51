"""What is done for a job is chosen by how the job stands, not by the fault: moved, left alone, or told to its owner."""

from __future__ import annotations

from dataclasses import replace

import pytest

from connectors.base import Done, Refused
from runbooks.engine.job_condition import JobCondition, condition_of
from runbooks.engine.run.outcomes import recover
from streams.model.codec import decode, encode
from streams.model.facts import PodFact
from streams.model.kinds import WorkloadClass
from streams.model.run import Run, RunState, StepState
from tests.runbooks.engine.test_run import revise
from tests.runbooks.scenes import ACTIONS, CLUSTER, JOB, NOW, OTHER_JOB, Play, at, cluster, incident

TICKETLESS = ACTIONS - {"open_ticket"}
ALL_ON_A_JOB = ("suspend", "resume", "verify", "progress")


def fact(play: Play, **changes: object) -> None:
    play.view.put(replace(play.view.jobs[JOB.key], **changes))  # type: ignore[arg-type]


def restart(play: Play, *nodes: str, minutes: float = 2) -> None:
    """The job's own controller has replaced all its pods."""
    for pod in list(play.view.pods_of(JOB.key)):
        play.view.forget(pod.key)
    for rank, node in enumerate(nodes):
        name = f"again-{rank}"
        when = at(minutes * 60)
        play.view.put(
            PodFact(CLUSTER, JOB.namespace, name, f"u-{name}", when, node=node, job=JOB, scheduled_at=when)
        )


def test_a_job_is_told_apart_by_how_the_inventory_shows_it() -> None:
    play = Play(incident())
    node = "node-03"
    assert condition_of(JOB.key, play.view, NOW, node) is JobCondition.STANDS
    assert condition_of("PyTorchJob/research/unheard-of", play.view, NOW, node) is JobCondition.STANDS
    assert condition_of("FlinkDeployment/research/tune", play.view, NOW, node) is JobCondition.FIXED
    assert condition_of("StatefulSet/serving/chat", play.view, NOW, node) is JobCondition.NOT_OURS
    fact(play, workload=WorkloadClass.NOTEBOOK)
    assert condition_of(JOB.key, play.view, NOW, node) is JobCondition.NOT_OURS
    fact(play, workload=WorkloadClass.TRAINING, finished=True)
    assert condition_of(JOB.key, play.view, NOW, node) is JobCondition.COMPLETED
    fact(play, failed=True)
    assert condition_of(JOB.key, play.view, NOW, node) is JobCondition.DIED
    assert condition_of(JOB.key, play.view, NOW, node, "another-uid") is JobCondition.RESTARTED


@pytest.mark.parametrize(
    ("nodes", "minutes", "found"),
    [
        (("node-07", "node-08"), 2, JobCondition.RESTARTED),
        (("node-07", "node-03"), 2, JobCondition.STANDS),  # on the bad node again
        (("node-07", "node-08"), -2, JobCondition.STANDS),  # from before the fault
        ((), 2, JobCondition.STANDS),  # no pod yet: a suspend is what makes its controller start anew
    ],
)
def test_a_restart_counts_only_after_the_fault_and_off_the_bad_node(
    nodes: tuple[str, ...], minutes: float, found: JobCondition
) -> None:
    play = Play(incident())
    restart(play, *nodes, minutes=minutes)
    assert condition_of(JOB.key, play.view, NOW, "node-03") is found
    assert condition_of(JOB.key, play.view) is JobCondition.STANDS


def test_a_job_that_died_before_the_plan_is_no_step_that_fails_the_run() -> None:
    view = cluster()
    view.put(replace(view.jobs[JOB.key], finished=True, failed=True))
    play = Play(incident(), actions=TICKETLESS, view=view)
    assert [step.id for step in play.run.plan.steps if step.target and step.target.kind == JOB.kind] == [
        f"tell:{JOB.key}"
    ]
    play.play()
    assert play.stands() is RunState.SUCCEEDED
    assert play.made == ["cordon_node", "drain_node"]
    told = next(note for note in play.notes if "notify" in note)
    for part in (
        "has failed and cannot be suspended",
        "gpu_off_bus",
        "node-03 is cordoned",
        "create it again",
    ):
        assert part in told


def test_a_job_that_dies_while_its_node_is_cordoned_is_not_suspended_and_its_owner_told() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="cordon_node")
    fact(play, finished=True, failed=True)
    play.run = decode(Run, encode(play.run))
    play.take(recover(play.run, play.now))
    play.tick(120)
    play.play()
    assert "suspend_job" not in play.made
    assert play.stands() is RunState.SUCCEEDED
    assert {play.state(step) for step in ALL_ON_A_JOB} == {StepState.SKIPPED}
    assert any("suspend_job" in note and "node-03 is cordoned" in note for note in play.notes)


def test_a_job_that_the_api_server_knows_to_have_failed_is_skipped_too() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="suspend_job")
    play.answer(Refused("research/llm has ended: Failed", moot=True))
    play.play()
    assert play.stands() is RunState.SUCCEEDED
    assert {play.state(step) for step in ALL_ON_A_JOB} == {StepState.SKIPPED}


def test_a_job_that_its_own_controller_has_restarted_is_only_watched() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.progress(step=1)
    play.play(until="cordon_node")
    restart(play, "node-07", "node-08")
    play.play()
    assert play.made == ["cordon_node", "drain_node", "verify_job"]
    assert play.state("suspend") is play.state("resume") is StepState.SKIPPED
    assert play.stands() is RunState.VERIFYING
    play.now = at(300)
    play.progress()
    play.tick()
    assert play.stands() is RunState.SUCCEEDED


def test_a_job_created_anew_by_its_owner_is_left_alone() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="cordon_node")
    play.view.put(replace(play.view.jobs[JOB.key], job=replace(JOB, uid="uid-of-tomorrow")))
    play.play()
    assert play.made == ["cordon_node", "drain_node"]
    assert play.stands() is RunState.SUCCEEDED


def test_a_job_that_fails_after_its_restart_is_not_waited_for() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.progress()
    play.play()
    assert play.stands() is RunState.VERIFYING
    fact(play, finished=True, failed=True)
    play.tick(1)
    assert play.run.outcome == "failed"
    assert "has failed" in play.run.reason


def test_each_job_of_an_incident_is_dealt_with_by_its_own_condition() -> None:
    view = cluster()
    view.put(replace(view.jobs[JOB.key], finished=True, failed=True))
    play = Play(incident(jobs=(JOB, OTHER_JOB)), actions=TICKETLESS, view=view)
    play.play(until="suspend_job")
    call = play.answer(Done())
    assert call.effect.target.name == OTHER_JOB.name


def test_a_job_that_dies_in_the_middle_of_an_approved_run_voids_no_approval() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="drain_node")
    approved = play.run.plan.digest
    fact(play, finished=True, failed=True)
    revise(play, reason="the job has died")
    assert play.run.plan.digest == approved


def test_a_job_that_has_been_moved_off_the_source_of_a_storm_is_no_victim_of_it() -> None:
    facts = {"direction": "sent", "both_ends": True}
    play = Play(incident("pfc_storm", facts=facts), actions=TICKETLESS)
    play.play(until="drain_node")
    planned = play.run.plan
    restart(play, "node-07", "node-08")
    revise(play, reason="its pods are elsewhere")
    assert play.run.plan == planned


def workers_on_the_bad_node(play: Play, *, of: str = "node-03") -> None:
    """What the job has on a node is replaced by its controller alone, as a worker of a Ray cluster is."""
    for pod in list(play.view.pods_of(JOB.key)):
        if pod.node == of:
            play.view.put(replace(pod, replaceable=True))


@pytest.mark.parametrize("immovable", [None, "shutdownAfterJobFinishes is false"])
def test_a_job_that_goes_on_without_what_is_on_the_bad_node_is_drained_there_and_never_stopped(
    immovable: str | None,
) -> None:
    view = cluster()
    lever = None if immovable else "suspend"
    view.put(replace(view.jobs[JOB.key], lever=lever, immovable=immovable, pods=4))
    play = Play(incident(), actions=TICKETLESS, view=view)
    workers_on_the_bad_node(play)
    assert condition_of(JOB.key, play.view, NOW, "node-03") is JobCondition.GOES_ON
    assert condition_of(JOB.key, play.view, NOW, "node-04") is not JobCondition.GOES_ON
    play = Play(incident(), actions=TICKETLESS, view=play.view)
    play.progress(step=1)
    play.play(until="drain_node")
    assert play.state("suspend") is StepState.SKIPPED
    told = next(note for note in play.notes if "suspend_job" in note)
    assert "is not stopped, and the drain evicts that" in told
    restart(play, "node-02", "node-04", "node-05", "node-07")
    play.play()
    assert play.made == ["cordon_node", "drain_node", "verify_job"]
    assert play.state("resume") is StepState.SKIPPED
    assert play.stands() is RunState.VERIFYING


def test_a_job_whose_head_is_on_the_bad_node_too_is_stopped() -> None:
    play = Play(incident(), actions=TICKETLESS)
    workers_on_the_bad_node(play)
    head = PodFact(CLUSTER, JOB.namespace, "llm-head", "u-head", NOW, node="node-03", job=JOB)
    play.view.put(head)
    assert condition_of(JOB.key, play.view, NOW, "node-03") is JobCondition.STANDS
    play.play()
    assert play.made[:2] == ["cordon_node", "suspend_job"]


def test_a_job_that_is_suspended_has_nothing_that_goes_on() -> None:
    play = Play(incident(), actions=TICKETLESS)
    workers_on_the_bad_node(play)
    fact(play, suspended=True)
    assert condition_of(JOB.key, play.view, NOW, "node-03") is JobCondition.STANDS
