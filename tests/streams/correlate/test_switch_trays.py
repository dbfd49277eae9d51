"""A switch tray of an NVLink domain: GPUs all over the domain blame the other end, and the tray says what it is."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from streams.model.entity import Entity
from streams.model.facts import Fact
from streams.model.incident import Incident, IncidentState
from streams.model.signal import Signal
from tests.streams.correlate.world import CLUSTER, World, cluster, node_fact, sign, xid

NAMES = [f"t{i:02d}" for i in range(24)]
HIT = NAMES[:8]


def facts() -> list[Fact]:
    """Three domains of eight nodes; a job stands on the first two."""
    made = cluster({"llama": NAMES[:16]}, spare=NAMES)
    return [*made, *(node_fact(n, since=-3500, nvlink_domain=f"d{i // 8}") for i, n in enumerate(NAMES))]


def blaming(names: list[str], seconds: float) -> list[Signal]:
    """Errors that say the other end of the link is at fault."""
    return [
        xid(n, 149, seconds + 0.2 * i, family="gpu_nvlink", reason="peer device", action="reset_gpu")
        for i, n in enumerate(names)
    ]


def tray(name: str, seconds: float, about: str = "") -> Signal:
    """A line of a switch tray about itself, or of another one about it."""
    said = sign("gpu.nvlink", "", seconds, "switch_tray", tray=about)
    return replace(said, entity=Entity(CLUSTER, switch=name))


def only(world: World) -> Incident:
    (incident,) = [i for i in world.incidents() if i.state is IncidentState.OPEN]
    return incident


@pytest.mark.parametrize("order", list(permutations(("links", "tray", "manager"))))
def test_the_tray_that_tells_of_itself_is_the_root(order: tuple[str, ...]) -> None:
    world = World(facts())
    said = {
        "links": blaming(HIT, 0),
        "tray": [tray("sw-5", 0.5)],
        "manager": [tray("sw-1", 2, about="sw-5")],
    }
    for what in order:
        world.see(*said[what])
    world.pass_to(60)
    assert (only(world).root.switch, only(world).family) == ("sw-5", "shared_fault")
    assert {job.name for job in only(world).jobs} == {"llama"}
    assert set(HIT) <= set(only(world).nodes)
    world.pass_to(4000)
    assert only(world).root.switch == "sw-5", "what it said is kept as long as the incident is open"


@pytest.mark.parametrize("said", [[], [tray("sw-5", 0.5), tray("sw-6", 1)], [tray("sw-5", -900)]])
def test_without_one_tray_that_speaks_the_domain_is_the_root(said: list[Signal]) -> None:
    world = World(facts())
    world.see(*said, *blaming(HIT, 0))
    world.pass_to(60)
    assert (only(world).root.switch, str(only(world).root)) == (None, "nvlink domain d0")


def test_two_nodes_that_blame_each_other_are_no_event_of_their_domain() -> None:
    world = World(facts())
    world.see(*blaming(HIT[:2], 0), tray("sw-5", 0.5))
    world.pass_to(60)
    assert all(i.family != "shared_fault" for i in world.incidents())


@pytest.mark.parametrize("order", list(permutations(("links", "here", "there"))))
def test_of_several_trays_that_speak_the_one_named_after_the_domain_is_the_root(
    order: tuple[str, ...],
) -> None:
    world = World(facts())
    said = {
        "links": blaming(HIT, 0),
        "here": [tray("hall.D0-sw3", 0.5)],
        "there": [tray("hall.d1-sw2", 1), tray("sw-9", 2)],
    }
    for what in order:
        world.see(*said[what])
    world.pass_to(60)
    assert only(world).root.switch == "hall.D0-sw3"


def test_a_tray_that_is_named_after_another_domain_is_not_the_root() -> None:
    world = World(facts())
    world.see(tray("d1-sw2", 0.5), *blaming(HIT, 0))
    world.pass_to(60)
    assert only(world).root.switch is None


def test_a_number_in_a_trays_name_is_no_rack() -> None:
    made = cluster({"llama": NAMES[:16]}, spare=NAMES)
    world = World([*made, *(node_fact(n, since=-3500, rack=str(i // 8)) for i, n in enumerate(NAMES))])
    world.see(tray("sw-2", 0.5), *blaming(HIT, 0))
    world.pass_to(60)
    assert only(world).root.switch == "sw-2"


def lost_power(name: str, seconds: float) -> Signal:
    return sign("node.power", name, seconds, "psu", reason="Power Good Failure")


@pytest.mark.parametrize("order", list(permutations(("links", "tray"))))
@pytest.mark.parametrize("name", ["nvsw-d0-t05", "hall-nvlink-sw3"])
def test_a_tray_that_loses_its_power_is_the_root_and_nothing_besides(
    name: str, order: tuple[str, ...]
) -> None:
    world = World(facts())
    said = {"links": blaming(HIT, 0), "tray": [lost_power(name, 0.5)]}
    for what in order:
        world.see(*said[what])
    world.pass_to(1200, step=5)
    assert only(world).root.switch == name
    assert "lost its power" in only(world).reason
    assert not [i for i in world.incidents() if i.root.node == name and i.merged_into is None]


@pytest.mark.parametrize(("name", "seconds"), [("nvsw-d1-t05", 0.5), ("nvsw-d0-t05", 900), ("tor-d0-1", 0.5)])
def test_power_lost_elsewhere_later_or_by_another_device_is_its_own(name: str, seconds: float) -> None:
    world = World(facts())
    world.see(*blaming(HIT, 0))
    world.pass_to(seconds)
    world.see(lost_power(name, seconds))
    world.pass_to(seconds + 1200, step=5)
    assert {i.root.switch or i.root.node for i in world.incidents()} == {None, name}
    assert str(next(i.root for i in world.incidents() if i.root.node is None)) == "nvlink domain d0"
