"""Teams that share a cluster: a node is the platform's, a job is its team's, and the fleet's guardrails hold for all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from runbooks.engine.approvals import demands
from runbooks.engine.guardrails import judge
from runbooks.engine.guardrails.run_counts import RunCounts
from runbooks.engine.run.machine import begin
from runbooks.engine.run.other_teams import stops_no_resume
from runbooks.engine.run.plan import plan
from streams.config.settings import ResponderSettings
from streams.config.tenant_settings import Tenant, tenant_of
from streams.inventory.cluster_view import ClusterView
from streams.model.codec import decode, encode
from streams.model.conversation import Verb
from streams.model.entity import JobRef
from streams.model.facts import JobFact, PodFact
from streams.model.incident import Incident
from streams.model.run import Mode, PlannedStep, Run, RunState, StepRecord, StepState, Target
from tests.runbooks.engine.test_guardrails import closed
from tests.runbooks.engine.test_run import decide
from tests.runbooks.engine.test_spares import full
from tests.runbooks.scenes import (
    ACTIONS,
    AUTO,
    CLUSTER,
    JOB,
    NOW,
    OTHER_JOB,
    Play,
    at,
    cluster,
    incident,
    policy,
)

TICKETLESS = ACTIONS - {"open_ticket"}
OF_VISION = JobRef("PyTorchJob", "vision", "vit", "uid-vision")
GROUPS = {"platform": ("pat",), "ml": ("ada",), "vision": ("vera",)}


def team(**changes: Any) -> Tenant:
    return Tenant(**{"team": "ml", "namespaces": ("research",), **changes})


def settings(*rows: Tenant, **more: Any) -> ResponderSettings:
    return policy(tenants=rows, **more)


def played(
    *rows: Tenant,
    view: ClusterView | None = None,
    others: tuple[Run, ...] = (),
    about: Incident | None = None,
    until: str | None = None,
    actions: frozenset[str] = TICKETLESS,
    **more: Any,
) -> Play:
    """A run of the usual fault, planned with these teams, up to where it stands still."""
    wanted = settings(*rows, **more)
    play = Play(about or incident(), actions=actions, settings=wanted, view=view or cluster(), others=others)
    bound = plan(play.about, play.runbook, play.view, wanted.mode, actions, tenants=rows)
    play.take(begin(play.about, bound, play.now))
    play.play(until=until)
    return play


def record(play: Play, action: str) -> StepRecord:
    """What became of the step with an action."""
    return play.run.step(next(step.id for step in play.run.plan.steps if step.action == action))


def shared(namespace: str = "vision") -> ClusterView:
    """The node of the fault has a pod of another team's job as well."""
    return _beside(JobRef("Job", namespace, "serve", "uid-serve"))


@pytest.mark.parametrize(
    ("job", "whose"),
    [
        (("research", None, None), "ml"),
        (("research-2", None, None), ""),
        (("batch", "gpu-vision", None), "vision"),
        (("batch", "gpu-ml", None), ""),
        (("batch", None, "speech"), "speech"),
        (("batch", None, None), ""),
        (("research", "gpu-vision", "speech"), "ml"),
    ],
)
def test_a_job_is_of_the_first_row_that_fits_it(job: tuple[str, str | None, str | None], whose: str) -> None:
    rows = (
        team(),
        team(team="vision", namespaces=("b*",), queues=("*-vision",)),
        team(team="speech", namespaces=(), marks=("speech",)),
    )
    found = tenant_of(rows, *job)
    assert (found.team if found else "") == whose


@pytest.mark.parametrize(
    "rows",
    [
        [{"team": "ml"}],
        [{"team": "ml", "namespaces": ["a"]}, {"team": "ml", "namespaces": ["b"]}],
        [{"team": "ml", "namespaces": ["a"], "approvers": "nobody"}],
        [{"team": "ml", "namespaces": ["a"], "stage": "canary"}],
        [{"team": "ml", "namespaces": ["a"], "canary_jobs": ["a/*"]}],
        [{"team": "ml", "namespaces": ["a"], "stage": "soon"}],
        [{"team": "ml", "namespaces": ["a"], "moves_per_h": -1}],
    ],
    ids=[
        "fits nothing",
        "twice",
        "unknown group",
        "no canaries",
        "unused canaries",
        "unknown stage",
        "negative",
    ],
)
def test_a_row_that_cannot_be_meant_is_refused(rows: list[dict[str, Any]]) -> None:
    with pytest.raises(ValidationError):
        ResponderSettings(tenants=rows)


def test_a_plan_without_teams_is_what_it_was() -> None:
    about, view = incident(), cluster()
    runbook = Play(about).runbook
    without = plan(about, runbook, view, Mode.AUTO, TICKETLESS)
    assert (
        plan(about, runbook, view, Mode.AUTO, TICKETLESS, tenants=(team(namespaces=("other",)),)) == without
    )
    assert b"teams" not in encode(without)


def test_a_team_in_stage_observe_has_its_broken_node_closed_and_its_job_left_alone() -> None:
    play = played(team(stage="observe"))
    assert play.made == ["cordon_node"]
    held = record(play, "suspend_job")
    assert "team ml is in stage observe (research/llm)" in held.reason
    assert not play.run.state.is_over


def test_once_its_job_is_gone_the_rest_goes_on() -> None:
    play = played(team(stage="observe"))
    for key in [pod.key for pod in play.view.pods.values() if pod.namespace == "research"]:
        play.view.forget(key)
    drain = next(step for step in play.run.plan.steps if step.action == "drain_node")
    context = play.situation
    assert context is not None
    looked_at = _context(play, drain)
    ruling = judge(looked_at)
    assert ruling is None or ruling.rule != "team"


def _context(play: Play, step: PlannedStep) -> Any:
    from runbooks.engine.guardrails.context import GuardContext

    return GuardContext(play.about, play.run, step, play.view, (), play.settings, play.now)


@pytest.mark.parametrize(("canaries", "asks"), [(("research/llm",), False), (("research/other",), True)])
def test_a_team_in_stage_canary_is_asked_about_all_but_its_canaries(
    canaries: tuple[str, ...], asks: bool
) -> None:
    rows = team(stage="canary", canary_jobs=canaries, approvers="ml")
    play = played(rows, approval_groups=GROUPS)
    suspend = record(play, "suspend_job")
    assert ("cordon_node" in play.made) is True
    assert ("suspend_job" not in play.made) is asks
    if not asks:
        return
    assert play.stands() is RunState.AWAITING_APPROVAL
    assert "none of the canary_jobs of team ml" in suspend.reason
    decide(play, Verb.APPROVE, id="c1", actor="pat", at=play.now)
    assert play.stands() is RunState.AWAITING_APPROVAL
    decide(play, Verb.APPROVE, id="c2", actor="ada", at=play.now)
    play.play(until="suspend_job")
    assert any(call.effect.action == "suspend_job" for call in play.air)


def test_of_teams_that_share_a_node_the_strictest_decides_what_happens_to_the_node() -> None:
    rows = (team(), team(team="vision", namespaces=("vision",), stage="observe"))
    play = played(*rows, view=shared())
    # The job of the team that allows it is moved; the node is not emptied of the other one's.
    assert "suspend_job" in play.made
    assert "drain_node" not in play.made
    drain = next(step for step in play.run.plan.steps if step.action == "drain_node")
    assert drain.teams == ("ml", "vision")
    assert "team vision is in stage observe (vision/serve)" in play.run.step(drain.id).reason


def test_closing_a_node_is_asked_of_the_platform_and_moving_a_job_of_its_team() -> None:
    rows = (team(approvers="ml"), team(team="vision", namespaces=("vision",), approvers="vision"))
    wanted = settings(*rows, approval_groups=GROUPS, approval_classes={})
    wanted = ResponderSettings.model_validate(
        wanted.model_dump()
        | {"approval_classes": {"close": {"group": "platform"}, "move": {"group": "platform"}}}
    )
    play = Play(incident(), actions=TICKETLESS, settings=wanted, view=shared())
    bound = plan(play.about, play.runbook, play.view, Mode.AUTO, TICKETLESS, tenants=rows)
    run = replace(play.run, plan=bound)
    asked = {
        step.action: [one.group for one in demands(step, run, wanted, NOW)]
        for step in bound.steps
        if step.destructive
    }
    assert asked["cordon_node"] == ["platform"]
    assert asked["suspend_job"] == ["ml"]
    assert asked["drain_node"] == ["platform", "ml", "vision"]


def test_a_team_above_its_quota_is_asked_and_another_team_is_not() -> None:
    earlier = _moved_one()
    cases = ((team(moves_per_h=1), True), (team(moves_per_h=9), False), (team(cordons_per_h=1), True))
    for row, asks in cases:
        play = played(row, others=(earlier,))
        step = record(play, "suspend_job" if row.moves_per_h is not None else "cordon_node")
        assert ("team quota" in step.reason) is asks, step.reason
    elsewhere = played(team(team="vision", namespaces=("vision",), moves_per_h=0), others=(earlier,))
    assert elsewhere.made[0] == "cordon_node"


def test_the_quota_of_moves_closes_the_node_and_asks_the_team_about_its_job() -> None:
    play = played(team(moves_per_h=0, approvers="ml"), approval_groups=GROUPS)
    assert play.made == ["cordon_node"]
    suspend = record(play, "suspend_job")
    assert suspend.reason.startswith(
        "team quota: team ml: 0 jobs moved in an hour, this step moves 1, limit 0 (moves_per_h)"
    )
    assert [demand.group for demand in suspend.demands] == ["ml"]
    decide(play, Verb.APPROVE, id="c1", actor="pat", at=play.now)
    play.play()
    assert play.made == ["cordon_node"]
    decide(play, Verb.APPROVE, id="c2", actor="ada", at=play.now)
    play.play()
    assert {"suspend_job", "drain_node", "resume_job"} <= set(play.made)


def test_a_job_moved_once_by_a_run_counts_once_however_many_steps_that_takes() -> None:
    play = played(team(moves_per_h=1))
    assert {"cordon_node", "suspend_job", "drain_node", "resume_job"} <= set(play.made)
    counts = RunCounts([play.run])
    assert counts.spent_by("ml", True, shadow=False, since=at(-1)) == 1


def test_a_second_job_of_the_team_in_the_same_run_counts_as_another() -> None:
    play = played(team(moves_per_h=1), view=_both_on_node(), about=incident(jobs=(JOB, OTHER_JOB)))
    first, second = (play.run.step(step.id) for step in play.run.plan.steps if step.action == "suspend_job")
    assert "team ml: 1 jobs moved in an hour, this step moves 1, limit 1" in second.reason
    assert first.state is StepState.DONE
    assert play.made.count("suspend_job") == 1


def test_a_drain_counts_the_jobs_on_the_node_that_the_run_does_not_stop_itself() -> None:
    vision = team(team="vision", namespaces=("vision",), moves_per_h=0)
    play = played(team(moves_per_h=1), vision, view=shared())
    drain = record(play, "drain_node")
    assert "team vision: 0 jobs moved in an hour, this step moves 1, limit 0 (moves_per_h)" in drain.reason
    assert "suspend_job" in play.made
    allowed = played(team(moves_per_h=1), vision.model_copy(update={"moves_per_h": 1}), view=shared())
    assert "drain_node" in allowed.made
    counts = RunCounts([allowed.run])
    assert [counts.spent_by(name, True, shadow=False, since=at(-1)) for name in ("ml", "vision")] == [1, 1]


def test_a_move_that_only_waits_takes_no_place_in_the_quota() -> None:
    waiting = _elsewhere(played(team(moves_per_h=0)).run)
    assert waiting.admitted_at is not None
    play = played(team(moves_per_h=1), others=(waiting,))
    assert "suspend_job" in play.made


@pytest.mark.parametrize("observed_first", [True, False])
def test_a_stopped_job_is_resumed_without_waiting_for_the_job_of_a_team_in_stage_observe(
    observed_first: bool,
) -> None:
    # Steps on several jobs come in the order of the jobs' keys.
    other = JobRef("Job" if observed_first else "PyTorchJob", "vision", "vit", "uid-vision")
    view = _beside(other)
    watched = team(team="vision", namespaces=("vision",), stage="observe")
    play = played(team(), watched, view=view, about=incident(jobs=(JOB, other)))
    assert play.made == ["cordon_node", "suspend_job", "resume_job", "verify_job"]
    held, drain = _step(play, "suspend_job", other), record(play, "drain_node")
    assert "team vision is in stage observe" in held.reason
    assert drain.state is StepState.PENDING
    for step in (100, 200, 300):
        play.tick(60)
        play.progress(step=step)
    play.tick(1)
    assert _step(play, "await_progress", JOB).state is StepState.DONE
    # The rest is not given up, however long the other job stays: the node's repair waits for it.
    for _ in range(3):
        play.tick(4000)
    assert _step(play, "suspend_job", other).state is StepState.BLOCKED
    assert not play.run.state.is_over
    view.forget(next(pod.key for pod in view.pods_of(other.key)))
    view.forget(JobFact(CLUSTER, other, NOW).key)
    play.about = replace(play.about, revision=play.about.revision + 1, updated_at=play.now)
    play.play()
    assert play.made[4:] == ["suspend_job", "drain_node", "resume_job", "verify_job"]
    # How long a team held it up says nothing of how long a move takes.
    assert RunCounts([play.run]).usual_move() == (None, 0)


def test_a_team_that_is_asked_keeps_no_stopped_job_waiting_and_has_the_whole_time_to_answer() -> None:
    asked = team(
        team="vision", namespaces=("vision",), stage="canary", canary_jobs=("vision/x",), approvers="vision"
    )
    play = played(
        team(), asked, view=_beside(OF_VISION), about=incident(jobs=(JOB, OF_VISION)), approval_groups=GROUPS
    )
    assert play.made == ["cordon_node", "suspend_job", "resume_job", "verify_job"]
    question = _step(play, "suspend_job", OF_VISION)
    assert question.state is StepState.AWAITING_APPROVAL
    assert question.deadline_at == at(AUTO.approval_expiry_s)
    play.tick(700)
    assert _step(play, "suspend_job", OF_VISION).state is StepState.AWAITING_APPROVAL


def test_the_repair_of_the_node_still_waits_for_the_job_that_its_team_holds() -> None:
    rows = (team(), team(team="vision", namespaces=("vision",), stage="observe"))
    work = TICKETLESS | {"reboot_node", "validate_node", "uncordon_node"}
    about = incident(jobs=(JOB, OF_VISION))
    play = played(*rows, view=_beside(OF_VISION), about=about, actions=work)
    assert "resume_job" in play.made
    decide(play, Verb.APPROVE, id="c1", actor="pat", at=play.now)
    play.tick(3600)
    assert [record(play, action).state for action in ("drain_node", "reboot_node", "uncordon_node")] == [
        StepState.PENDING
    ] * 3


def test_a_stopped_job_waits_for_a_node_that_is_still_to_be_closed() -> None:
    steps = played(team()).run.plan.steps
    cordon, drain = (next(s for s in steps if s.action == name) for name in ("cordon_node", "drain_node"))
    assert [stops_no_resume(step, "team quota") for step in (cordon, drain)] == [False, True]
    assert not stops_no_resume(drain, "freeze")


def test_a_wave_of_resumes_does_not_wait_for_a_job_that_its_team_holds() -> None:
    rows = (team(), team(team="vision", namespaces=("vision",), stage="observe"))
    about, view = incident(jobs=(JOB, OF_VISION)), _beside(OF_VISION)
    play = Play(about, actions=TICKETLESS, settings=settings(*rows), view=view)
    bound = plan(about, play.runbook, view, Mode.AUTO, TICKETLESS, tenants=rows)
    waves = tuple(
        replace(step, wave=int(step.target is not None and step.target.key == JOB.key))
        if step.action == "resume_job"
        else step
        for step in bound.steps
    )
    play.take(begin(about, replace(bound, steps=waves), play.now))
    play.play()
    assert play.made == ["cordon_node", "suspend_job", "resume_job", "verify_job"]


def test_a_job_that_the_inventory_never_had_is_not_taken_for_gone() -> None:
    watched = team(team="vision", namespaces=("vision",), stage="observe")
    play = played(team(), watched, about=incident(jobs=(JOB, OF_VISION)))
    play.tick(60)
    assert play.made.count("suspend_job") == 1
    assert _step(play, "suspend_job", OF_VISION).state is StepState.BLOCKED


def test_a_stopped_job_is_resumed_while_the_drain_is_held_for_another_team() -> None:
    play = played(team(), team(team="vision", namespaces=("vision",), stage="observe"), view=shared())
    assert play.made == ["cordon_node", "suspend_job", "resume_job", "verify_job"]
    assert record(play, "drain_node").state is StepState.BLOCKED


def test_a_stopped_job_gets_its_spare_before_it_is_resumed() -> None:
    rows = (team(), team(team="vision", namespaces=("vision",), stage="observe"))
    view = full("node-10")
    job = JobRef("Job", "vision", "serve", "uid-serve")
    view.put(JobFact(CLUSTER, job, NOW))
    view.put(PodFact(CLUSTER, "vision", "serve-0", "uid-s0", NOW, node="node-03", job=job))
    play = played(*rows, view=view, actions=TICKETLESS | {"release_spare"})
    assert play.made == ["cordon_node", "suspend_job", "release_spare", "resume_job", "verify_job"]
    held = played(rows[1], view=view, about=incident(jobs=(job,)), actions=TICKETLESS | {"release_spare"})
    assert held.made == ["cordon_node"]


def test_a_job_of_a_team_in_stage_observe_does_not_hold_up_another_one_that_is_still_being_stopped() -> None:
    rows = (team(), team(team="vision", namespaces=("vision",), stage="observe"))
    play = played(*rows, view=shared(), until="suspend_job")
    play.tick(1)
    assert record(play, "resume_job").state is StepState.PENDING


def test_in_shadow_mode_the_job_would_be_resumed_as_well() -> None:
    rows = (team(), team(team="vision", namespaces=("vision",), stage="observe"))
    play = played(*rows, view=shared(), mode=Mode.SHADOW)
    assert record(play, "drain_node").verdict == "refused"
    assert record(play, "resume_job").verdict == "would"


def test_a_quota_lifts_with_time_and_only_by_who_was_told_of_it() -> None:
    play = played(team(cordons_per_h=0))
    assert play.made == []
    assert (
        "0 nodes closed under jobs in an hour, this run adds 1, limit 0 (cordons_per_h)"
        in record(play, "cordon_node").reason
    )
    decide(play, Verb.APPROVE, id="c1", actor="pat", at=play.now)
    play.play(until="suspend_job")
    assert play.made == ["cordon_node"]


def test_the_guardrails_of_the_fleet_hold_whatever_a_team_allows() -> None:
    wanted = AUTO.blast_radius.model_copy(update={"max_nodes": 1})
    others = (closed("node-09", cluster()),)
    play = played(team(cordons_per_h=100, moves_per_h=100), blast_radius=wanted, others=others)
    assert play.made == []
    assert "blast radius" in record(play, "cordon_node").reason
    off = played(team(), kill_switch=True)
    assert off.made == []


def _step(play: Play, action: str, job: JobRef) -> StepRecord:
    """What became of the step with an action on one job."""
    return next(
        play.run.step(step.id)
        for step in play.run.plan.steps
        if step.action == action and step.target is not None and step.target.key == job.key
    )


def _beside(job: JobRef) -> ClusterView:
    """The node of the fault has a pod of this job as well."""
    view = cluster()
    view.put(JobFact(CLUSTER, job, NOW))
    view.put(PodFact(CLUSTER, job.namespace, f"{job.name}-0", "uid-j0", NOW, node="node-03", job=job))
    return view


def _both_on_node() -> ClusterView:
    """Both jobs of the cluster have a pod on the node of the fault."""
    view = cluster()
    view.put(PodFact(CLUSTER, OTHER_JOB.namespace, "eval-9", "p9", NOW, node="node-03", job=OTHER_JOB))
    return view


def _moved_one() -> Run:
    """A run of the same team that has moved a job."""
    play = played(team())
    assert "suspend_job" in play.made
    return _elsewhere(play.run)


def _elsewhere(run: Run) -> Run:
    """The run as if it were about another node and another job of the same team."""
    elsewhere = {"Node": Target("Node", "node-09"), JOB.kind: Target(JOB.kind, "other", "research")}
    steps = tuple(
        replace(step, target=elsewhere.get(step.target.kind, step.target) if step.target else None)
        for step in run.plan.steps
    )
    moved = replace(run, id="run-earlier", incident="inc-earlier")
    return replace(moved, plan=replace(moved.plan, steps=steps))


def test_counts_by_team_follow_the_runs_and_their_age() -> None:
    run = _moved_one()
    counts = RunCounts([run])
    began = at(-1)
    cordons, moves = (counts.spent_by("ml", kind, shadow=False, since=began) for kind in (False, True))
    assert (cordons, moves) == (1, 1)
    besides = counts.spent_by("ml", True, shadow=False, since=began, besides=run.id)
    assert besides == 0
    assert counts.spent_by("ml", True, shadow=True, since=began) == 0
    assert counts.spent_by("vision", True, shadow=False, since=began) == 0
    assert counts.spent_by("ml", True, shadow=False, since=at(10_000)) == 0
    counts.drop(run.id)
    assert counts.spent_by("ml", True, shadow=False, since=began) == 0


def test_a_run_keeps_its_teams_when_it_is_stored() -> None:
    run = _moved_one()
    again = decode(Run, encode(run))
    assert [step.teams for step in again.plan.steps] == [step.teams for step in run.plan.steps]
    assert any(step.teams == ("ml",) for step in again.plan.steps)
    shared_node = played(team(), team(team="vision", namespaces=("vision",)), view=shared()).run
    again = decode(Run, encode(shared_node))
    assert [step.jobs_beside for step in again.plan.steps if step.action == "drain_node"] == [{"vision": 1}]
    assert JOB.namespace == "research"
    assert Target("Node", "node-03").namespace is None
