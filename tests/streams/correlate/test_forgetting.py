"""What is kept of incidents hours later: while they last, and when they are over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streams.model.incident import IncidentState
from tests.streams.correlate.world import (
    FOUR,
    World,
    at,
    cluster,
    failed,
    link,
    nic,
    node_fact,
    not_ready,
    progress,
    run,
    sign,
    xid,
)

LASTING = {
    "an outage": (
        cluster({"llama": FOUR}, spare=["n5", "n6", "n7", "n8"]),
        [not_ready(f"n{i}", 3 * i) for i in range(1, 7)],
    ),
    "a switch": (
        [
            *cluster({"llama": FOUR}),
            *(link("leaf-1", f"Ethernet{8 * i}", n, "mlx5_0") for i, n in enumerate(FOUR)),
        ],
        [nic(n, "mlx5_0", i) for i, n in enumerate(FOUR)],
    ),
}


@pytest.mark.parametrize("what", LASTING)
def test_what_nodes_have_in_common_stays_open_over_a_restart_hours_later(what: str) -> None:
    facts, signals = LASTING[what]
    world = World(facts)
    world.see(*signals)
    world.pass_to(5000, step=10)
    before = world.only()
    world.restart()
    world.pass_to(9000, step=10)
    assert (world.only(), before.state) == (before, IncidentState.OPEN)


def test_what_an_nvlink_fault_left_at_its_far_end_stays_known_while_it_is_open() -> None:
    world = World([node_fact(f"n{i}", nvlink_domain="d1") for i in range(1, 5)])
    world.see(xid("n1", 149, 0), xid("n2", 149, 8, index=1, action="reset_gpu"))
    world.pass_to(1400, step=5)
    world.see(not_ready("n2", 1400))
    world.pass_to(9000, step=10)
    assert (world.only().family, world.only().root.node) == ("gpu_nvlink", "n1")


@pytest.mark.parametrize("resolved_at", [3300, 3900])
def test_what_flapped_before_it_was_resolved_opens_nothing_when_it_is(resolved_at: float) -> None:
    world = World(cluster({"llama": FOUR}))
    for down in range(0, 6 * 540, 540):
        world.pass_to(down)
        world.see(*(sign("node.storage", n, down, "nfs", server="filer") for n in FOUR))
        world.pass_to(down + 200)
        world.see(*(sign("node.storage", n, down + 200, "nfs", server="filer", cleared=True) for n in FOUR))
    world.pass_to(resolved_at, step=10)
    known = {incident.id for incident in world.incidents()}
    world.see(*(run("resolved", name, resolved_at) for name in sorted(known)))
    world.pass_to(resolved_at + 4000, step=10)
    assert {incident.id for incident in world.incidents()} == known
    assert all(incident.state is IncidentState.RESOLVED for incident in world.incidents())


def test_the_next_fault_after_a_withdrawn_one_has_an_id_of_its_own() -> None:
    world = World(cluster({}, spare=["n1", "n2"]))
    world.see(nic("n1", "mlx5_0", 0))
    world.pass_to(150)
    world.see(replace(nic("n1", "mlx5_0", 2, cleared=True), observed_at=at(150)))
    world.pass_to(3 * 3600, step=30)
    assert world.only().reason.startswith("Withdrawn")
    world.see(nic("n1", "mlx5_0", 3 * 3600))
    world.pass_to(3 * 3600 + 150)
    first, second = world.incidents()
    assert (first.incarnation, second.incarnation, second.state) == (1, 2, IncidentState.OPEN)


NODES = [f"n{i}" for i in range(1, 13)]


@pytest.mark.parametrize("back", [600, 3000])
def test_an_outage_of_any_length_ends_when_most_are_back_and_the_one_left_behind_is_told_of(
    back: float,
) -> None:
    world = World([node_fact(name) for name in NODES])
    world.see(*(not_ready(name, 3 * i) for i, name in enumerate(NODES[:5])))
    world.pass_to(back, step=5)
    world.see(*(not_ready(name, back, ready=True) for name in NODES[:4]))
    world.pass_to(back + 900, step=5)
    outage, left = world.incidents()
    assert (outage.family, outage.state, outage.closed_at) == (
        "nodes_not_ready",
        IncidentState.RESOLVED,
        at(back),
    )
    assert (left.family, left.root.node, left.state) == ("node_down", "n5", IncidentState.OPEN)


def test_an_outage_is_known_as_long_as_the_one_that_stayed_away() -> None:
    world = World([node_fact(name) for name in NODES])
    world.see(*(not_ready(name, 3 * i) for i, name in enumerate(NODES[:7])))
    world.pass_to(2000, step=5)
    world.see(*(not_ready(name, 2000, ready=True) for name in NODES[1:7]))
    world.pass_to(2600, step=5)
    world.see(*(run("resolved", i.id, 2600) for i in world.incidents() if not i.state.is_over))
    world.see(sign("node.memory", "n2", 3600, "uncorrectable"))
    world.pass_to(3700, step=5)
    before = {(i.id, i.revision) for i in world.incidents()}
    world.pass_to(5 * 3600, step=30)
    assert {(i.id, i.revision) for i in world.incidents()} == before
    assert sorted(i.family for i in world.incidents()) == ["host_fault", "node_down", "nodes_not_ready"]


@pytest.mark.parametrize(("apart", "incidents"), [(64, 1), (200, 1), (420, 2)])
def test_a_program_that_fails_again_hours_later_is_one_incident_with_a_count(
    apart: int, incidents: int
) -> None:
    world = World(cluster({"llama": FOUR}))
    for minute in range(0, 2 * apart + 10, 5):
        world.pass_to(60 * minute, step=30)
        if minute in (apart * i // 5 * 5 for i in range(2)):
            world.see(failed("llama", 0, 60 * minute, exitcode=-6))
        else:
            world.see(progress("llama", 60 * minute, minute))
    assert len(world.incidents()) == incidents
    assert world.incidents()[0].facts.get("crashes", 1) == 3 - incidents


def test_what_a_person_closed_is_not_kept_for_hours() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(failed("llama", 0, 0, exitcode=-6))
    world.pass_to(130)
    world.see(run("resolved", world.only().id, 140))
    for minute in range(5, 64, 5):
        world.pass_to(60 * minute, step=30)
        world.see(progress("llama", 60 * minute, minute))
    world.see(failed("llama", 0, 3900, exitcode=-6))
    world.pass_to(4200, step=10)
    assert len(world.incidents()) == 2
