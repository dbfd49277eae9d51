"""Stages of pools: who is only watched, who is acted on, when that falls back, and the way back with one command."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from runbooks.engine.cluster_controls import commanded
from runbooks.engine.guardrails import judge, switched_off
from runbooks.engine.guardrails.rollout import canaries, held_by_rollout
from runbooks.engine.partition_state import PartitionState
from streams.config.rollout_settings import PoolRollout, Stage
from streams.config.settings import ResponderSettings
from streams.inventory.cluster_view import ClusterView
from streams.model.control import Control
from streams.model.conversation import Command, Verb
from streams.model.run import Mode, StepState
from tests.runbooks.engine.test_cluster_controls import broken, say, turn
from tests.runbooks.engine.test_dangers import TICKETLESS
from tests.runbooks.engine.test_guardrails import case
from tests.runbooks.scenes import AUTO, CLUSTER, LIBRARY, NOW, at, cluster

NODE = "node-03"


def row(stage: str, **more: Any) -> PoolRollout:
    given: dict[str, Any] = {"pool": "h100", "stage": stage, **more}
    if stage == "canary":
        given = {"canary_nodes": ("node-00",), "until": at(3600), **given}
    return PoolRollout(**given)


def settings(*rows: PoolRollout, **more: Any) -> ResponderSettings:
    return AUTO.model_copy(update={"rollout": rows, **more})


def pooled(pool: str | None = "h100") -> ClusterView:
    view = cluster()
    for fact in list(view.nodes.values()):
        view.put(replace(fact, pool=pool))
    return view


def board(policy: ResponderSettings, pool: str | None = "h100") -> PartitionState:
    made = PartitionState(LIBRARY, policy, TICKETLESS)
    for fact in pooled(pool).nodes.values():
        made.take_fact(fact.key, fact)
    return made


@pytest.mark.parametrize(
    ("rows", "now", "held"),
    [
        ((), 0, ""),
        ((row("act"),), 0, ""),
        ((row("observe"),), 0, "pool h100 is in stage observe"),
        ((row("canary"),), 0, "none of its canaries (node-00)"),
        ((row("canary", canary_nodes=("node-0*",)),), 0, ""),
        ((row("canary", canary_nodes=4),), 0, ""),
        ((row("canary", canary_nodes=3),), 0, "node-00, node-01, node-02"),
        ((row("canary", canary_nodes=("node-0*",)),), 3600, "since its stage canary ended"),
        ((row("act", until=at(60)),), 59, ""),
        ((row("act", until=at(60)),), 60, "is in stage observe, since its stage act ended"),
        ((row("act", until=at(60), then="canary", canary_nodes=("node-03",)),), 61, ""),
        ((row("observe", pool="*"), row("act")), 0, ""),
        ((row("observe", pool="*"),), 0, "pool h100 is in stage observe"),
        ((row("observe", pool="a100"),), 0, ""),
    ],
)
def test_a_stage_says_which_nodes_are_acted_on(rows: tuple[PoolRollout, ...], now: float, held: str) -> None:
    found = held_by_rollout(NODE, pooled(), rows, None, at(now))
    assert (found.reason if found is not None else "").count(held) or (not held and found is None)
    assert (found is None) is (not held)


def test_a_node_without_a_pool_has_the_row_of_all_others() -> None:
    found = held_by_rollout(NODE, pooled(None), (row("observe", pool="*"),), None, NOW)
    assert found is not None
    assert found.reason.startswith("a node without a pool")


@pytest.mark.parametrize(
    "given",
    [
        {"pool": "h100", "stage": "canary", "canary_nodes": 2},
        {"pool": "h100", "stage": "canary", "until": at(60)},
        {"pool": "h100", "stage": "canary", "canary_nodes": 0, "until": at(60)},
        {"pool": "h100", "stage": "canary", "canary_nodes": 2, "until": at(60), "then": "act"},
        {"pool": "h100", "stage": "act", "until": at(60), "then": "act"},
        {"pool": "h100", "stage": "act", "until": at(60), "then": "canary"},
        {"pool": "h100", "stage": "observe", "until": at(60)},
        {"pool": "h100", "stage": "soon"},
    ],
    ids=[
        "no end",
        "no canaries",
        "zero canaries",
        "forward",
        "no step back",
        "to none",
        "observe ends",
        "unknown",
    ],
)
def test_a_row_that_cannot_be_meant_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PoolRollout(**given)


def test_two_rows_for_one_pool_are_refused() -> None:
    with pytest.raises(ValidationError, match="pool h100 has 2 rows"):
        ResponderSettings(rollout=(row("observe"), row("act")))


def test_in_stage_observe_a_fault_is_planned_in_shadow_and_says_why() -> None:
    played = board(settings(row("observe")))
    played.take_incident(broken(3))
    changes = turn(played, NOW)
    (run,) = played.runs.values()
    assert run.plan.mode is Mode.SHADOW
    assert changes.calls == ()
    assert run.step("cordon").verdict == "would"
    told = [entry.text for entry in changes.timeline if entry.event == "run.planned"]
    assert len(told) == 1
    assert (
        "pool h100 is in stage observe; lifts with stage canary or act in responder.rollout for h100"
        in told[0]
    )


def test_in_stage_canary_the_canaries_are_acted_on_and_the_others_are_not() -> None:
    played = board(settings(row("canary")))
    played.take_incident(broken(0))
    played.take_incident(broken(3))
    changes = turn(played, NOW)
    modes = {run.incident: run.plan.mode for run in played.runs.values()}
    assert sorted(modes.values()) == [Mode.AUTO, Mode.SHADOW]
    assert [call.effect.target.name for call in changes.calls] == ["node-00"]


def test_one_command_holds_what_is_under_way_and_lifting_it_is_for_approvers() -> None:
    policy = settings(row("act"), approvers=("grace",))
    played = board(policy)
    played.take_incident(broken(3))
    assert [call.effect.action for call in turn(played, NOW).calls] == ["cordon_node"]
    changes = turn(played, at(1), say(Verb.OBSERVE, scope="pool:h100", reason="two healthy nodes"))
    assert any("put pool h100 back to stage observe: two healthy nodes" in e.text for e in changes.timeline)
    played.take_incident(broken(5))
    turn(played, at(3))
    assert any(r.plan.mode is Mode.SHADOW for r in played.runs.values())
    refused = turn(played, at(4), say(Verb.LIFT, number=2, scope="pool:h100", actor="mallory"))
    assert any("neither among responder.approvers" in e.text for e in refused.timeline)
    lifted = turn(played, at(5), say(Verb.LIFT, number=3, scope="pool:h100", actor="grace", when=at(5)))
    assert any("grace lifted the rollback of pool h100" in e.text for e in lifted.timeline)


def test_a_step_whose_pool_was_rolled_back_says_what_it_would_do_and_what_lifts_it() -> None:
    context = replace(case(view=pooled(), settings=settings(row("act"))), control=Control(CLUSTER))
    assert judge(context) is None
    back = commanded(Control(CLUSTER), say(Verb.OBSERVE, scope="pool:h100"), AUTO, NOW).control
    found = judge(replace(context, control=back))
    assert found is not None
    assert found.rule == "rollout"
    assert "it would cordon node" in found.reason
    assert found.clears == "lifts with `faultline rollout lift h100`"
    assert switched_off(replace(context, control=back)) is not None


def test_a_rollback_outlives_a_restart_and_needs_no_settings() -> None:
    back = commanded(Control(CLUSTER), say(Verb.OBSERVE, scope="pool:h100"), AUTO, NOW).control
    assert held_by_rollout(NODE, pooled(), (), back, at(10**7)) is not None


@pytest.mark.parametrize("scope", ["", "h100", "namespace:ml", "pool:", "pool:x y"])
def test_what_is_no_pool_is_refused(scope: str) -> None:
    command = Command("cmd-9", "", CLUSTER, Verb.OBSERVE, "ada", NOW, scope=scope)
    made = commanded(Control(CLUSTER), command, AUTO, NOW)
    assert made.control.rolled_back == ()
    assert made.notes[0].event == "control.refused"


def test_what_is_not_rolled_back_cannot_be_lifted() -> None:
    made = commanded(Control(CLUSTER), say(Verb.LIFT, scope="pool:h100"), AUTO, NOW)
    assert "is not rolled back by a command" in made.notes[0].text


def test_canaries_are_chosen_by_name_among_gpu_nodes_of_the_pool() -> None:
    view = pooled()
    view.put(replace(view.nodes["node-00"], gpus=0))
    view.put(replace(view.nodes["node-01"], pool="a100"))
    assert canaries(row("canary", canary_nodes=2), view) == ["node-02", "node-03"]


def test_stages_are_ordered_by_how_far_they_go() -> None:
    assert [stage.rank for stage in (Stage.OBSERVE, Stage.CANARY, Stage.ACT)] == [0, 1, 2]
    assert StepState.WOULD.is_over
