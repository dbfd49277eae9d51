"""Nodes that are given back: what their hardware reported before they were booted anew is for whoever worked on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from streams.model.facts import NodeFact, NodeWork, WorkEnds
from streams.model.incident import Certainty, IncidentState
from streams.model.signal import Signal
from tests.streams.correlate.world import (
    FOUR,
    GPUS,
    World,
    at,
    cluster,
    job,
    node_fact,
    not_ready,
    pods,
    run,
    sign,
    timeouts,
    xid,
)

NODE = "w00"
HOUR = 3600.0
CLOSED, ORDERED, WENT, BOOTED, BACK, OPENED = 0, 201, 246, 2001, 2025, 2220
"""A tray is swapped: the node is cordoned, reboots in order, is missed, its kubelet starts, it is Ready, it is uncordoned."""

Step = NodeFact | Signal


def mark(by: str, ends: WorkEnds) -> dict[str, Any]:
    return {"unschedulable": True, "work": NodeWork(by, "a mark", ends), "maintenance": True}


MARKS: dict[str, dict[str, Any]] = {
    "cordon": {"unschedulable": True},
    "a person": mark("a person", "held"),
    "kured": mark("kured", "back"),
    "Slurm's drain": mark("root", "back"),
    "a cloud": mark("the cloud", "back"),
}


def fact(since: float, boot: str | None = None, **more: Any) -> NodeFact:
    return node_fact(NODE, since=since, boot_id=boot, gpus_allocatable=GPUS, **more)


def closing(marks: dict[str, Any] = MARKS["cordon"], boot: str | None = "a") -> list[Step]:
    return [fact(CLOSED - 10, boot), fact(CLOSED, boot, **marks)]


def order() -> Signal:
    return sign("node.maintenance", NODE, ORDERED, "shutdown")


def event() -> Signal:
    return sign("node.condition", NODE, BOOTED, "rebooted")


def away(marks: dict[str, Any] = MARKS["cordon"], boots: Sequence[str | None] = ("a", "b")) -> list[Step]:
    return [
        not_ready(NODE, WENT),
        fact(WENT + 1, boots[0], ready=False, **marks),
        not_ready(NODE, BACK, ready=True),
        fact(BACK, boots[1], ready_since=at(BACK), **marks),
    ]


def opening(boot: str | None = "b", since: float = OPENED) -> list[Step]:
    return [fact(since, boot)]


def play(world: World, steps: Iterable[Step], *, step: float = 10) -> None:
    """All steps, each when it comes, and the time between."""

    def comes(one: Step) -> float:
        return (one.observed_at - at(0)).total_seconds()

    for one in sorted(steps, key=comes):
        world.pass_to(comes(one) - 0.1, step=step)
        deliver(world, one)


def deliver(world: World, one: Step) -> None:
    if isinstance(one, Signal):
        world.see(one)
    else:
        world.tell(one)


def late(one: Signal, seconds: float) -> Signal:
    """The line when it is read at that time."""
    return replace(one, observed_at=max(one.observed_at, at(seconds)))


def spare() -> World:
    return World(cluster({"llama": FOUR}, spare=[NODE]))


def swap(marks: dict[str, Any] = MARKS["cordon"]) -> list[Step]:
    """All of it, without what the GPU reports."""
    return [*closing(marks), order(), *away(marks), event(), *opening()]


def ever_open(world: World) -> set[tuple[str, str | None]]:
    return {(i.family, i.root.node) for i in world.revisions if i.state is IncidentState.OPEN}


@pytest.mark.parametrize("marks", MARKS.values(), ids=MARKS)
def test_a_gpu_lost_while_its_tray_was_swapped_opens_nothing_when_the_node_is_given_back(
    marks: dict[str, Any],
) -> None:
    world = spare()
    play(world, [*swap(marks), xid(NODE, 79, 150)])
    world.pass_to(OPENED + HOUR, step=30)
    assert ever_open(world) == set()
    incident = world.only()
    assert (incident.family, incident.state) == ("gpu_off_bus", IncidentState.RESOLVED)
    assert "gave the node back at 12:37 UTC, after it was booted anew" in incident.reason


@pytest.mark.parametrize(
    ("signals", "boots"),
    [([order()], (None, None)), ([event()], (None, None)), ([], ("a", "b"))],
    ids=["it was ordered", "its kubelet reports it", "its boot id is another"],
)
def test_one_sign_of_the_new_boot_is_enough(
    signals: list[Signal], boots: tuple[str | None, str | None]
) -> None:
    world = spare()
    steps = [*closing(boot=boots[0]), *away(boots=boots), *opening(boots[1]), *signals]
    play(world, [*steps, xid(NODE, 79, 150)])
    world.pass_to(OPENED + HOUR, step=30)
    assert ever_open(world) == set()


def test_a_reboot_that_was_ordered_on_a_node_that_nobody_closed_ends_what_was_before_it() -> None:
    world = spare()
    play(world, [xid(NODE, 79, 150)])
    assert world.only().state is IncidentState.OPEN
    play(world, [order(), *away({}), event()])
    world.pass_to(BACK + 300, step=10)
    assert world.only().state is IncidentState.RESOLVED


@pytest.mark.parametrize("again", [BOOTED - 60, BOOTED + 10, BACK + 60, OPENED + 30])
def test_a_gpu_that_is_lost_again_after_the_boot_is_told_at_once(again: float) -> None:
    world = spare()
    play(world, [*swap(), xid(NODE, 79, 150), xid(NODE, 79, again)])
    world.pass_to(max(again, OPENED) + 1)
    alive = [i for i in world.incidents() if not i.state.is_over]
    assert [(i.family, i.state, i.certainty) for i in alive] == [
        ("gpu_off_bus", IncidentState.OPEN, Certainty.DECISIVE)
    ]
    assert (alive[0].fault_at, alive[0].flaps) == (at(again), 0)


def test_a_fault_for_which_a_person_closes_and_repairs_the_node_ends_when_it_is_given_back() -> None:
    world = World(cluster({"llama": [*FOUR, NODE]}))
    play(world, [fact(-20, "a"), xid(NODE, 79, -10)])
    world.see(*timeouts("llama", range(32), 620 - 700, waited=30))
    incident = world.only()
    assert (incident.state, incident.jobs) == (IncidentState.OPEN, (job("llama"),))
    world.end("llama", [*FOUR, NODE], -5)
    play(world, swap())
    world.pass_to(OPENED + 60, step=10)
    assert (world.only().id, world.only().state) == (incident.id, IncidentState.RESOLVED)
    assert "gave the node back" in world.only().reason


def test_a_node_that_is_given_back_with_its_fault_is_asked_about_and_one_that_shows_it_again_is_not() -> None:
    world = spare()
    play(world, [*closing(), xid(NODE, 79, 100), *opening("a", 160)])
    world.pass_to(200)
    incident = world.only()
    assert (incident.state, incident.certainty) == (IncidentState.OPEN, Certainty.LIKELY)
    assert "nothing shows that this is over" in incident.reason
    world.see(xid(NODE, 79, 260))
    assert (world.only().state, world.only().certainty) == (IncidentState.OPEN, Certainty.DECISIVE)


@pytest.mark.parametrize("cleared", [True, False])
def test_a_measurement_that_is_still_bad_after_the_boot_is_asked_about(cleared: bool) -> None:
    world = spare()
    bad = sign("gpu.row_remap", NODE, 150, "failure", index=0, since_ms=1)
    well = sign("gpu.row_remap", NODE, BACK + 30, "failure", index=0, cleared=True)
    play(world, [*swap(), xid(NODE, 79, 150), bad, *([well] if cleared else [])])
    world.pass_to(OPENED + 300, step=10)
    state = IncidentState.RESOLVED if cleared else IncidentState.OPEN
    assert world.only().state is state
    assert cleared or world.only().certainty is Certainty.LIKELY


def test_a_boot_that_nobody_asked_for_ends_nothing() -> None:
    world = spare()
    play(world, [fact(-10, "a"), xid(NODE, 79, 150), *away({}), event()])
    world.pass_to(BACK + HOUR, step=30)
    open_ = [i for i in world.incidents() if i.family == "gpu_off_bus"]
    assert [(i.state, i.certainty) for i in open_] == [(IncidentState.OPEN, Certainty.DECISIVE)]


def test_a_node_that_was_booted_before_it_was_closed_is_not_given_back_repaired() -> None:
    world = spare()
    play(world, [fact(-10, "a"), xid(NODE, 79, 150), *away({}), event()])
    play(world, [fact(BACK + 120, "b", unschedulable=True), fact(BACK + 180, "b")])
    world.pass_to(BACK + 300, step=10)
    assert [i.state for i in world.incidents() if i.family == "gpu_off_bus"] == [IncidentState.OPEN]


def test_what_faultline_closed_a_node_for_is_left_to_its_runs() -> None:
    world = spare()
    play(world, [fact(-10, "a"), xid(NODE, 79, 10)])
    incident = world.only().id
    ours = {"unschedulable": True, "owner_incident": incident}
    play(world, [fact(60, "a", **ours), order(), *away(ours), event(), fact(OPENED, "b", **ours)])
    world.pass_to(OPENED + 300, step=30)
    assert (world.only().state, world.only().certainty) == (IncidentState.OPEN, Certainty.DECISIVE)


def test_a_host_fault_is_left_to_whoever_repaired_the_host_too() -> None:
    world = spare()
    play(world, [fact(-400, "a"), sign("node.memory", NODE, -300, "uncorrectable")])
    assert (world.only().family, world.only().state) == ("host_fault", IncidentState.OPEN)
    play(world, swap())
    world.pass_to(OPENED + 60, step=10)
    assert world.only().state is IncidentState.RESOLVED
    world.see(sign("node.memory", NODE, OPENED + 130, "uncorrectable"))
    assert [i.fault_at for i in world.incidents() if i.state is IncidentState.OPEN] == [at(OPENED + 130)]


def test_work_that_faultline_was_asked_for_is_given_back_when_its_request_is_done() -> None:
    world = spare()
    asked = sign("node.planned_work", NODE, -60, request="r", by="ann", until="2026-03-02T12:00:00Z")
    play(world, [fact(-70, "a"), asked])
    work = world.only().id
    ours = {"unschedulable": True, "owner_incident": work}
    play(world, [xid(NODE, 79, -30), fact(CLOSED, "a", **ours), order(), *away(ours), event()])
    play(world, [run("resolved", work, OPENED), *opening(since=OPENED + 1)])
    world.pass_to(OPENED + HOUR / 2, step=30)
    assert ever_open(world) <= {("planned_work", NODE)}
    assert all(i.state.is_over for i in world.incidents())


def test_a_line_from_before_the_boot_that_is_read_after_the_node_is_given_back_opens_nothing() -> None:
    world = spare()
    play(world, swap())
    world.pass_to(OPENED + 60, step=10)
    world.see(late(xid(NODE, 79, 150), OPENED + 60))
    world.pass_to(OPENED + HOUR, step=30)
    assert world.incidents() == []


def groups(again: float | None) -> list[list[Step]]:
    more = [xid(NODE, 79, again)] if again is not None else []
    return [closing(), [xid(NODE, 79, 150)], [order(), event()], [*away(), *more], opening()]


@pytest.mark.parametrize("again", [None, BOOTED + 10], ids=["well", "lost again"])
@pytest.mark.parametrize("shift", [0.0, 3 * HOUR], ids=["live", "three hours late"])
def test_the_end_is_the_same_in_any_order_of_arrival(shift: float, again: float | None) -> None:
    expected = set() if again is None else {("gpu_off_bus", at(again), Certainty.DECISIVE)}
    for turn in permutations(range(5)):
        world = spare()
        told = groups(again)
        for i in turn:
            for one in told[i]:
                deliver(world, late(one, shift) if isinstance(one, Signal) else one)
        world.pass_to(max(shift, OPENED) + 600, step=60)
        alive = {(i.family, i.fault_at, i.certainty) for i in world.incidents() if not i.state.is_over}
        assert alive == expected, turn


def test_pods_and_a_restart_of_the_correlator_change_nothing() -> None:
    world = spare()
    play(world, [*closing(), xid(NODE, 79, 150), order(), *away(), event()])
    world.restart()
    play(world, opening())
    for pod in pods("bert", [NODE], since=OPENED + 20):
        world.tell(pod)
    world.restart()
    world.pass_to(OPENED + HOUR, step=30)
    assert ever_open(world) == set()
