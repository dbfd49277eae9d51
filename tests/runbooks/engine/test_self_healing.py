"""A job that its own controller heals is left alone and watched; it is moved, or its owner told, only when that fails."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runbooks.engine.job_condition import JobCondition, condition_of, has_healed
from runbooks.engine.run.outcomes import recover
from streams.config.settings import ResponderSettings
from streams.inventory.cluster_view import ClusterView
from streams.model.codec import decode, encode
from streams.model.facts import PodFact
from streams.model.kinds import WorkloadClass
from streams.model.run import Mode, Run, RunState, StepState
from tests.runbooks.engine.test_run import revise
from tests.runbooks.scenes import ACTIONS, CLUSTER, JOB, NOW, OTHER_JOB, Play, at, cluster, incident

TICKETLESS = ACTIONS - {"open_ticket"}
HEALS_S = 300.0
NO_LEVER = "its own operator restarts it"


def healing(*, lever: bool = True, **changes: object) -> ClusterView:
    view = cluster()
    job = replace(view.jobs[JOB.key], heals_within_s=HEALS_S, pods=4, **changes)  # type: ignore[arg-type]
    view.put(replace(job, lever="suspend") if lever else replace(job, immovable=NO_LEVER))
    return view


def replaced(view: ClusterView, *, seconds: float, ready: bool = True, node: str = "node-09") -> None:
    """Its controller has put the pod of the bad node elsewhere; the other pods are ready."""
    for pod in list(view.pods_of(JOB.key)):
        if pod.node == "node-03":
            view.forget(pod.key)
        else:
            view.put(replace(pod, ready=True))
    view.put(
        PodFact(
            CLUSTER, JOB.namespace, "llm-new", "u-new", at(seconds), node=node, job=JOB,
            ready=ready, scheduled_at=at(seconds),
        )
    )  # fmt: skip


def test_it_is_told_apart_and_counts_as_healed_only_when_all_of_it_is_ready_elsewhere() -> None:
    view = healing()
    assert condition_of(JOB.key, view, NOW, "node-03") is JobCondition.HEALS
    assert not has_healed(JOB.key, view, NOW, "node-03")
    replaced(view, seconds=60, ready=False)
    assert not has_healed(JOB.key, view, NOW, "node-03")
    replaced(view, seconds=60)
    assert has_healed(JOB.key, view, NOW, "node-03")
    replaced(view, seconds=60, node="node-03")
    assert not has_healed(JOB.key, view, NOW, "node-03")
    assert not has_healed(JOB.key, healing(), NOW, None), "nothing was made since the fault"


def test_a_job_that_heals_in_time_is_never_touched_and_then_verified() -> None:
    play = Play(incident(), actions=TICKETLESS, view=healing())
    play.play()
    assert play.made == ["cordon_node"]
    assert play.state("suspend") is StepState.BLOCKED
    (waits,) = (r for r in play.run.steps if r.id.startswith("suspend"))
    assert waits.due_at == at(HEALS_S)
    assert "it is suspended and started elsewhere" in waits.reason
    replaced(play.view, seconds=60)
    play.tick(60)
    play.play()
    assert play.made == ["cordon_node", "drain_node", "verify_job"]
    assert play.state("suspend") is play.state("resume") is StepState.SKIPPED
    (skipped,) = (r for r in play.run.steps if r.id.startswith("suspend"))
    assert "its own controller has replaced" in skipped.reason
    play.now = at(600)
    play.progress()
    play.tick()
    assert play.stands() is RunState.SUCCEEDED


def test_a_job_that_does_not_heal_in_time_is_moved_also_after_a_crash_in_between() -> None:
    play = Play(incident(), actions=TICKETLESS, view=healing())
    play.play()
    play.tick(HEALS_S - 1)
    assert play.state("suspend") is StepState.BLOCKED
    play.run = decode(Run, encode(play.run))
    play.take(recover(play.run, play.now))
    play.tick()
    assert play.state("suspend") is StepState.BLOCKED, "the time does not start anew"
    play.tick(1)
    play.play()
    assert play.made == ["cordon_node", "suspend_job", "drain_node", "resume_job", "verify_job"]


def test_the_owner_of_one_that_does_not_heal_and_has_no_lever_is_told_and_nothing_is_promised() -> None:
    play = Play(incident(), actions=TICKETLESS, view=healing(lever=False))
    play.play()
    assert any("its owner is told" in note and NO_LEVER in note for note in play.notes)
    (planned,) = (p for p in play.run.plan.steps if p.action == "suspend_job")
    assert planned.describe.endswith(f"for 300 s first; cannot be suspended after that: {NO_LEVER}")
    play.tick(HEALS_S)
    play.play()
    assert "suspend_job" not in play.made
    assert play.stands() is RunState.SUCCEEDED
    (record,) = (r for r in play.run.steps if r.id.startswith("suspend"))
    for part in ("has not replaced what it lost within 300 s", NO_LEVER, "node-03 is cordoned"):
        assert part in record.reason
    assert {play.state(step) for step in ("resume", "verify", "progress")} == {StepState.SKIPPED}


def test_another_job_that_is_stopped_is_not_kept_waiting_for_it() -> None:
    play = Play(incident(jobs=(JOB, OTHER_JOB)), actions=TICKETLESS, view=healing())
    play.play()
    assert "resume_job" in play.made
    by_job = {r.id: r for r in play.run.steps}
    assert by_job[f"suspend:{JOB.key}"].state is StepState.SKIPPED
    assert "cannot wait for it" in by_job[f"suspend:{JOB.key}"].reason
    assert by_job[f"suspend:{OTHER_JOB.key}"].state is StepState.DONE


@pytest.mark.parametrize(
    ("lever", "then"), [(True, "it would be suspended"), (False, "its owner would be told")]
)
def test_a_shadow_plan_does_not_say_would_for_it(lever: bool, then: str) -> None:
    settings = ResponderSettings(mode=Mode.SHADOW)
    play = Play(incident(), settings=settings, actions=TICKETLESS, view=healing(lever=lever))
    play.tick()
    (record,) = (r for r in play.run.steps if r.id.startswith("suspend"))
    assert (record.state, record.verdict) == (StepState.SKIPPED, "")
    assert "within 300 s" in record.reason
    assert then in record.reason
    assert play.state("resume") is StepState.SKIPPED


@pytest.mark.parametrize(
    ("left", "costs", "asked"),
    [
        (3, 1, ""),
        (1, 1, "no retry left after this move"),
        (0, 1, "that ends it"),
        (0, None, ""),
        (None, 1, ""),
    ],
)
def test_a_move_that_takes_the_last_retry_is_asked_about(
    left: int | None, costs: int | None, asked: str
) -> None:
    view = cluster()
    view.put(replace(view.jobs[JOB.key], retries_left=left, costs_retries=costs, cost="one of its restarts"))
    play = Play(incident(), actions=TICKETLESS, view=view)
    play.play(until="suspend_job")
    (record,) = (r for r in play.run.steps if r.id.startswith("suspend"))
    (planned,) = (s for s in play.run.plan.steps if s.id.startswith("suspend"))
    assert "one of its restarts" in planned.describe
    assert (record.state is StepState.AWAITING_APPROVAL) == bool(asked)
    assert asked in record.reason


def test_a_bare_pod_is_never_evicted_silently_but_told_to_its_owner() -> None:
    view = cluster()
    view.put(PodFact(CLUSTER, "lab", "probe", "u-9", NOW, node="node-03", gpus=1))
    view.put(
        PodFact(
            CLUSTER, "kube-system", "dcgm", "u-8", NOW, node="node-03", gpus=1, workload=WorkloadClass.SYSTEM
        )
    )
    play = Play(incident(), actions=TICKETLESS, view=view)
    play.play()
    told = [note for note in play.notes if "lab/probe" in note]
    assert any("no controller would make it anew" in note and "node-03 is cordoned" in note for note in told)
    assert not any("dcgm" in note for note in play.notes)


def test_neither_a_bare_pod_nor_what_a_move_costs_voids_an_approval() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="cordon_node")
    approved = play.run.plan.digest
    play.view.put(PodFact(CLUSTER, "lab", "probe", "u-9", NOW, node="node-03", gpus=1))
    play.view.put(replace(play.view.jobs[JOB.key], heals_within_s=60.0, cost="one of its restarts"))
    revise(play, reason="its owner has changed it")
    assert play.run.plan.digest == approved


def test_a_job_of_a_kind_that_may_not_be_watched_here_is_no_promise() -> None:
    view = cluster()
    lws = replace(JOB, kind="JobSet", name="moe")
    view.put(PodFact(CLUSTER, lws.namespace, "moe-0", "u-7", NOW, node="node-03", job=lws))
    assert condition_of(lws.key, view) is JobCondition.FIXED
    play = Play(incident(jobs=(lws,)), actions=TICKETLESS, view=view)
    play.play()
    assert "suspend_job" not in play.made
    assert any("apply k8s/components/jobs-jobset" in note for note in play.notes)


def test_a_job_that_turns_out_to_be_immovable_is_skipped_and_its_owner_told() -> None:
    play = Play(incident(), actions=TICKETLESS)
    play.play(until="cordon_node")
    play.view.put(replace(play.view.jobs[JOB.key], immovable="its spec.managedBy is another cluster"))
    play.play()
    assert play.made == ["cordon_node", "drain_node"]
    assert play.stands() is RunState.SUCCEEDED
    assert any("spec.managedBy is another cluster" in note for note in play.notes)
