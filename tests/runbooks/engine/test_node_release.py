"""Giving a node back: which hold goes, what stands against it, and that a word counts once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from connectors.base import Absent, Blocked, Done
from faultline.cli.commands.nodes import node_statuses
from runbooks.engine.partition_state import PartitionState
from streams.config.settings import ResponderSettings
from streams.model.conversation import Command, Verb
from streams.model.entity import Entity, Gpu
from streams.model.facts import Fact
from streams.model.incident import Incident, IncidentState, incident_id
from streams.model.run import EffectState, Mode
from tests.runbooks.scenes import ACTIONS, AUTO, CLUSTER, LIBRARY, ROOT, at, cluster, incident, policy

NODE = "node-03"
TICKETLESS = ACTIONS - {"open_ticket"}


def second() -> Incident:
    """Another fault of the same node."""
    root = Entity(CLUSTER, node=NODE, gpu=Gpu(pci="0000:2b:00"))
    return incident(root=root, id=incident_id(CLUSTER, root, "gpu_off_bus", 1))


def played(
    *incidents: Incident, settings: ResponderSettings = AUTO, until: str | None = None
) -> PartitionState:
    """A board on which the incidents' runs have been played to their end, or until a call of `until` is in the air."""
    board = PartitionState(LIBRARY, settings, frozenset(TICKETLESS))
    view = cluster()
    facts: list[Fact] = [*view.nodes.values(), *view.pods.values(), *view.jobs.values()]
    for fact in facts:
        board.take_fact(fact.key, fact)
    for about in incidents:
        board.take_incident(about)
        for turn in range(40):
            now = at(turn * 20)
            board.advance(now)
            calls = board.collect().calls
            if any(call.effect.action == until for call in calls):
                return board
            for call in calls:
                board.take_outcome(call, Done(), now)
    return board


def ask(board: PartitionState, **changes: object) -> list[tuple[str, str]]:
    """Ask for the node; what is said to that command."""
    said = Command("c-1", "", CLUSTER, Verb.RELEASE, "ada", at(1000), scope=f"node:{NODE}")
    said = replace(said, **changes)  # type: ignore[arg-type]
    board.take_command(said)
    board.advance(at(1000))
    return [(e.event, e.text) for e in board.collect().timeline if e.attributes.get("command") == said.id]


def held(board: PartitionState) -> list[str]:
    """The incidents for which the node stands closed."""
    (line,) = [
        n for n in node_statuses(cluster().nodes.values(), list(board.runs.values())) if n["node"] == NODE
    ]
    return [hold["incident"] for hold in line["held_for"]]


def test_a_hold_whose_run_was_lost_is_listed_by_the_nodes_own_marks() -> None:
    fact = replace(cluster().nodes[NODE], unschedulable=True, owner_incident="inc-lost")
    (line,) = node_statuses([fact], [])
    assert [(hold["incident"], hold["run"]) for hold in line["held_for"]] == [("inc-lost", "")]
    known = next(iter(played(incident()).runs.values()))
    (line,) = node_statuses([replace(fact, owner_incident=known.incident)], [known])
    assert [(hold["incident"], hold["run"]) for hold in line["held_for"]] == [(known.incident, known.id)]


def test_a_node_whose_run_is_over_is_given_back_by_the_undo_of_its_cordon() -> None:
    about = incident()
    board = played(about)
    (run,) = board.runs.values()
    assert run.outcome == "succeeded"
    assert held(board) == [about.id]
    board.take_command(
        Command("c-1", "", CLUSTER, Verb.RELEASE, "ada", at(1000), scope=f"node:{NODE}", reason="new GPU")
    )
    board.advance(at(1000))
    changes = board.collect()
    (call,) = changes.calls
    assert (call.kind, call.effect.action, call.effect.target.name) == ("undo", "cordon_node", NODE)
    assert call.effect.key == run.step("cordon").effect.key  # type: ignore[union-attr]
    board.take_outcome(call, Done(detail=f"{NODE} is schedulable again"), at(1001))
    said = [(e.actor, e.event, e.text) for e in (*changes.timeline, *board.collect().timeline)]
    assert ("ada", "person.released", f"Node {NODE} released by ada: new GPU") in said
    assert said[-1][1:] == (
        "step.undone",
        f"rolling back cordon_node Node {NODE}: {NODE} is schedulable again",
    )
    assert held(board) == []
    assert not board.runs[run.id].has_work
    assert board.runs[run.id].outcome == "succeeded"


def test_a_command_read_again_gives_nothing_back_twice() -> None:
    board = played(incident())
    assert [event for event, _ in ask(board)] == ["person.released"]
    assert ask(board) == []


def test_what_a_person_changed_meanwhile_stays_and_can_be_asked_for_again() -> None:
    board = played(incident())
    board.take_command(Command("c-1", "", CLUSTER, Verb.RELEASE, "ada", at(1000), scope=f"node:{NODE}"))
    board.advance(at(1000))
    (call,) = board.collect().calls
    board.take_outcome(call, Blocked.person(f"a person uncordoned {NODE}"), at(1001))
    assert [e.event for e in board.collect().timeline] == ["step.not_undone"]
    assert [event for event, _ in ask(board, id="c-2")] == ["person.released"]


def test_an_undo_whose_end_nobody_saw_is_looked_up_before_it_is_sent_again() -> None:
    board = played(incident())
    board.take_command(Command("c-1", "", CLUSTER, Verb.RELEASE, "ada", at(1000), scope=f"node:{NODE}"))
    board.advance(at(1000))
    board.collect()
    heir = PartitionState(LIBRARY, AUTO, frozenset(TICKETLESS), board.runs)
    heir.take_incident(incident())
    list(heir.recovering(at(1001)))
    heir.advance(at(1060))
    (call,) = heir.collect().calls
    assert call.kind == "undo_lookup"
    heir.take_outcome(call, Absent(), at(1061))
    (run,) = heir.runs.values()
    assert run.step("cordon").undo.state is EffectState.UNDONE  # type: ignore[union-attr]


def test_a_node_that_two_incidents_hold_is_given_back_for_one_at_a_time() -> None:
    one, other = incident(), second()
    board = played(one, other)
    assert sorted(held(board)) == sorted([one.id, other.id])
    ((event, text),) = ask(board)
    assert event == "person.release_refused"
    assert one.id in text
    assert other.id in text
    assert "--incident" in text
    ((event, text),) = ask(board, id="c-2", incident=other.id)
    assert event == "person.released"
    assert f"it stays cordoned for {one.id}" in text
    undone = {run.incident for run in board.runs.values() if run.step("cordon").undo is not None}
    assert undone == {other.id}


def opened(view_changes: dict[str, object]) -> Callable[[PartitionState], None]:
    def change(board: PartitionState) -> None:
        for name in list(board.runs):
            board.runs.forget(name)
        board.take_fact(f"{CLUSTER}/node/{NODE}", replace(cluster().nodes[NODE], **view_changes))  # type: ignore[arg-type]

    return change


@pytest.mark.parametrize(
    ("arrange", "changes", "said"),
    [
        (opened({}), {}, "is not held"),
        (opened({"unschedulable": True}), {}, "cordoned by somebody else"),
        (opened({"owner_incident": "inc-old"}), {}, "has annotations of inc-old"),
        (opened({}), {"scope": "node:node-99"}, "no node node-99 in the inventory"),
        (opened({}), {"scope": "node:$(reboot)"}, "names no node"),
        (opened({}), {"scope": ""}, "names no node"),
        (lambda board: None, {"incident": "inc-none"}, "is not held for inc-none, but for"),
        (lambda board: None, {"at": at(-7200)}, "count as fresh"),
    ],
)
def test_what_stands_against_it_is_said(
    arrange: Callable[[PartitionState], None], changes: dict[str, object], said: str
) -> None:
    board = played(incident())
    arrange(board)
    ((event, text),) = ask(board, **changes)
    assert event == "person.release_refused"
    assert said in text
    assert board.collect().calls == ()


def test_a_run_that_is_still_at_work_on_the_node_keeps_it() -> None:
    board = played(incident(), until="drain_node")
    ((event, text),) = ask(board)
    assert event == "person.release_refused"
    assert "is still at work" in text
    assert "incidents stop" in text


def test_only_who_may_approve_gives_a_node_back() -> None:
    board = played(incident(), settings=policy(approvers=("eve",)))
    ((event, text),) = ask(board)
    assert (event, "ada is not an approver" in text) == ("person.release_refused", True)
    assert [event for event, _ in ask(board, id="c-2", actor="eve")] == ["person.released"]


def test_a_run_in_shadow_holds_nothing() -> None:
    board = played(incident(), settings=policy(mode=Mode.SHADOW))
    assert held(board) == []
    ((event, text),) = ask(board)
    assert (event, f"{NODE} is not held" in text) == ("person.release_refused", True)


def test_a_node_given_back_is_closed_anew_only_for_a_new_incident() -> None:
    about = incident()
    board = played(about)
    board.take_command(Command("c-1", "", CLUSTER, Verb.RELEASE, "ada", at(1000), scope=f"node:{NODE}"))
    board.advance(at(1000))
    (call,) = board.collect().calls
    board.take_outcome(call, Done(), at(1001))
    board.take_incident(replace(about, revision=2, state=IncidentState.OPEN, updated_at=at(1002)))
    board.advance(at(1002))
    assert board.collect().calls == ()
    again = incident(
        id=incident_id(CLUSTER, ROOT, "gpu_off_bus", 2),
        incarnation=2,
        updated_at=at(1003),
        opened_at=at(1003),
    )
    board.take_incident(again)
    board.advance(at(1003))
    assert [c.effect.action for c in board.collect().calls] == ["cordon_node"]
