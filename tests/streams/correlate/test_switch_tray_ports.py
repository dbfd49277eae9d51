"""Links of a few compute trays of one NVLink domain fail at once, each by its own GPU's account: they end at one switch tray."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import permutations

import pytest

from streams.inventory.parts import shared_parts
from streams.model.entity import Entity
from streams.model.facts import Fact
from streams.model.incident import IncidentState
from streams.model.signal import Signal
from tests.streams.correlate.world import CLUSTER, World, cluster, node_fact, off_bus, sign, xid

TRAYS = [f"qb{rack}c{i:02d}" for rack in (4, 5) for i in range(1, 19)]
"""Two domains of 18 compute trays."""
HIT = TRAYS[2:17:3]


def facts() -> list[Fact]:
    made = [f for f in cluster({"llama": TRAYS[:18]}) if f.kind != "node"]
    return [
        *made,
        *(node_fact(n, nvlink_domain=f"{n[:3]}.777", parts=shared_parts(n, {}).parts) for n in TRAYS),
    ]


def links(names: Iterable[str], seconds: float, numbers: Iterable[int] = (6, 7)) -> list[Signal]:
    """GPUs that lose these links of their own."""
    return [
        xid(n, 149, seconds + 0.1 * i, index=number % 4, link=number, action="reset_gpu")
        for i, n in enumerate(names)
        for number in numbers
    ]


def lost_by_one(names: Iterable[str], seconds: float) -> list[Signal]:
    """One GPU of each that loses three links: not all of them can end at one switch tray."""
    return [xid(n, 149, seconds, link=number, action="reset_gpu") for n in names for number in (5, 6, 7)]


def ports(tray: str, seconds: float) -> list[Signal]:
    """Ports of a switch tray that go down."""
    downs = [sign("gpu.nvlink", "", seconds + 0.2 * i, "access_port") for i in range(3)]
    return [replace(s, entity=Entity(CLUSTER, switch=tray)) for s in downs]


def fatal(tray: str, seconds: float) -> Signal:
    return replace(sign("gpu.nvlink", "", seconds, "switch_tray"), entity=Entity(CLUSTER, switch=tray))


def standing(signals: Iterable[Signal], until: float = 200) -> World:
    world = World(facts())
    for signal in sorted(signals, key=lambda s: s.observed_at):
        world.see(signal)
    world.pass_to(until, step=5)
    return world


def roots(world: World) -> set[str]:
    return {str(i.root) for i in world.incidents() if i.state is IncidentState.OPEN}


def test_links_of_five_of_eighteen_trays_are_one_fault_of_their_domain() -> None:
    incident = standing(links(HIT, 0)).only()
    assert (incident.family, str(incident.root)) == ("shared_fault", "nvlink domain qb4.777")
    assert set(HIT) <= set(incident.nodes)
    assert [job.name for job in incident.jobs] == ["llama"]


@pytest.mark.parametrize("order", list(permutations(("links", "ports", "again"))))
def test_the_switch_tray_whose_ports_went_down_then_is_the_root(order: tuple[str, ...]) -> None:
    """Its name begins as those of the nodes do, and so does another one's in the other rack, whose port has a life of its own."""
    world = World(facts())
    said = {
        "links": links(HIT, 0),
        "ports": [*ports("qb4s3", 0.4), *ports("qb5s1", 8)],
        "again": links(TRAYS[:5], 600),
    }
    for what in order:
        world.see(*said[what])
    world.pass_to(900, step=5)
    incident = world.only()
    assert (str(incident.root), incident.family) == ("switch qb4s3", "shared_fault")
    assert {*HIT, *TRAYS[:5]} <= set(incident.nodes)
    assert "its ports go down" in incident.reason


NOT_ONE_TRAY: dict[str, list[Signal]] = {
    "two trays report ports": [*ports("qb4s3", 0.4), *ports("qb4s4", 0.5)],
    "long before": ports("qb4s3", -300),
    "of the other rack": ports("qb5s3", 0.4),
}


@pytest.mark.parametrize("name", NOT_ONE_TRAY)
def test_else_the_domain_is(name: str) -> None:
    assert roots(standing([*links(HIT, 0), *NOT_ONE_TRAY[name]])) == {"nvlink domain qb4.777"}


def test_ports_prove_nothing_where_a_gpu_lost_more_links_than_end_at_one_tray() -> None:
    assert roots(standing([*lost_by_one(HIT, 0), *ports("qb4s3", 0.4)])) == {"nvlink domain qb4.777"}


def test_a_tray_that_says_that_it_failed_counts_before_those_of_which_ports_went_down() -> None:
    said = [fatal("qb4s3", 0.2), *ports("qb4s3", 0.4), *ports("qb4s4", 0.5)]
    assert roots(standing([*lost_by_one(HIT, 0), *said])) == {"switch qb4s3"}


def test_links_of_three_trays_or_beside_a_gpu_that_was_lost_are_of_a_gpu() -> None:
    assert not any(i.root.part for i in standing(links(HIT[:3], 0)).incidents())
    world = standing([off_bus(TRAYS[0], 0, 0), *links(HIT, 1)])
    assert not any(i.root.part for i in world.incidents())


def test_ports_that_go_down_when_a_compute_tray_boots_open_nothing() -> None:
    assert not standing([s for i in range(1, 10) for s in ports(f"qb4s{i}", 0.1 * i)], 1200).published


def test_that_all_gpus_lost_the_same_two_links_is_told_as_a_sign_of_a_switch_tray() -> None:
    """Which tray that is, nobody says: it stays the domain's, and people read where to look."""
    same = [
        xid(n, 149, 0.1 * i, index=gpu, link=number, action="reset_gpu")
        for i, n in enumerate(HIT)
        for gpu in range(4)
        for number in (8, 9)
    ]
    incident = standing(same).only()
    assert str(incident.root) == "nvlink domain qb4.777"
    assert "All 20 GPUs that report their links name NVLink 8 and 9 and no other" in incident.reason
    assert "one NVSwitch tray" in incident.reason


OTHER_LINKS: dict[str, list[Signal]] = {
    "one GPU names another link": [
        *links(HIT, 0, (8, 9)),
        xid(HIT[0], 149, 0.3, index=0, link=3, action="reset_gpu"),
    ],
    "each loses more than end at one tray": lost_by_one(HIT, 0),
}


@pytest.mark.parametrize("name", OTHER_LINKS)
def test_links_that_differ_say_nothing_of_one_tray(name: str) -> None:
    assert "no other" not in standing(OTHER_LINKS[name]).only().reason


def test_where_the_tray_speaks_itself_nothing_is_guessed_from_the_links() -> None:
    incident = standing([*links(HIT, 0), *ports("qb4s3", 0.4)]).only()
    assert "a guess from the numbers" not in incident.reason
