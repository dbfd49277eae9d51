"""What others do to nodes and jobs is told once, to the incidents it concerns; what Faultline did is not."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from connectors.base import Done
from runbooks.engine.external_changes import MAX_UNASSIGNED
from runbooks.engine.partition_state import PartitionState
from streams.config.settings import ResponderSettings
from streams.model.conversation import TimelineEntry
from streams.model.entity import JobRef
from streams.model.facts import Fact, JobFact, NodeFact
from streams.model.incident import Incident, IncidentState
from streams.model.run import Mode
from tests.runbooks.scenes import (
    ACTIONS,
    AUTO,
    CLUSTER,
    JOB,
    LIBRARY,
    OTHER_JOB,
    ROOT,
    at,
    cluster,
    incident,
    policy,
)

NODE = "node-03"
KEY = f"{CLUSTER}/node/{NODE}"
SHADOW = policy(mode=Mode.SHADOW)


def board_of(*incidents: Incident, settings: ResponderSettings = SHADOW) -> PartitionState:
    """A board that has read a whole inventory, as at take-up: none of it is news."""
    board = PartitionState(LIBRARY, settings, frozenset(ACTIONS - {"open_ticket"}))
    view = cluster()
    facts: list[Fact] = [*view.nodes.values(), *view.pods.values(), *view.jobs.values()]
    for fact in facts:
        board.take_fact(fact.key, fact)
    for about in incidents:
        board.take_incident(about)
    board.advance(at(0))
    board.collect()
    return board


def change(board: PartitionState, seconds: float = 60, name: str = NODE, **changes: Any) -> None:
    """The node as a person has changed it, as news."""
    old = board.view(CLUSTER).nodes[name]
    new = replace(old, observed_at=at(seconds), **changes)
    board.take_fact(new.key, new, at(seconds))


def told(board: PartitionState, now: datetime | None = None) -> list[TimelineEntry]:
    board.advance(now or at(61))
    return [entry for entry in board.collect().timeline if entry.event.startswith("observed.")]


def acts(board: PartitionState, now: datetime | None = None) -> list[tuple[str, str]]:
    return [(entry.event.removeprefix("observed."), entry.incident) for entry in told(board, now)]


OWN_TAINT = "faultline.dev/incident=inc-1:NoSchedule"
OWN: dict[str, Any] = {"owner_incident": "inc-1", "taints": (OWN_TAINT,), "unschedulable": True}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, {"unschedulable": True}, ["node_cordoned"]),
        ({"unschedulable": True}, {"unschedulable": False}, ["node_uncordoned"]),
        ({}, {"taints": ("repair=yes:NoSchedule",)}, ["node_tainted"]),
        ({"taints": ("repair=yes:NoSchedule",)}, {"taints": ()}, ["node_untainted"]),
        ({}, {"taints": ("node.kubernetes.io/unreachable=:NoExecute",)}, []),
        ({}, {"maintenance": True}, ["node_maintenance"]),
        ({}, {"managed": False}, ["node_opted_out"]),
        ({"boot_id": "a"}, {"boot_id": "b"}, ["node_rebooted"]),
        ({}, {"boot_id": "b"}, []),
        ({}, {"uid": "uid-new", "unschedulable": True}, ["node_replaced"]),
        ({}, {"ready": False}, []),
        ({}, {"gpus_allocatable": 7}, []),
        ({}, OWN, []),
        (OWN, {"unschedulable": False}, ["node_uncordoned"]),
        (OWN, {"taints": (OWN_TAINT, "repair=yes:NoSchedule")}, ["node_tainted"]),
    ],
)
def test_what_is_read_off_a_node(before: dict[str, Any], after: dict[str, Any], expected: list[str]) -> None:
    board = board_of(incident())
    board.take_fact(KEY, replace(board.view(CLUSTER).nodes[NODE], **before))
    change(board, **after)
    assert [act for act, _ in acts(board)] == expected


def test_a_node_that_is_deleted_and_one_that_was_never_known() -> None:
    board = board_of(incident())
    board.take_fact(KEY, None, at(60))
    board.take_fact(f"{CLUSTER}/node/never", None, at(60))
    new = NodeFact(CLUSTER, "node-new", "uid-new", at(60), unschedulable=True)
    board.take_fact(new.key, new, at(60))
    assert acts(board) == [("node_deleted", incident().id)]


def test_what_was_taken_in_before_is_not_told_again() -> None:
    board = board_of(incident())
    board.take_fact(KEY, replace(board.view(CLUSTER).nodes[NODE], unschedulable=True))
    assert acts(board) == []


def job_of(board: PartitionState, ref: JobRef = JOB, **changes: Any) -> None:
    made = JobFact(CLUSTER, ref, at(60))
    board.take_fact(made.key, replace(made, **changes), at(60))


def test_what_is_read_off_a_job_of_an_incident() -> None:
    board = board_of(incident())
    job_of(board, suspended=True)
    job_of(board)
    board.take_fact(f"{CLUSTER}/job/{JOB.key}", None, at(60))
    job_of(board, replace(JOB, uid="uid-again"))
    job_of(board, OTHER_JOB, suspended=True)
    about = incident().id
    assert acts(board) == [
        (act, about) for act in ("job_suspended", "job_resumed", "job_deleted", "job_restarted")
    ]


def test_a_job_that_ends_is_nobodys_act() -> None:
    board = board_of(incident())
    job_of(board, finished=True)
    board.take_fact(f"{CLUSTER}/job/{JOB.key}", None, at(60))
    assert acts(board) == []


def test_a_closed_node_is_drained_when_the_last_pod_of_a_job_has_gone() -> None:
    board = board_of(incident())
    change(board, unschedulable=True)
    (pod,) = [pod for pod in board.view(CLUSTER).pods.values() if pod.node == NODE]
    board.take_fact(pod.key, replace(pod, ended_at=at(70), observed_at=at(70)), at(70))
    board.take_fact(pod.key, None, at(75))
    assert [act for act, _ in acts(board)] == ["node_cordoned", "node_drained"]
    open_node = next(pod for pod in board.view(CLUSTER).pods.values() if pod.node != NODE)
    board.take_fact(open_node.key, None, at(80))
    assert acts(board) == []


def test_a_repair_is_told_to_an_incident_that_is_over_for_a_day() -> None:
    over = incident(state=IncidentState.RESOLVED, closed_at=at(0))
    board = board_of(over)
    change(board, unschedulable=True)
    assert acts(board) == [("node_cordoned", over.id)]
    change(board, seconds=25 * 3600, unschedulable=False)
    assert acts(board) == [("node_uncordoned", "")]


def test_nodes_without_an_incident_are_told_of_at_a_bounded_rate_and_the_rest_is_counted() -> None:
    board = board_of()
    for number in range(MAX_UNASSIGNED + 15):
        change(board, seconds=60 + number, unschedulable=number % 2 == 0)
    first = told(board)
    assert len(first) == MAX_UNASSIGNED
    assert {entry.incident for entry in first} == {""}
    later = 60 + timedelta(minutes=11).total_seconds()
    change(board, seconds=later, unschedulable=False)
    change(board, seconds=later + 1, unschedulable=True)
    said = told(board)
    assert said[0].text.startswith("15 more changes")
    assert [entry.event for entry in said[1:]] == ["observed.node_uncordoned", "observed.node_cordoned"]


@pytest.mark.parametrize("off_s", [0, 400, -400])
def test_what_a_run_does_itself_is_not_told_and_what_a_person_does_to_the_same_is(off_s: int) -> None:
    """Also where the inventory's clock is minutes ahead of the responder's, or behind it."""
    board = board_of(settings=AUTO)
    board.take_incident(incident())
    said: list[TimelineEntry] = []
    for turn in range(12):
        board.advance(at(turn))
        changes = board.collect()
        said += changes.timeline
        for call in changes.calls:
            board.take_outcome(call, Done(), at(turn))
            if call.effect.action == "cordon_node":
                change(board, turn + off_s, NODE, **(OWN | {"owner_incident": incident().id}))
            if call.effect.action in ("suspend_job", "resume_job"):
                made = JobFact(CLUSTER, JOB, at(turn + off_s), suspended=call.effect.action == "suspend_job")
                board.take_fact(made.key, made, at(turn + off_s))
            if call.effect.action == "drain_node":
                for pod in [p for p in board.view(CLUSTER).pods.values() if p.node == NODE]:
                    board.take_fact(pod.key, None, at(turn + off_s))
    assert {s.effect.action for s in next(iter(board.runs.values())).steps if s.effect} >= {
        "cordon_node", "suspend_job", "drain_node", "resume_job",
    }  # fmt: skip
    said += told(board, at(12))
    assert [entry.text for entry in said if entry.event.startswith("observed.")] == []
    made = JobFact(CLUSTER, JOB, at(900 + off_s), suspended=True)
    board.take_fact(made.key, made, at(900 + off_s))
    change(board, seconds=901 + off_s, unschedulable=False)
    assert [act for act, _ in acts(board, at(902))] == ["job_suspended", "node_uncordoned"]


def test_a_node_that_our_suspend_has_emptied_was_drained_by_nobody_else() -> None:
    board = board_of(settings=AUTO)
    board.take_incident(incident(root=replace(ROOT, node="node-02"), nodes=("node-02",)))
    (pod,) = [pod for pod in cluster().pods.values() if pod.node == NODE]
    assert pod.job == JOB
    said: list[TimelineEntry] = []
    for turn in range(6):
        board.advance(at(turn))
        changes = board.collect()
        said += changes.timeline
        for call in changes.calls:
            board.take_outcome(call, Done(), at(turn))
            if call.effect.action == "suspend_job":
                change(board, turn, NODE, unschedulable=True)
                board.take_fact(pod.key, None, at(turn + 8))
    observed = [entry.event for entry in said if entry.event.startswith("observed.")]
    assert observed == ["observed.node_cordoned"], "the cordon is a person's, the empty node is ours"


def test_a_job_that_ended_by_itself_and_a_dead_node_are_drained_by_nobody() -> None:
    (pod,) = [pod for pod in cluster().pods.values() if pod.node == NODE]
    ended = board_of(incident())
    change(ended, unschedulable=True)
    ended.take_fact(pod.key, replace(pod, phase="Succeeded", ended_at=at(70)), at(70))
    assert [act for act, _ in acts(ended)] == ["node_cordoned"]
    finished = board_of(incident())
    change(finished, unschedulable=True)
    job_of(finished, finished=True)
    finished.take_fact(pod.key, None, at(70))
    assert [act for act, _ in acts(finished)] == ["node_cordoned"]
    dead = board_of(incident())
    change(dead, unschedulable=True, taints=("node.kubernetes.io/unreachable=:NoExecute",))
    dead.take_fact(pod.key, None, at(70))
    assert [act for act, _ in acts(dead)] == ["node_cordoned"]


def test_an_act_carries_what_a_report_needs() -> None:
    board = board_of(incident())
    change(board, unschedulable=True)
    (entry,) = told(board)
    assert entry.at == at(60)
    assert entry.text == f"Node {NODE} was cordoned, not by Faultline"
    assert entry.attributes == {
        "act": "node_cordoned", "kind": "Node", "name": NODE, "at": "2026-03-01T12:01:00Z",
    }  # fmt: skip
