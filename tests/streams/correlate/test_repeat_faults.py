"""The same offender again, over days."""

from __future__ import annotations

from dataclasses import replace

from streams.model.entity import Entity
from streams.model.incident import Incident, IncidentState
from streams.model.signal import Signal
from tests.streams.correlate.world import (
    CLUSTER,
    FOUR,
    World,
    at,
    cluster,
    gpu,
    node_fact,
    not_ready,
    run,
    xid,
)

DAY = 86_400.0
UUID = "GPU-11111111-2222-3333-4444-555555555555"


def lost(node: str, seconds: float, *, index: int = 0, uuid: str | None = None, code: int = 79) -> Signal:
    place = Entity(CLUSTER, node=node, gpu=replace(gpu(index), uuid=uuid))
    return replace(xid(node, code, seconds, index=index), entity=place)


def repaired(world: World, signal: Signal, seconds: float) -> Incident:
    """See a fault, have it repaired, and let it be forgotten."""
    world.see(signal)
    incident = next(i for i in world.incidents() if i.state is IncidentState.OPEN)
    world.see(run("finished", incident.id, seconds, "succeeded"))
    world.pass_to(seconds + 4000, step=600)
    return world.published[incident.id]


def test_a_gpu_that_fails_again_days_later_is_told_with_its_days() -> None:
    world = World(cluster({"llama": FOUR}))
    for day in range(3):
        last = repaired(world, lost("n2", day * DAY), day * DAY + 300)
    assert not [key for key in world.rows if key.startswith("incident/")]
    assert last.facts["repeats"] == 2
    assert last.facts["repeats_days"] == ("2026-03-01", "2026-03-02")
    assert last.incarnation == 3


def test_a_gpu_is_known_by_its_uuid_behind_another_address_and_in_another_node() -> None:
    world = World(cluster({"llama": FOUR}))
    repaired(world, lost("n2", 0, index=3, uuid=UUID), 300)
    moved = repaired(world, lost("n4", DAY, index=5, uuid=UUID), DAY + 300)
    assert moved.facts["repeats"] == 1
    assert "node_repeats" not in moved.facts
    other = repaired(world, lost("n4", 2 * DAY, index=1, uuid="GPU-another"), 2 * DAY + 300)
    assert "repeats" not in other.facts
    assert other.facts["node_repeats"] == 1


def test_a_gpu_whose_uuid_is_learned_later_is_still_the_one_at_that_address_but_not_the_one_put_in_its_place() -> (
    None
):
    world = World(cluster({"llama": FOUR}))
    repaired(world, lost("n2", 0), 300)
    known = repaired(world, lost("n2", DAY, uuid=UUID), DAY + 300)
    assert known.facts["repeats"] == 1
    replaced = repaired(world, lost("n2", 2 * DAY, uuid="GPU-the-new-one"), 2 * DAY + 300)
    assert (replaced.facts["repeats"], replaced.facts["node_repeats"]) == (1, 2)


def test_what_is_older_than_the_window_does_not_count() -> None:
    world = World(cluster({"llama": FOUR}))
    repaired(world, lost("n2", 0), 300)
    assert "repeats" not in repaired(world, lost("n2", 31 * DAY), 31 * DAY + 300).facts


def test_what_became_part_of_another_and_what_maintenance_holds_back_does_not_count() -> None:
    world = World(cluster({}, spare=["n1", "n2"]))
    world.tell(node_fact("n2", since=0, maintenance=True))
    world.see(not_ready("n2", 10), not_ready("n1", 10))
    world.pass_to(60)
    world.see(replace(xid("n1", 79, 5), observed_at=at(61)))
    world.see(lost("n1", 500, index=4), lost("n2", 500))
    facts = {(i.root.node, i.family, i.fault_at): i.facts for i in world.incidents()}
    assert facts["n1", "gpu_off_bus", at(500)]["node_repeats"] == 1
    assert "node_repeats" not in facts["n2", "gpu_off_bus", at(500)]


def test_the_history_of_an_offender_is_bounded() -> None:
    world = World(cluster({"llama": FOUR}))
    for i in range(40):
        last = repaired(world, lost("n2", i * 5000.0), i * 5000 + 300)
    assert last.facts["repeats"] == 31
    assert len(last.facts["repeats_days"]) <= 8  # type: ignore[arg-type]


def test_bursts_of_a_code_are_counted_at_three_minutes_of_silence_and_sticky_ones_at_three_hours() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(*(lost("n1", t, code=94) for t in (0, 100, 250, 600, 1200)))
    world.see(*(lost("n3", t, code=95) for t in (0, 100, 600, 1200)))
    bursts = {i.root.node: i.facts.get("bursts", 1) for i in world.incidents()}
    assert bursts == {"n1": 3, "n3": 1}
