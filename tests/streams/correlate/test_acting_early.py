"""What is decisive is said in the step in which it is read. What has to last, or may be contradicted, still waits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streams.correlate import Engine
from streams.model.incident import Certainty
from streams.model.signal import Signal
from tests.streams.correlate.world import (
    CLUSTER,
    FOUR,
    World,
    at,
    cluster,
    job,
    node_fact,
    not_ready,
    off_bus,
    sign,
    timeouts,
    xid,
)

DECISIVE = [xid("n2", 79, 0), off_bus("n2", 0, 3), xid("n2", 95, 0), xid("n2", 48, 0), xid("n2", 119, 0)]


def named(signal: Signal) -> str:
    return f"{signal.kind}-{signal.attributes.get('xid', '')}"


@pytest.mark.parametrize("line", DECISIVE, ids=named)
def test_a_decisive_line_alone_opens_its_incident_when_it_is_read(line: Signal) -> None:
    engine = Engine(CLUSTER, {})
    for fact in cluster({"llama": FOUR}):
        engine.on_fact(fact.key, fact, at(-10))
    (incident,) = engine.on_signals([line], line.observed_at).incidents
    assert (incident.root.node, incident.certainty, incident.revision) == ("n2", Certainty.DECISIVE, 1)
    assert incident.jobs == (job("llama"),)
    assert incident.impact.gpus == 32


def test_a_line_in_the_middle_of_a_full_batch_is_said_with_it_however_much_its_job_says() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*timeouts("llama", range(8, 32), 600), xid("n1", 79, 600), *timeouts("llama", range(8), 602))
    assert [(i.family, i.root.node) for i in world.incidents()] == [("gpu_off_bus", "n1")]


def test_the_same_fault_on_two_hundred_nodes_at_once_is_two_hundred_incidents_at_once() -> None:
    names = [f"n{number}" for number in range(200)]
    world = World([node_fact(name) for name in names])
    world.see(*(xid(name, 79, 0) for name in names))
    assert sorted(i.root.node or "" for i in world.incidents()) == sorted(names)
    assert {i.revision for i in world.incidents()} == {1}


def test_gpus_of_a_node_that_leave_the_bus_in_the_same_second_are_one_incident_from_the_first_line_on() -> (
    None
):
    world = World(cluster({"llama": FOUR}))
    for place, index in enumerate((5, 2, 7, 0, 6, 1, 4, 3)):
        world.see(replace(xid("n2", 79, 10, index=index), observed_at=at(10.5 + 0.01 * place)))
    world.pass_to(60)
    assert {i.id for i in world.revisions} == {world.only().id}
    assert world.only().root == xid("n2", 79, 10, index=5).entity


def test_a_node_that_is_not_ready_and_one_whose_storage_is_away_still_have_to_be_so_for_a_while() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(not_ready("n1", 0))
    world.see(*(sign("node.storage", n, 1, "nfs", server="filer-2") for n in FOUR[1:]))
    assert world.incidents() == []
    world.pass_to(29)
    assert world.incidents() == []
    world.pass_to(119)
    assert world.incidents() == []
    world.pass_to(130)
    assert [i.family for i in world.incidents()] == ["storage_fault"]
    world.pass_to(250)
    assert sorted(i.family for i in world.incidents()) == ["node_down", "storage_fault"]


@pytest.mark.parametrize("restarted", [False, True])
def test_facts_of_the_present_do_not_end_the_wait_for_ranks_of_an_hour_ago(restarted: bool) -> None:
    world = World(cluster({"llama": FOUR}))
    world.pass_to(0)
    if restarted:
        world.restart()
    world.tell(node_fact("n9", since=3600))
    world.see(*timeouts("llama", [r for r in range(32) if r // 8 != 2], 600))
    assert world.incidents() == []
    world.see(*timeouts("llama", range(16, 24), 608))
    world.pass_to(700)
    assert world.only().root.node is None
