"""An incident whose node stays closed is contained: what is owed is read off the run and the node, and ends with either."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from connectors.base import Done
from runbooks.engine.containment import Ticket, is_contained, pending_repairs, plain_of, shown_state
from runbooks.engine.partition_state import PartitionState
from streams.config.settings import ResponderSettings
from streams.model.conversation import Command, Verb
from streams.model.facts import Fact, NodeFact
from streams.model.incident import Incident, IncidentState
from streams.model.run import Mode, Run
from tests.runbooks.scenes import ACTIONS, AUTO, CLUSTER, LIBRARY, at, cluster, incident, policy

NODE = "node-03"
TAINT = f"faultline.dev/incident={incident().id}:NoSchedule"


def played(about: Incident, settings: ResponderSettings = AUTO) -> PartitionState:
    """A board on which the incident's run has come to its end, with a ticket."""
    board = PartitionState(LIBRARY, settings, ACTIONS)
    view = cluster()
    facts: list[Fact] = [*view.nodes.values(), *view.pods.values(), *view.jobs.values()]
    for fact in facts:
        board.take_fact(fact.key, fact)
    board.take_incident(about)
    for turn in range(40):
        board.advance(at(turn * 20))
        for call in board.collect().calls:
            opened = {"ticket": "GPU-61", "url": "https://jira.example/browse/GPU-61"}
            board.take_outcome(
                call, Done(opened if call.effect.action == "open_ticket" else {}), at(turn * 20)
            )
    return board


def runs_of(about: Incident, settings: ResponderSettings = AUTO) -> list[Run]:
    return played(about, settings).runs.of(about.id)


def nodes(name: str = NODE, **changes: Any) -> Mapping[str, NodeFact]:
    """The cluster an hour later, with the node closed by the incident unless told otherwise."""
    closed: dict[str, Any] = {"unschedulable": True, "owner_incident": incident().id}
    closed |= {"taints": (TAINT,), "observed_at": at(3600), **changes}
    known = dict(cluster().nodes)
    return known | {name: replace(known[name], **closed)}


def over() -> Incident:
    return incident(state=IncidentState.RESOLVED, closed_at=at(900), revision=9)


def test_a_node_that_stays_closed_is_owed_under_its_ticket() -> None:
    (one,) = pending_repairs(incident().id, runs_of(incident()), nodes())
    assert one.text == f"{NODE} stays cordoned for GPU-61"
    assert one.way_out == f"faultline nodes release {NODE}"
    assert (one.gpus, one.ticket) == (8, Ticket("GPU-61", "https://jira.example/browse/GPU-61"))
    assert plain_of(one).keys() == {"node", "gpus", "since", "ticket", "url"}
    assert is_contained(over(), [one])
    assert (shown_state(over(), [one]), shown_state(over(), [])) == ("contained", "resolved")
    assert shown_state(incident(state=IncidentState.MITIGATING), [one]) == "mitigating"


@pytest.mark.parametrize(
    ("changes", "stays"),
    [
        ({}, True),
        ({"unschedulable": False, "owner_incident": None, "taints": ()}, False),
        ({"unschedulable": True, "owner_incident": None, "taints": ()}, False),
        ({"uid": "uid-new", "unschedulable": False, "owner_incident": None, "taints": ()}, False),
        ({"uid": "uid-new", "unschedulable": True, "owner_incident": None, "taints": ()}, False),
        ({"owner_incident": "inc-of-another"}, True),
        ({"unschedulable": False, "taints": ()}, False),
        ({"unschedulable": False, "owner_incident": None, "taints": (), "observed_at": at(0)}, True),
    ],
    ids=[
        "closed", "given back", "a person took it over", "made anew", "made anew and closed by a person",
        "another incident holds it too", "opened by hand with the annotation left behind", "news from before the cordon",
    ],
)  # fmt: skip
def test_what_the_inventory_shows_of_the_node_decides(changes: dict[str, Any], stays: bool) -> None:
    assert bool(pending_repairs(incident().id, runs_of(incident()), nodes(**changes))) is stays


def test_a_node_that_is_gone_is_owed_no_more_and_without_any_inventory_the_run_is_believed() -> None:
    runs = runs_of(incident())
    gone = {name: fact for name, fact in nodes().items() if name != NODE}
    assert pending_repairs(incident().id, runs, gone) == ()
    assert [one.node for one in pending_repairs(incident().id, runs, {})] == [NODE]


def test_a_node_opened_by_hand_that_keeps_our_taint_is_told_as_that() -> None:
    (one,) = pending_repairs(incident().id, runs_of(incident()), nodes(unschedulable=False))
    assert one.text == f"{NODE} was uncordoned manually but still has Faultline's taint for GPU-61"
    assert one.way_out == f"kubectl taint node {NODE} faultline.dev/incident-"


def test_the_marks_tell_of_a_node_whose_run_is_long_forgotten() -> None:
    (one,) = pending_repairs(incident().id, (), nodes())
    assert one.text == f"{NODE} stays cordoned, and its run is not on record"
    assert pending_repairs("inc-of-another", (), nodes()) == ()
    both = nodes(owner_incident=f"{incident().id},inc-of-another")
    assert [
        one.node for name in (incident().id, "inc-of-another") for one in pending_repairs(name, (), both)
    ] == [
        NODE,
        NODE,
    ]


def test_in_shadow_nothing_is_closed_and_nothing_owed() -> None:
    runs = runs_of(incident(), policy(mode=Mode.SHADOW))
    assert runs[0].outcome == "shadowed"
    open_ = nodes(unschedulable=False, owner_incident=None, taints=())
    assert pending_repairs(incident().id, runs, open_) == ()


def test_what_was_given_back_is_owed_no_more_before_the_inventory_shows_it() -> None:
    board = played(incident())
    board.take_command(Command("c-1", "", CLUSTER, Verb.RELEASE, "ada", at(1000), scope=f"node:{NODE}"))
    board.advance(at(1000))
    for call in board.collect().calls:
        board.take_outcome(call, Done(), at(1001))
    gone = nodes(unschedulable=False, owner_incident=None, taints=())
    assert pending_repairs(incident().id, board.runs.of(incident().id), gone) == ()


def test_an_incident_is_resolved_once_and_whoever_comes_later_is_told_since_when() -> None:
    board = played(incident())
    board.take_incident(over())
    board.take_command(Command("c-2", incident().id, CLUSTER, Verb.RESOLVE, "bob", at(1000)))
    board.advance(at(1000))
    changes = board.collect()
    (answer,) = [e for e in changes.timeline if e.attributes.get("command") == "c-2"]
    assert answer.event == "command.refused"
    assert answer.text.endswith(f"{incident().id} has been over since 2026-03-01T12:15:00Z")
    assert not changes.signals


def test_a_second_word_that_comes_before_the_correlator_has_spoken_is_told_who_was_first() -> None:
    board = PartitionState(LIBRARY, policy(mode=Mode.APPROVE), ACTIONS)
    board.take_incident(incident())
    board.advance(at(0))
    for name, actor in (("c-1", "ada"), ("c-1", "ada"), ("c-2", "bob")):
        board.take_command(Command(name, incident().id, CLUSTER, Verb.RESOLVE, actor, at(60)))
    board.advance(at(60))
    said = board.collect().timeline
    (refused,) = [entry for entry in said if entry.event == "command.refused"]
    assert refused.attributes["command"] == "c-2"
    assert refused.text.endswith("ada resolved it at 2026-03-01T12:01:00Z")
    assert [entry.event for entry in said].count("person.resolved") == 1
