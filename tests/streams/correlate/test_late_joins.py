"""Ranks that wait at their start for a pod that has not started: they tell of what keeps it, and of no hang."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streams.model.facts import PodFact
from streams.model.incident import Incident
from streams.model.signal import Signal
from tests.streams.correlate.world import (
    FOUR,
    World,
    at,
    cluster,
    failed,
    node_fact,
    pods,
    timeouts,
)

GAVE_UP = 900
"""Seconds after which a program no longer waits for its peers."""


def started(fact: PodFact, seconds: float | None, **more: Any) -> PodFact:
    """The pod with the time of its containers' start, if they have started."""
    runs = seconds is not None
    return replace(
        fact,
        created_at=at(-40),
        started_at=at(seconds) if seconds is not None else None,
        phase="Running" if runs else "Pending",
        ready=runs,
        **more,
    )


def gave_up(pod: int, waits: str = "waiting for clients") -> Signal:
    """A rank's last line."""
    return failed("llama", pod, GAVE_UP + pod, "store", kind="nccl.error", reason=waits)


def has_ranks(incident: Incident) -> bool:
    """Whether what the ranks say is shown as following from it."""
    return any((proof.role, proof.kind) == ("symptom", "nccl.error") for proof in incident.proofs)


def waited(late: PodFact, *beside: PodFact, keeps: str = "", waits: str = "waiting for clients") -> World:
    """A job of four pods of which three give up waiting for the last; `keeps` is what events say of that one."""
    world = World([node_fact(name) for name in FOUR])
    for fact in pods("llama", FOUR, since=-30)[:3]:
        world.tell(started(fact, 5))
    for fact in (late, *beside):
        world.tell(fact)
    for minute in range(14 if keeps else 0):
        kind = "job.stalled" if keeps == "unschedulable" else "job.failed"
        for index in range(3, 4 + len(beside)):
            world.see(failed("llama", index, 60.0 * minute, keeps, kind=kind))
        world.pass_to(60.0 * minute + 50, step=10)
    world.pass_to(GAVE_UP, step=10)
    world.see(*(gave_up(index, waits) for index in range(3)))
    for fact in pods("llama", FOUR, since=-30):
        ended = at(GAVE_UP + 3)
        pod = late if fact.uid == late.uid else started(fact, 5)
        world.tell(replace(pod, ready=False, phase="Failed", ended_at=ended, observed_at=ended))
    world.pass_to(GAVE_UP + 400, step=10)
    return world


LAST = pods("llama", FOUR, since=-30)[3]
NOT_YET = started(LAST, None)


@pytest.mark.parametrize("waits", ["waiting for clients", "client socket has timed out"])
def test_ranks_that_wait_for_a_pod_that_cannot_be_started_are_victims_of_what_keeps_it(waits: str) -> None:
    incident = waited(NOT_YET, keeps="sandbox", waits=waits).only()
    assert incident.root.node == "n4"
    assert "cannot start" in incident.reason
    assert has_ranks(incident)


def test_a_container_that_could_not_be_started_again_and_again_has_not_run_before() -> None:
    late = started(LAST, None, exited_at=at(300), exit_code=128)
    incident = waited(late, keeps="sandbox").only()
    assert incident.root.node == "n4"
    assert has_ranks(incident)


def test_an_incident_of_the_job_itself_takes_them_too() -> None:
    """Pods on two nodes cannot be started: no node is accused."""
    other = replace(NOT_YET, name="llama-worker-4", uid="llama-4-1", node="n5", rank=32)
    incident = waited(NOT_YET, other, keeps="sandbox").only()
    assert (incident.family, incident.root.node) == ("platform_fault", None)
    assert has_ranks(incident)


@pytest.mark.parametrize(
    "late", [NOT_YET, started(LAST, GAVE_UP - 20)], ids=["not at all", "just before they gave up"]
)
def test_where_nothing_tells_why_the_pod_is_late_nothing_is_published(late: PodFact) -> None:
    assert waited(late).revisions == []


def test_ranks_that_wait_for_a_pod_without_a_node_are_no_incident() -> None:
    nowhere = replace(NOT_YET, node=None, scheduled_at=None)
    assert waited(nowhere, keeps="unschedulable").revisions == []


@pytest.mark.parametrize(
    "late", [started(LAST, 5), started(LAST, 300), started(LAST, GAVE_UP + 2, exited_at=at(GAVE_UP - 1), exit_code=1)],
    ids=["with the others", "some minutes later", "again in its pod"],
)  # fmt: skip
def test_ranks_that_wait_for_a_pod_that_has_started_are_a_hang(late: PodFact) -> None:
    assert [i.family for i in waited(late).incidents()] == ["hang"]


def test_a_pod_that_runs_since_nobody_knows_when_is_not_late() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*(gave_up(pod) for pod in range(3)))
    world.pass_to(GAVE_UP + 400, step=10)
    assert [i.family for i in world.incidents()] == ["hang"]


def test_nobody_waits_for_a_pod_without_a_gpu() -> None:
    board = replace(NOT_YET, name="llama-board-0", uid="board", gpus=0, rank=None, ranks=None)
    assert [i.family for i in waited(started(LAST, 5), board).incidents()] == ["hang"]


def test_ranks_that_hang_in_a_collective_accuse_a_node_whatever_has_not_started() -> None:
    world = World(cluster({"llama": FOUR}))
    spare = replace(NOT_YET, name="llama-worker-4", uid="late", node=None, rank=None, ranks=None)
    world.tell(replace(spare, scheduled_at=None))
    world.see(failed("llama", 0, 700, "store", kind="nccl.error", reason="waiting for clients"))
    world.see(*timeouts("llama", [r for r in range(32) if r // 8 != 2], 700))
    world.pass_to(1000, step=10)
    assert world.only().root.node == "n3"
