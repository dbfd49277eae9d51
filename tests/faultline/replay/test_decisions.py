from dataclasses import replace
from datetime import timedelta
from functools import cache

import pytest

from faultline.drawings.milestones import milestones
from faultline.replay.decisions import Decision, ceilings, decisions_of, decisions_of_topics
from faultline.replay.replay import Replayed, replay_capture
from faultline.report.cost import cost_of
from runbooks.language.loader import load
from streams.config.settings import ResponderSettings
from streams.model.run import EffectRecord, EffectState, Mode, StepRecord, StepState
from streams.model.thread import ROOT, Post, Thread
from tests.faultline.replay.simulated import simulated

CAPTURE = simulated("gpu_off_bus")
LIBRARY = load()


@cache
def replayed(**responder: object) -> Replayed:
    return replay_capture(CAPTURE, responder=ResponderSettings(**responder), runbooks=LIBRARY)


def decided(mode: str = "auto", **responder: object) -> tuple[Decision, ...]:
    modes = ceilings(LIBRARY, ResponderSettings(mode=Mode(mode)))
    return decisions_of(replayed(**responder), modes, CAPTURE.meta.end)


def test_every_incident_of_a_replay_has_one_decision_with_its_steps_in_the_plans_order() -> None:
    found = decided("auto")
    assert [one.incident for one in found] == [line["id"] for line in replayed().incident_lines()]
    by_incident = {one.incident: [step.step for step in one.steps] for one in found}
    for one in found:
        assert by_incident[one.incident] == [a.step for a in replayed().actions if a.incident == one.incident]
    assert {one.runbooks for one in found} == {("gpu-off-bus",)}
    assert all(one.runbook_why and one.rule and one.rule_means for one in found)


def test_gpu_hours_are_those_of_the_report() -> None:
    for one in decided():
        incident = replayed().incidents[one.incident]
        runs = [run for run in replayed().runs if run.incident == one.incident]
        cost = cost_of(incident, runs, milestones(incident, runs), {}, CAPTURE.meta.end)
        assert (one.gpu_hours, one.replayed) == (cost.lost, cost.replayed)
        assert cost.lost


def test_a_ticket_counts_when_it_would_be_opened() -> None:
    assert [len(one.tickets) for one in decided()] == [1, 1]


def test_in_shadow_mode_nobody_is_paged_and_a_sink_may_ask_for_it() -> None:
    assert [one.page for one in decided("shadow")] == [None, None]
    modes = ceilings(LIBRARY, ResponderSettings())
    asked = decisions_of(replayed(), modes, CAPTURE.meta.end, page_shadow=True)
    assert [one.page.situation if one.page else None for one in asked] == ["shadow", "shadow"]


def test_in_mode_auto_an_incident_that_is_handled_pages_nobody() -> None:
    assert [one.page for one in decided("auto")] == [None, None]


def test_in_mode_approve_what_is_destructive_asks_and_a_critical_incident_that_nobody_answers_pages() -> None:
    for one in decided("approve"):
        assert {step.verdict for step in one.steps if step.destructive} == {"needs_approval"}
        assert {step.guardrail for step in one.steps if step.destructive} == {"approval"}
        assert one.page is not None
        assert one.page.situation == "approval"


def test_the_kill_switch_holds_the_run_and_pages_sooner() -> None:
    for one in decided("auto", kill_switch=True):
        assert {step.guardrail for step in one.steps if step.action == "cordon_node"} == {"kill switch"}
        assert one.page is not None
        assert one.page.situation == "held"


def test_an_incident_that_ended_before_the_policy_waits_pages_nobody() -> None:
    modes = ceilings(LIBRARY, ResponderSettings(mode=Mode.APPROVE))
    early = max(run.created_at for run in replayed().runs) + timedelta(seconds=1)
    assert [one.page for one in decisions_of(replayed(), modes, early)] == [None, None]


def test_an_incident_without_a_runbook_says_why_it_has_none() -> None:
    alone = replay_capture(CAPTURE, runbooks=())
    for one in decisions_of(alone, {}, CAPTURE.meta.end):
        assert (one.runbooks, one.steps, one.mode) == ((), (), "")
        assert "no runbook matches" in one.runbook_why
        assert one.page is not None
        assert one.page.situation == "unattended"


def test_the_same_documents_read_from_topics_give_the_same_decisions_but_for_pages() -> None:
    topics = decisions_of_topics(replayed().incidents.values(), replayed().runs, until=CAPTURE.meta.end)
    assert topics == tuple(replace(one, page=None) for one in decided("shadow"))


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        (StepState.PENDING, "needs_approval"),
        (StepState.CANCELLED, "needs_approval"),
        (StepState.AWAITING_APPROVAL, "needs_approval"),
        (StepState.DONE, "needs_approval"),
        (StepState.SKIPPED, None),
    ],
)
def test_a_question_of_a_run_that_acts_is_one_whatever_became_of_it(
    state: StepState, verdict: str | None
) -> None:
    run = replayed().runs[0]
    first, *rest = run.plan.steps
    asks = replace(first, action="ask")
    steps = (StepRecord(first.id, state), *run.steps[1:])
    acting = replace(run, plan=replace(run.plan, mode=Mode.AUTO, steps=(asks, *rest)), steps=steps)
    (one,) = decisions_of_topics([replayed().incidents[run.incident]], [acting])
    assert next((step.verdict for step in one.steps if step.action == "ask"), None) == verdict


def test_the_pages_of_production_are_those_that_were_sent() -> None:
    one, other = (incident for incident in replayed().incidents.values())
    page = _page_about(one.id, one.cluster)
    found = {
        d.incident: d.page
        for d in decisions_of_topics(replayed().incidents.values(), replayed().runs, [page])
    }
    sent = found[one.id]
    assert sent is not None
    assert (sent.at, sent.situation) == (page.created_at, "approval")
    assert found[other.id] is None


def _page_about(incident: str, cluster: str) -> Thread:
    at = CAPTURE.meta.end
    step = replayed().runs[0].plan.steps[0]
    assert step.target is not None
    effect = EffectRecord("key", "page", step.target, EffectState.CONFIRMED, at, at)
    return Thread(
        f"oncall/{incident}", cluster, "approval", at, at,
        posts=(Post(ROOT, effect, shown="1"),), members=(incident,),
    )  # fmt: skip
