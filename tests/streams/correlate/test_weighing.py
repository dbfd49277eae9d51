"""What is weighed at a moment, and why an explanation is no incident."""

from __future__ import annotations

import pytest

from streams.correlate.publish.fate import Fate
from streams.correlate.weighed import Weighed
from streams.model.incident import IncidentState
from streams.model.kinds import IncidentFamily
from tests.streams.correlate.world import FOUR, World, at, cluster, not_ready, timeouts, xid


def _weighed(world: World, until: float) -> dict[str, Weighed]:
    return {one.hypothesis.family: one for one in world.engine.weighing(at(until)).explanations}


@pytest.fixture
def world() -> World:
    return World(cluster({"llama": FOUR}))


def test_an_incident_is_weighed_as_told_with_the_symptoms_it_explains(world: World) -> None:
    for signal in (xid("n2", 79, 0), *timeouts("llama", range(8), 600)):
        world.see(signal)
    world.pass_to(700)
    one = _weighed(world, 700)[IncidentFamily.GPU_OFF_BUS]
    assert (one.fate, one.incident, one.reason) == (Fate.TOLD, world.incidents()[0].id, "")
    assert list(one.claims or {}) == ["PyTorchJob/train/llama"]


def test_asking_changes_nothing(world: World) -> None:
    world.see(xid("n2", 79, 0))
    world.pass_to(10)
    before = dict(world.rows)
    world.engine.weighing(at(10))
    assert world.rows == before
    assert [one.state for one in world.incidents()] == [IncidentState.OPEN]


def test_what_may_not_open_yet_says_until_when_it_waits(world: World) -> None:
    world.see(not_ready("n2", 0))
    one = _weighed(world, 1)[IncidentFamily.NODE_DOWN]
    assert one.fate is Fate.WAITS
    assert "waits for more evidence until 2026-03-01T12:01:00Z" in one.reason
    assert one.needs.startswith("to last until then")


def test_what_follows_from_a_root_is_part_of_it_and_says_what_would_make_it_more(world: World) -> None:
    world.see(xid("n2", 79, 0))
    world.see(not_ready("n2", 20))
    world.pass_to(120)
    one = _weighed(world, 120)[IncidentFamily.NODE_DOWN]
    assert (one.fate, one.incident) == (Fate.PART, world.incidents()[0].id)
    assert "gpu_off_bus" in one.reason
    assert "5 min" in one.needs
