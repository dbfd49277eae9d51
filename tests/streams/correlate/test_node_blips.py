"""Nodes that are NotReady for a moment, once or again and again."""

from __future__ import annotations

import pytest

from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.signal import Signal
from tests.streams.correlate.world import (
    FOUR,
    World,
    at,
    cluster,
    not_ready,
    progress,
    run,
    timeouts,
)


def blips(node: str, times: int, *, down: float = 90, up: float = 60, since: float = 0) -> list[Signal]:
    """A node that goes and comes so many times."""
    return [
        not_ready(node, since + i * (down + up) + (down if ready else 0), ready=ready)
        for i in range(times)
        for ready in (False, True)
    ]


def played(signals: list[Signal], until: float, world: World | None = None) -> World:
    world = world or World(cluster({"llama": FOUR}, spare=["m1", "m2"]))
    for signal in sorted(signals, key=lambda s: s.observed_at):
        world.pass_to((signal.observed_at - at(0)).total_seconds(), step=5)
        world.see(signal)
    world.pass_to(until, step=10)
    return world


@pytest.mark.parametrize("node", ["m1", "n2"])
@pytest.mark.parametrize("lasts", [70, 150, 235])
def test_a_node_that_blips_is_told_to_nobody(node: str, lasts: float) -> None:
    world = played([*blips(node, 1, down=lasts), *(progress("llama", 10.0 * i, i) for i in range(60))], 900)
    assert list(world.published.values()) == []


def test_blips_of_many_nodes_over_a_day_are_told_to_nobody() -> None:
    signals = [s for i in range(24) for s in blips(("m1", "m2", "n1", "n3")[i % 4], 1, since=3600.0 * i)]
    assert list(played(signals, 25 * 3600.0).published.values()) == []


def test_a_node_that_stays_away_is_told() -> None:
    world = played([not_ready("m1", 0)], 245)
    assert (world.only().root.node, world.only().state) == ("m1", IncidentState.OPEN)


def test_a_blip_that_a_job_suffers_from_is_told() -> None:
    silent = [r for r in range(32) if r // 8 != 1]
    world = played([not_ready("n2", 0), *timeouts("llama", silent, 100, waited=100)], 200)
    assert (world.only().root.node, world.only().certainty) == ("n2", Certainty.DECISIVE)


def flapping(world: World) -> Incident:
    (incident,) = world.published.values()
    assert incident.family == "node_down"
    return incident


@pytest.mark.parametrize("times", [3, 8, 13, 40])
def test_a_node_that_flaps_is_one_incident_that_ends_when_it_stays(times: int) -> None:
    world = played(blips("m1", times), times * 150.0 + 60)
    assert (flapping(world).state, flapping(world).certainty) == (IncidentState.OPEN, Certainty.LIKELY)
    assert flapping(world).flaps >= min(times, 8) - 1
    world.pass_to(times * 150.0 + 900, step=10)
    assert flapping(world).state is IncidentState.RESOLVED


@pytest.mark.parametrize("late", [0, 5, 6, 12])
def test_a_line_of_a_node_that_flaps_may_come_late(late: int) -> None:
    signals = blips("m1", 13)
    missed = signals.pop(2 * late)
    world = played(signals, 13 * 150.0 + 30)
    world.see(missed)
    world.pass_to(13 * 150.0 + 1200, step=10)
    assert [i.state for i in world.published.values()] == [IncidentState.RESOLVED]


def test_a_flapping_node_that_a_person_resolves_is_resolved() -> None:
    world = played(blips("m1", 13), 13 * 150.0)
    name = flapping(world).id
    world.see(run("resolved", name, 13 * 150.0 + 10))
    assert world.published[name].state is IncidentState.RESOLVED


def test_an_incident_whose_evidence_is_gone_is_closed_when_a_person_says_so() -> None:
    world = played(blips("m1", 8), 8 * 150.0)
    incident = flapping(world)
    row = world.engine._state.nodes["m1"]
    seen = {key: group for key, group in row.seen.items() if not key.startswith("node.not_ready")}
    crowd = {"node.kernel|x": tuple(s for g in row.seen.values() for s in g)[:1] * 12}
    world.engine._state.nodes.put("m1", type(row)(fact=row.fact, seen={**seen, **crowd}))
    world.see(run("resolved", incident.id, 8 * 150.0 + 10))
    assert world.published[incident.id].state is IncidentState.RESOLVED


def test_a_node_that_goes_for_good_after_it_flapped_is_dead_by_its_last_absence() -> None:
    world = World(cluster({"llama": FOUR}, spare=["m1", *(f"s{i}" for i in range(20))]))
    world.see(*(progress("llama", -600 + 10.0 * i, i) for i in range(60)))
    played([*blips("n2", 4, down=60), not_ready("n2", 600)], 1200, world)
    assert [(i.root.node, i.certainty) for i in world.incidents()] == [("n2", Certainty.DECISIVE)]
