"""Kill switch, freezes and breaker on a whole board: who may, what stops, what goes on, and what a restart remembers."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from connectors.base import Done, Refused
from runbooks.engine.cluster_controls import MAX_CHANGES, MAX_COMMANDS, commanded
from runbooks.engine.commit_batch import CommitBatch
from runbooks.engine.partition_state import PartitionState
from streams.config.settings import BlastRadius, Breaker, ResponderSettings
from streams.model.codec import decode, encode
from streams.model.control import Control
from streams.model.conversation import Command, Verb
from streams.model.entity import Entity, Gpu
from streams.model.incident import Incident
from streams.model.run import Mode, RunState, StepState
from tests.runbooks.engine.test_dangers import TICKETLESS, board
from tests.runbooks.scenes import AUTO, CLUSTER, LIBRARY, NOW, at, cluster, incident, policy

WIDE = BlastRadius(max_nodes=16, max_share=1.0, max_per_window=1000)


def say(verb: Verb, *, number: int = 1, when: datetime = NOW, actor: str = "ada", **more: Any) -> Command:
    return Command(f"cmd-{number}", "", CLUSTER, verb, actor, when, **more)


def turn(played: PartitionState, now: datetime, *commands: Command) -> CommitBatch:
    for command in commands:
        played.take_command(command)
    played.advance(now)
    return played.collect()


def broken(node: int, gpu: int = 0, **changes: Any) -> Incident:
    return incident(
        root=Entity(CLUSTER, node=f"node-{node:02}", gpu=Gpu(pci=f"0000:{gpu:02x}:00")), jobs=(), **changes
    )


def actions(changes: CommitBatch) -> list[str]:
    return [call.effect.action for call in changes.calls]


def successor(changes: CommitBatch, settings: ResponderSettings = AUTO) -> PartitionState:
    """A board that knows only what was committed."""
    made = PartitionState(LIBRARY, settings, TICKETLESS, {run.id: run for run in changes.runs})
    for fact in cluster().nodes.values():
        made.take_fact(fact.key, fact)
    for control in changes.controls:
        made.take_control(decode(Control, encode(control)))
    list(made.recovering(NOW))
    return made


def test_the_switch_stops_a_running_run_at_its_next_step_and_its_job_is_given_back() -> None:
    played = board()
    played.take_incident(incident())
    call = turn(played, NOW).calls[0]
    played.take_outcome(call, Done(), NOW)
    call = turn(played, NOW).calls[0]
    assert call.effect.action == "suspend_job"
    played.take_outcome(call, Done(), NOW)
    changes = turn(played, at(1), say(Verb.KILL, reason="odd readings"))
    assert actions(changes) == []
    run = played.runs[call.run]
    held = [r for r in run.steps if r.state is StepState.BLOCKED]
    assert "engaged by ada" in held[0].reason
    changes = turn(played, at(602))
    assert [(c.kind, c.effect.action) for c in changes.calls][-1] in {
        ("undo", "suspend_job"),
        ("apply", "resume_job"),
    }


def test_the_switch_is_on_the_timeline_of_the_cluster_and_outlives_a_restart() -> None:
    played = board()
    changes = turn(played, NOW, say(Verb.KILL, reason="odd readings"))
    entry = changes.timeline[-1]
    assert (entry.incident, entry.cluster, entry.actor, entry.event) == ("", CLUSTER, "ada", "control.kill")
    assert "odd readings" in entry.text
    again = successor(changes)
    again.take_incident(incident())
    assert actions(turn(again, NOW)) == []
    assert actions(turn(again, at(6), say(Verb.UNKILL, number=2, when=at(6)))) == ["cordon_node"]


def test_an_older_revision_of_the_control_changes_nothing() -> None:
    played = board()
    turn(played, NOW, say(Verb.KILL))
    played.take_control(Control(CLUSTER))
    assert played.control(CLUSTER).kill_switch is not None


def test_a_command_counts_once_and_what_is_kept_of_them_is_bounded() -> None:
    control = Control(CLUSTER)
    for number in range(300):
        control = commanded(control, say(Verb.KILL, number=number, reason="x" * 5000), AUTO, NOW).control
    assert commanded(control, say(Verb.KILL, number=299), AUTO, NOW).control == control
    assert len(control.commands) == MAX_COMMANDS
    assert len(control.changes) == MAX_CHANGES
    assert len(encode(control)) < 64 * 1024


@pytest.mark.parametrize(
    ("command", "settings", "says"),
    [
        (say(Verb.UNKILL), AUTO, "not engaged by a command"),
        (say(Verb.UNKILL), policy(kill_switch=True), "it is on in the settings"),
        (say(Verb.RESET), AUTO, "the breaker has not tripped"),
        (say(Verb.RESET, when=at(-3700)), AUTO, "given 3700 s ago, at most 3600 s"),
        (say(Verb.THAW, scope="pool:a"), AUTO, "pool a is not frozen, nothing is"),
        (say(Verb.FREEZE, scope="rack:r1"), AUTO, "'rack:r1' is no scope"),
        (say(Verb.FREEZE, scope="pool:" + "x" * 300), AUTO, "is no scope"),
        (say(Verb.FREEZE, until=at(-1)), AUTO, "would have ended"),
        (say(Verb.UNKILL), policy(approvers=("bo",)), "ada is neither among responder.approvers"),
        (say(Verb.THAW), policy(approval_groups={"sre": ("bo",)}), "nor in an approval group"),
    ],
)
def test_a_word_that_does_not_count_is_told_why(
    command: Command, settings: ResponderSettings, says: str
) -> None:
    changed = commanded(Control(CLUSTER), command, settings, NOW)
    assert says in changed.notes[0].text
    assert changed.notes[0].event == "control.refused"
    left = changed.control
    assert (left.kill_switch, left.freezes, left.breaker, left.reset_at) == (None, (), None, None)


def test_anybody_may_stop_but_only_approvers_let_go_on() -> None:
    settings = policy(approvers=("bo",))
    control = commanded(Control(CLUSTER), say(Verb.KILL), settings, NOW).control
    assert control.kill_switch is not None
    still = commanded(control, say(Verb.UNKILL, number=2), settings, NOW).control
    assert still.kill_switch is not None
    assert commanded(still, say(Verb.UNKILL, number=3, actor="bo"), settings, NOW).control.kill_switch is None


def test_a_freeze_ends_by_itself_and_says_so() -> None:
    played = board()
    turn(played, NOW, say(Verb.FREEZE, scope="namespace:research", until=at(30)))
    played.take_incident(incident())
    assert actions(turn(played, at(1))) == []
    changes = turn(played, at(31))
    assert played.control(CLUSTER).freezes == ()
    assert any("namespace research is over" in entry.text for entry in changes.timeline)
    assert [*actions(changes), *actions(turn(played, at(40)))] == ["cordon_node"]


def test_mass_faults_trip_the_breaker_before_anything_is_closed() -> None:
    played = board(policy(blast_radius=WIDE))
    for node in range(8):
        played.take_incident(broken(node))
    changes = turn(played, NOW)
    assert actions(changes) == []
    tripped = played.control(CLUSTER).breaker
    assert tripped is not None
    assert tripped.rule == "mass faults"
    assert "8 of 16 nodes, limit 8 (mass_share 0.3, mass_min_nodes 8)" in tripped.reason
    assert any(e.event == "control.trip" for e in changes.timeline)


def test_fewer_faults_or_faults_of_long_ago_do_not_trip_it() -> None:
    played = board(policy(blast_radius=WIDE))
    for node in range(7):
        played.take_incident(broken(node))
    for node in range(7, 14):
        played.take_incident(broken(node, opened_at=at(-700)))
    assert len(turn(played, NOW).calls) == 14
    assert played.control(CLUSTER).breaker is None


OLD: dict[str, Any] = {"evident_at": at(-7200), "evident_read_at": NOW}
"""A line that was two hours old when it was read."""


def test_faults_that_were_old_when_read_trip_nothing_and_hold_up_no_fresh_one() -> None:
    played = board(policy(blast_radius=WIDE))
    for node in range(10):
        played.take_incident(broken(node, **OLD))
    assert actions(turn(played, NOW)) == []
    played.take_incident(broken(12, opened_at=at(20), updated_at=at(20), evident_at=at(20)))
    changes = turn(played, at(20))
    assert played.control(CLUSTER).breaker is None
    assert [(call.effect.action, call.effect.target.name) for call in changes.calls] == [
        ("cordon_node", "node-12")
    ]
    asked = [run for run in played.runs.values() if run.state is RunState.AWAITING_APPROVAL]
    assert {run.step("cordon").reason.split(":")[0] for run in asked} == {"old evidence"}
    assert len(asked) == 10


def test_old_faults_that_newer_evidence_shows_again_do_trip_it() -> None:
    played = board(policy(blast_radius=WIDE))
    for node in range(10):
        played.take_incident(broken(node, **OLD))
    turn(played, NOW)
    for node in range(8):
        played.take_incident(broken(node, revision=2, updated_at=at(20), evident_at=at(20)))
    assert actions(turn(played, at(20))) == []
    assert played.control(CLUSTER).breaker is not None


def test_old_faults_that_a_person_approves_by_the_dozen_trip_it() -> None:
    played = board(policy(blast_radius=WIDE))
    faults = [broken(node, **OLD) for node in range(10)]
    for about in faults:
        played.take_incident(about)
    turn(played, NOW)
    words = [
        Command(f"yes-{i}", about.id, CLUSTER, Verb.APPROVE, "ada", at(5), digest=run.plan.digest)
        for i, about in enumerate(faults)
        for run in played.runs.values()
        if run.incident == about.id
    ]
    assert actions(turn(played, at(5), *words)) == []
    assert played.control(CLUSTER).breaker is not None


def test_after_a_reset_what_came_before_trips_it_no_more_and_old_news_is_asked_about() -> None:
    settings = policy(blast_radius=WIDE, freshness_s=600.0)
    played = board(settings)
    for node in range(8):
        played.take_incident(broken(node))
    first = turn(played, NOW)
    again = successor(first, settings)
    for node in range(8):
        again.take_incident(broken(node))
    assert actions(turn(again, at(700))) == []
    again.take_incident(broken(9, opened_at=at(690), updated_at=at(690)))
    changes = turn(again, at(705), say(Verb.RESET, number=2, when=at(700), reason="sensor mended"))
    assert again.control(CLUSTER).breaker is None
    calls = [*changes.calls, *turn(again, at(712)).calls]
    assert [call.effect.target.name for call in calls] == ["node-09"]
    asking = [run for run in again.runs.values() if run.state is RunState.AWAITING_APPROVAL]
    assert len(asking) == 8
    assert all(
        "freshness" in record.reason for run in asking for record in run.steps if record.id == "cordon"
    )


def test_run_after_run_that_fails_trips_the_breaker() -> None:
    played = board(policy(blast_radius=WIDE, breaker=Breaker(failures=2)))
    for node in (1, 2):
        played.take_incident(broken(node))
        call = turn(played, at(node)).calls[0]
        played.take_outcome(call, Refused("no permission"), at(node))
        turn(played, at(node))
    tripped = played.control(CLUSTER).breaker
    assert tripped is not None
    assert tripped.rule == "failures"
    assert "2 runs that had started to act failed within 7200 s, limit 2" in tripped.reason
    played.take_incident(broken(3))
    assert actions(turn(played, at(9))) == []
    turn(played, at(10), say(Verb.RESET, number=5, when=at(10)))
    assert played.control(CLUSTER).breaker is None
    assert len(played.runs) == 3


def test_runs_in_shadow_say_what_would_trip_and_trip_nothing_that_lasts() -> None:
    played = board(policy(mode=Mode.SHADOW, blast_radius=WIDE))
    for node in range(8):
        played.take_incident(broken(node))
    changes = turn(played, NOW)
    assert played.control(CLUSTER) == Control(CLUSTER)
    reasons = {run.step("cordon").reason.split(":")[0] for run in changes.runs}
    assert reasons == {"breaker"}
    played.take_incident(replace(broken(9), opened_at=at(650), updated_at=at(650)))
    later = turn(played, at(660))
    assert [run.step("cordon").verdict for run in later.runs] == ["would"]
