"""Each rule on its own: what it stops, what it says, and what it lets through."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runbooks.engine.guardrails import GuardContext, RulingKind, judge
from runbooks.engine.run.machine import begin
from runbooks.engine.run.plan import plan
from runbooks.language.select import select
from streams.config.settings import ResponderSettings
from streams.inventory.cluster_view import ClusterView
from streams.model.entity import Entity
from streams.model.incident import Certainty, Incident
from streams.model.run import (
    Approval,
    EffectRecord,
    EffectState,
    Mode,
    PlannedStep,
    Run,
    RunState,
    StepState,
)
from tests.runbooks.scenes import (
    AUTO,
    CLUSTER,
    JOB,
    LIBRARY,
    NOW,
    ROOT,
    at,
    cluster,
    incident,
    policy,
    radius,
)

TIGHT = radius(max_share=0.05)
"""One node of sixteen."""


def case(
    action: str = "cordon_node",
    about: Incident | None = None,
    settings: ResponderSettings = TIGHT,
    view: ClusterView | None = None,
    others: tuple[Run, ...] = (),
    **changes: object,
) -> GuardContext:
    about, view = about or incident(), view or cluster()
    run = run_of(about, view, settings)
    run = replace(run, **changes)  # type: ignore[arg-type]
    return GuardContext(about, run, step_of(run, action), view, others, settings, NOW)


def run_of(about: Incident, view: ClusterView, settings: ResponderSettings = AUTO) -> Run:
    runbook = select(about, LIBRARY).runbook
    assert runbook is not None
    return begin(about, plan(about, runbook, view, settings.mode), NOW).run


def step_of(run: Run, action: str) -> PlannedStep:
    return next(s for s in run.plan.steps if s.action == action)


def closed(node: str, view: ClusterView, *, finished: bool = True, confirmed: float = -5.0) -> Run:
    """Another run that has closed a node."""
    other = run_of(incident(root=Entity(CLUSTER, node=node), family="node_down"), view)
    step = step_of(other, "cordon_node")
    assert step.target is not None
    effect = EffectRecord(
        "k", step.action, step.target, EffectState.CONFIRMED, at(-70), at(-50), confirmed_at=at(confirmed)
    )
    records = tuple(
        replace(r, effect=effect, state=StepState.DONE) if r.id == step.id else r for r in other.steps
    )
    state = RunState.SUCCEEDED if finished else RunState.RUNNING
    return replace(other, steps=records, state=state, admitted_at=at(-70))


def confirmed(run: Run, *actions: str) -> Run:
    """The run after the steps of these actions."""
    made = {}
    for step in run.plan.steps:
        if step.action in actions and step.target is not None:
            row = EffectRecord(
                "k", step.action, step.target, EffectState.CONFIRMED, at(-70), at(-50), confirmed_at=at(-5)
            )
            made[step.id] = {"effect": row, "state": StepState.DONE, "started_at": at(-70)}
    return replace(run, steps=tuple(replace(r, **made.get(r.id, {})) for r in run.steps))  # type: ignore[arg-type]


def after(action: str, **changes: Any) -> GuardContext:
    """A step of a run that has taken those before it."""
    looked_at = case(action, **changes)
    return replace(looked_at, run=confirmed(looked_at.run, "cordon_node", "suspend_job"))


def old_incident(age_s: float, **changes: Any) -> Incident:
    """One whose newest line was so old when it was read."""
    return incident(evident_at=at(-age_s), evident_read_at=at(-2), **changes)


def gone_incident(age_s: float, **facts: bool) -> Incident:
    """The same of a node that was NotReady then."""
    told = {"node_not_ready": True, **facts}
    return old_incident(age_s, family="node_down", root=Entity(CLUSTER, node="node-03"), facts=told)


def with_node(name: str, **changes: object) -> ClusterView:
    view = cluster()
    view.put(replace(view.nodes[name], **changes))  # type: ignore[arg-type]
    return view


def without_node(name: str) -> ClusterView:
    view = cluster()
    view.forget(f"{CLUSTER}/node/{name}")
    return view


def job_that(**changes: object) -> ClusterView:
    view = cluster()
    view.put(replace(view.jobs[JOB.key], **changes))  # type: ignore[arg-type]
    return view


CASES = {
    "all is well": (case(), None, ""),
    "kill switch": (case(settings=policy(kill_switch=True)), RulingKind.HOLD, "kill switch"),
    "node opted out": (case(view=with_node("node-03", managed=False)), RulingKind.REFUSE, "opt-out"),
    "job opted out": (case("suspend_job", view=job_that(managed=False)), RulingKind.REFUSE, "opt-out"),
    "control plane": (
        case(view=with_node("node-03", control_plane=True)),
        RulingKind.REFUSE,
        "control plane",
    ),
    "maintenance": (case(view=with_node("node-03", maintenance=True)), RulingKind.ASK, "maintenance"),
    "a person's cordon": (
        case(view=with_node("node-03", unschedulable=True)),
        RulingKind.ASK,
        "foreign cordon",
    ),
    "our own mark": (
        case(view=with_node("node-03", unschedulable=True, owner_incident="inc-x")),
        None,
        "",
    ),
    "no inventory": (case(view=ClusterView(CLUSTER)), RulingKind.ASK, "inventory"),
    "none of the inventory's nodes": (case(view=without_node("node-03")), RulingKind.HOLD, "inventory"),
    "likely": (case(about=incident(certainty=Certainty.LIKELY)), RulingKind.ASK, "certainty"),
    "weak": (case(about=incident(certainty=Certainty.WEAK)), RulingKind.ASK, "certainty"),
    "old news": (
        case(about=incident(updated_at=at(-3601), opened_at=at(-9999))),
        RulingKind.ASK,
        "freshness",
    ),
    "a fault of two hours ago": (case(about=old_incident(7202)), RulingKind.ASK, "old evidence"),
    "a fault of fifty minutes ago": (case(about=old_incident(3000)), None, ""),
    "an old fault of which a new line tells": (
        case(about=replace(old_incident(7202), evident_at=at(5))),
        None,
        "",
    ),
    "a clock that runs ahead": (case(about=old_incident(-200)), None, ""),
    "a node that is NotReady to this moment": (
        case(about=gone_incident(7202), view=with_node("node-03", ready=False)),
        None,
        "",
    ),
    "a node that was NotReady and is not any more": (
        case(about=gone_incident(7202)),
        RulingKind.ASK,
        "old evidence",
    ),
    "an old panic of a node that boots": (
        case(about=gone_incident(7202, panic=True), view=with_node("node-03", ready=False)),
        RulingKind.ASK,
        "old evidence",
    ),
    "a ticket for an old fault": (case("open_ticket", about=old_incident(7202)), None, ""),
    "approve mode": (case(settings=policy(mode=Mode.APPROVE)), RulingKind.ASK, "approval"),
    "another run at work there": (
        case(others=(closed("node-03", cluster(), finished=False),)),
        RulingKind.HOLD,
        "one run per target",
    ),
    "no more nodes": (case(settings=radius(max_nodes=0)), RulingKind.HOLD, "blast radius"),
    "no share": (case(settings=radius(max_share=0.0)), RulingKind.HOLD, "blast radius"),
    "share of a small cluster is at least one": (case(settings=radius(max_share=0.01)), None, ""),
    "share is spent and a job stands": (
        case(others=(closed("node-09", cluster()),)),
        RulingKind.ASK,
        "blast radius",
    ),
    "share is spent and no job stands": (
        case(about=incident(jobs=()), others=(closed("node-09", cluster()),)),
        RulingKind.HOLD,
        "blast radius",
    ),
    "share is spent and the job has died": (
        case(view=job_that(finished=True, failed=True), others=(closed("node-09", cluster()),)),
        RulingKind.HOLD,
        "blast radius",
    ),
    "share is spent by a fault that is only likely": (
        case(about=incident(certainty=Certainty.LIKELY), others=(closed("node-09", cluster()),)),
        RulingKind.HOLD,
        "blast radius",
    ),
    "a share is rounded up": (
        case(settings=radius(max_share=0.1), others=(closed("node-09", cluster()),)),
        None,
        "",
    ),
    "one node of four may be cordoned": (case(settings=AUTO, view=cluster(4)), None, ""),
    "marks that inventory sees count too": (
        case(view=with_node("node-09", unschedulable=True, owner_incident="inc-x")),
        RulingKind.ASK,
        "blast radius",
    ),
    "a node given back does not count": (
        case(
            others=(closed("node-09", cluster(), confirmed=-60),),
            view=with_node("node-09", observed_at=at(-1)),
        ),
        None,
        "",
    ),
    "window is spent": (
        case(settings=radius(max_share=1.0, max_per_window=3), others=(closed("node-09", cluster()),)),
        RulingKind.ASK,
        "window",
    ),
    "window is spent and no job stands": (
        case(
            about=incident(jobs=()),
            settings=radius(max_share=1.0, max_per_window=2),
            others=(closed("node-09", cluster()),),
        ),
        RulingKind.HOLD,
        "window",
    ),
    "window is too small for any run": (case(settings=radius(max_per_window=2)), RulingKind.ASK, "window"),
    "resume always flows": (
        case("resume_job", settings=policy(kill_switch=True, mode=Mode.APPROVE)),
        None,
        "",
    ),
    "a ticket always flows": (
        case("open_ticket", settings=policy(kill_switch=True), about=incident(certainty=Certainty.WEAK)),
        None,
        "",
    ),
    "an admitted run may finish": (
        after("drain_node", settings=radius(max_nodes=0, max_per_window=0), admitted_at=NOW),
        None,
        "",
    ),
    "what forbids comes before what asks": (
        case(settings=policy(kill_switch=True), about=incident(certainty=Certainty.WEAK)),
        RulingKind.HOLD,
        "kill switch",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rule(name: str) -> None:
    looked_at, kind, rule = CASES[name]
    ruling = judge(looked_at)
    assert (ruling.kind if ruling else None, ruling.rule if ruling else "") == (kind, rule)
    if ruling:
        assert ruling.reason
        assert ruling.clears


def test_an_approval_lifts_what_asks_and_nothing_else() -> None:
    asked = case(about=incident(certainty=Certainty.LIKELY))
    word = Approval("cordon", True, "ada", NOW, asked.run.plan.digest)
    assert judge(replace(asked, run=replace(asked.run, approvals=(word,)))) is None
    other = replace(word, digest="an outdated plan")
    assert judge(replace(asked, run=replace(asked.run, approvals=(other,)))) is not None
    no = replace(word, approved=False)
    assert judge(replace(asked, run=replace(asked.run, approvals=(no,)))) is not None
    held = replace(asked, policy=policy(kill_switch=True), run=replace(asked.run, approvals=(word,)))
    ruling = judge(held)
    assert ruling is not None
    assert ruling.rule == "kill switch"


def test_an_approval_lets_an_old_fault_be_acted_on() -> None:
    asked = case(about=old_incident(7202))
    word = Approval("cordon", True, "ada", NOW, asked.run.plan.digest)
    assert judge(asked) is not None
    assert judge(replace(asked, run=replace(asked.run, approvals=(word,)))) is None


@pytest.mark.parametrize(
    ("age_s", "age", "words"),
    [
        (7202, "2 h", "off by 2 h almost to the second: the time zone in the logs of node-03"),
        (5.5 * 3600 + 3, "5 h 30 min", "off by 5.5 h almost to the second"),
        (2 * 3600 + 700, "2 h 12 min", "the shipper may read an old log again"),
    ],
)
def test_a_question_about_an_old_fault_says_why_it_may_look_old(age_s: float, age: str, words: str) -> None:
    ruling = judge(case(about=old_incident(age_s)))
    assert ruling is not None
    assert words in ruling.reason
    assert f"evidence was {age} old when it was read" in ruling.reason


def test_a_person_who_opens_our_node_again_ends_the_run() -> None:
    view = cluster()
    mine = replace(closed("node-03", view, finished=False, confirmed=-60), incident=incident().id)
    now_open = with_node("node-03", observed_at=at(-1))
    mine = confirmed(mine, "suspend_job")
    looked_at = GuardContext(incident(), mine, step_of(mine, "drain_node"), now_open, (), AUTO, NOW)
    ruling = judge(looked_at)
    assert ruling is not None
    assert (ruling.kind, ruling.rule) == (RulingKind.REFUSE, "a person's change")
    stale = replace(looked_at, view=with_node("node-03", observed_at=at(-55)))
    assert judge(stale) is None


def test_shadow_runs_count_only_among_themselves() -> None:
    ghost = closed("node-09", cluster())
    ghost = replace(ghost, plan=replace(ghost.plan, mode=Mode.SHADOW), state=RunState.SHADOWED)
    assert judge(case(others=(ghost,))) is None
    ruling = judge(case(others=(ghost,), settings=TIGHT.model_copy(update={"mode": Mode.SHADOW})))
    assert ruling is not None
    assert ruling.rule == "blast radius"
    assert ROOT.node == "node-03"
