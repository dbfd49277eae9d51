"""A node that goes at a known time: what fits is done in order, what does not is said, and what is taken back is undone."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest

from connectors.base import Absent, Done
from runbooks.engine.guardrails import RulingKind, judge
from runbooks.engine.guardrails.notices import departure
from runbooks.engine.guardrails.operator_overrides import foreign_cordon
from runbooks.engine.guardrails.run_counts import RunCounts
from runbooks.engine.partition_state import PartitionState
from runbooks.engine.run.human_decisions import revised
from runbooks.engine.run.transition import LOOKUPS
from streams.config.notice_settings import NoticeSettings
from streams.inventory.cluster_view import ClusterView
from streams.model.clock import rfc3339
from streams.model.entity import Entity
from streams.model.facts import NodeWork
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.node_notice import NodeNotice
from streams.model.run import EffectState, Mode, StepState
from tests.runbooks.engine.test_guardrails import case, closed
from tests.runbooks.scenes import ACTIONS, CLUSTER, LIBRARY, NOW, Play, at, cluster, incident, policy

NODE = "node-03"
HOUR = 3600.0
WIDE = policy(notices=NoticeSettings(move_s=1200, margin_s=600, stop_s=180))


def leaving(seconds: float, *, ends: str = "gone", **changes: object) -> Incident:
    facts = {
        "signs": ("node.maintenance.termination" if ends == "gone" else "node.maintenance.scheduled_event",),
        "deadline": rfc3339(at(seconds)), "deadline_s": int(at(seconds).timestamp()),
        "notice_s": int(max(0, seconds)), "node_ends": ends,
    }  # fmt: skip
    return incident("preemption", Entity(CLUSTER, node=NODE), facts=facts, **changes)


def announced(since: datetime = NOW, ends: str = "gone", unschedulable: bool = False) -> ClusterView:
    view = cluster()
    fact = view.nodes[NODE]
    notice = NodeNotice("the cloud", "a taint", "termination", None, 120)
    work = NodeWork("the cloud", "a taint", ends)  # type: ignore[arg-type]
    view.put(
        replace(
            fact, notice=notice, work=work, maintenance=True, observed_at=since, unschedulable=unschedulable
        )
    )
    return view


def test_five_minutes_are_enough_to_suspend_and_resume() -> None:
    play = Play(leaving(300), settings=WIDE, view=announced())
    play.play()
    assert play.made[:4] == ["cordon_node", "suspend_job", "drain_node", "resume_job"]
    assert play.run.plan.runbook == "leaving-node"


def test_thirty_seconds_close_the_node_and_leave_the_rest_to_sigterm() -> None:
    play = Play(leaving(30), settings=WIDE, view=announced())
    play.play()
    assert play.made[0] == "cordon_node"
    assert not {"suspend_job", "drain_node", "resume_job"}.intersection(play.made)
    assert play.state("suspend") is StepState.SKIPPED
    said = next(r.reason for r in play.run.steps if r.id.startswith("suspend"))
    assert "goes at" in said
    assert "30 s from now" in said
    assert "SIGTERM" in said
    assert "verify_job" in play.made  # it is watched until it runs elsewhere


def test_the_plan_says_when_the_node_goes() -> None:
    play = Play(leaving(87), settings=WIDE, view=announced())
    assert any(f"{NODE} goes at 12:01:27 UTC, 87 s from now" in note for note in play.notes), play.notes


def test_with_hours_left_nothing_is_done_before_it_has_to_be() -> None:
    play = Play(leaving(5 * HOUR), settings=WIDE, view=announced())
    play.play()
    assert play.made == []
    assert play.state("cordon") is StepState.BLOCKED
    reason = play.run.step("cordon").reason
    assert "can be used until" in reason
    assert "5 h from now" in reason
    play.tick(5 * HOUR - 1900)
    assert play.air == []
    play.tick(120)
    play.play()
    assert play.made[:2] == ["cordon_node", "suspend_job"]


def test_what_such_moves_took_here_decides_when_to_begin() -> None:
    earlier = Play(incident(), settings=WIDE, view=cluster())
    earlier.tick()
    while earlier.air:
        earlier.now = at((earlier.now - NOW).total_seconds() + 300)
        earlier.answer(Absent() if earlier.air[0].kind in LOOKUPS else Done())
    leaves = departure(leaving(5 * HOUR), WIDE.notices, RunCounts([earlier.run]))
    assert leaves is not None
    assert leaves.learned == 1
    assert leaves.move_s >= 900
    assert leaves.took.startswith("moves took up to")
    assert (leaves.due - leaves.close_by).total_seconds() == leaves.move_s + 600


def test_a_node_without_jobs_teaches_nothing_of_moves() -> None:
    play = Play(leaving(300, jobs=()), settings=WIDE, view=announced())
    play.play()
    assert RunCounts([play.run]).usual_move() == (None, 0)


def test_people_are_asked_as_long_before_as_an_approval_lasts() -> None:
    settings = WIDE.model_copy(update={"mode": Mode.APPROVE})
    play = Play(leaving(48 * HOUR, ends="back"), settings=settings, view=announced(ends="back"))
    assert play.run.plan.runbook == "maintenance-notice"
    play.play()
    assert play.state("cordon") is StepState.BLOCKED
    play.tick(42 * HOUR)
    assert play.state("cordon") is StepState.BLOCKED
    play.tick(2 * HOUR)
    assert play.state("cordon") is StepState.AWAITING_APPROVAL


def test_after_three_hours_away_it_says_that_it_was_too_late() -> None:
    play = Play(leaving(60), settings=WIDE, view=announced(), now=at(3 * HOUR))
    play.play()
    assert not {"suspend_job", "drain_node"}.intersection(play.made)
    said = next(r.reason for r in play.run.steps if r.id.startswith("suspend"))
    assert said.startswith(f"too late: {NODE} went at 12:01:00 UTC, 2 h 59 min ago")


def test_an_approval_that_comes_too_late_is_told_so() -> None:
    settings = WIDE.model_copy(update={"mode": Mode.APPROVE})
    play = Play(leaving(900), settings=settings, view=announced())
    play.play()
    assert play.state("cordon") is StepState.AWAITING_APPROVAL


def test_a_notice_that_is_taken_back_takes_back_what_is_ours() -> None:
    play = Play(leaving(600), settings=WIDE, view=announced())
    play.play(until="drain_node")
    over = replace(
        play.about, revision=2, state=IncidentState.RESOLVED, closed_at=at(10), reason="It has cleared"
    )
    play.about = over
    play.take(revised(play.run, over, None, play.now))
    play.play()
    undone = {r.id.split(":")[0] for r in play.run.steps if r.undo and r.undo.state is EffectState.UNDONE}
    assert {"cordon", "suspend"} <= undone


@pytest.mark.parametrize(("ends", "asks"), [("gone", False), ("back", False), ("held", True)])
def test_the_clouds_own_taint_is_no_reason_to_ask_but_a_persons_mark_is(ends: str, asks: bool) -> None:
    found = judge(case(about=leaving(300), view=announced(ends=ends), settings=WIDE))
    assert (found is not None and found.rule == "maintenance") is asks


@pytest.mark.parametrize(("ends", "rule"), [("gone", None), ("back", "maintenance")])
def test_a_cordoned_node_is_asked_about_unless_it_goes_for_good(ends: str, rule: str | None) -> None:
    # Handlers of spot notices cordon the node themselves. One that comes back was closed by somebody who will open it.
    view = announced(ends=ends, unschedulable=True)
    context = case(about=leaving(300, ends=ends), view=view, settings=WIDE)
    assert (ruling.rule if (ruling := foreign_cordon(context)) else None) == rule


def test_what_a_log_line_alone_says_is_asked_about() -> None:
    found = judge(case(about=leaving(300, certainty=Certainty.LIKELY), view=announced(), settings=WIDE))
    assert found is not None
    assert found.rule == "certainty"


def test_work_for_next_week_is_fresh_while_its_mark_is_there() -> None:
    old = replace(leaving(HOUR * 100), opened_at=at(-90 * HOUR), updated_at=at(-90 * HOUR))
    later = replace(old, facts={**old.facts, "deadline": rfc3339(at(300))})
    assert judge(case(about=later, view=announced(), settings=WIDE)) is None
    stale = judge(case(about=later, view=cluster(), settings=WIDE))
    assert stale is not None
    assert stale.rule == "freshness"


def test_a_zone_under_maintenance_is_not_emptied_without_asking() -> None:
    tight = WIDE.model_copy(update={"blast_radius": WIDE.blast_radius.model_copy(update={"max_nodes": 1})})
    view = announced()
    found = judge(case(about=leaving(300), view=view, settings=tight, others=(closed("node-06", view),)))
    assert found is not None
    assert (found.kind, found.rule) == (RulingKind.ASK, "blast radius")


def test_a_zone_under_maintenance_trips_no_breaker() -> None:
    view = cluster(64)
    made = PartitionState(LIBRARY, WIDE, ACTIONS)
    for fact in view.nodes.values():
        made.take_fact(fact.key, fact)
    for name in view.nodes:
        about = leaving(5 * HOUR, ends="back", jobs=())
        root = Entity(CLUSTER, node=name)
        made.take_incident(replace(about, id=f"inc-{name}", root=root, nodes=(name,)))
    made.advance(NOW)
    batch = made.collect()
    assert {call.effect.action for call in batch.calls} <= {"open_ticket"}
    assert len(made.runs) == 64
    assert not any(entry.event == "control.trip" for entry in batch.timeline)
