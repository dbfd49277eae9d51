"""Above a limit a person is asked where a decisive fault keeps a job standing still; nothing waits in silence for that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runbooks.engine.guardrails.limits import share_of
from runbooks.engine.run.outcomes import recover
from runbooks.engine.wait_reasons import waits_for
from streams.model.codec import decode, encode
from streams.model.conversation import Verb
from streams.model.incident import Impact, IncidentState
from streams.model.run import Mode, Run, RunState, StepState
from tests.runbooks.engine.test_guardrails import closed
from tests.runbooks.engine.test_run import decide
from tests.runbooks.scenes import ACTIONS, NOW, Play, cluster, incident, radius

TICKETLESS = ACTIONS - {"open_ticket"}
FULL = {"max_nodes": 1}


def full(mode: Mode = Mode.AUTO) -> Play:
    """A run above the limit: another one has cordoned the one node that may be."""
    about = incident(impact=Impact(jobs=1, gpus=512), state=IncidentState.AWAITING_HUMAN)
    settings = radius(**FULL).model_copy(update={"mode": mode})
    return Play(about, actions=TICKETLESS, settings=settings, others=(closed("node-09", cluster()),))


@pytest.mark.parametrize(
    ("share", "of", "most"),
    [
        (0.1, 1, 1),
        (0.1, 4, 1),
        (0.1, 10, 1),
        (0.1, 16, 2),
        (0.1, 30, 3),
        (0.25, 4, 1),
        (1.0, 7, 7),
        (0.0, 9, 0),
    ],
)
def test_shares_round_up_and_are_one_at_least(share: float, of: int, most: int) -> None:
    assert share_of(share, of) == most


@pytest.mark.parametrize("nodes", [4, 8, 16])
def test_a_small_cluster_works_with_the_defaults(nodes: int) -> None:
    play = Play(incident(), actions=TICKETLESS, view=cluster(nodes))
    play.play(until="suspend_job")
    assert play.made == ["cordon_node"]


def test_the_question_says_the_numbers_who_waits_and_what_else_would_lift_it() -> None:
    play = full()
    play.tick()
    assert play.stands() is RunState.AWAITING_APPROVAL
    reason = play.run.step("cordon").reason
    for part in (
        "1 of 16 nodes are cordoned by Faultline, limit 1",
        "research/llm waits for it (512 GPUs)",
        "clears when approved, or when a node is returned to service",
    ):
        assert part in reason
    assert "research/llm waits for it" in waits_for(play.about, [play.run])


def test_an_approval_of_it_lifts_the_limit_for_this_run_also_after_a_takeover() -> None:
    play = full()
    play.tick()
    play.run = decode(Run, encode(play.run))
    play.take(recover(play.run, play.now))
    decide(play, Verb.APPROVE)
    play.play(until="suspend_job")
    assert play.made == ["cordon_node"]


def test_it_goes_on_by_itself_once_there_is_room() -> None:
    play = full()
    play.tick()
    play.others = ()
    play.tick(6)
    assert [call.effect.action for call in play.air] == ["cordon_node"]


def test_an_approval_given_before_the_limit_was_reached_does_not_lift_it() -> None:
    play = full(Mode.APPROVE)
    rivals, play.others = play.others, ()
    play.tick()
    assert play.run.step("cordon").reason.startswith("approval: ")
    play.others = rivals
    decide(play, Verb.APPROVE)
    assert play.state("cordon") is StepState.AWAITING_APPROVAL
    assert play.run.step("cordon").reason.startswith("blast radius: ")
    assert play.air == []
    decide(play, Verb.APPROVE, id="cmd-2")
    assert [call.effect.action for call in play.air] == ["cordon_node"]


def test_one_approval_is_enough_where_the_limit_was_reached_before_it() -> None:
    play = full(Mode.APPROVE)
    play.tick()
    decide(play, Verb.APPROVE)
    assert [call.effect.action for call in play.air] == ["cordon_node"]


def test_an_approval_of_older_versions_lifts_no_limit() -> None:
    play = full()
    play.tick()
    decide(play, Verb.APPROVE)
    old = replace(play.run, approvals=tuple(replace(one, rule="") for one in play.run.approvals))
    again = full()
    again.run = replace(again.run, approvals=old.approvals)
    again.tick()
    assert again.stands() is RunState.AWAITING_APPROVAL
    assert again.now == NOW
