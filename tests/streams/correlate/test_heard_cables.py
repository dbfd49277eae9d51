"""Cables that devices tell of, beside what is configured: learned, corrected, forgotten."""

from __future__ import annotations

import random

from streams.model.entity import Entity
from streams.model.signal import Severity, Signal
from tests.streams.correlate.deliveries import essence, on_time, outcome
from tests.streams.correlate.world import CLUSTER, FOUR, World, _signal, cluster, link, port, storm, timeouts

FACTS = cluster({"llama": FOUR})


def heard(switch: str, name: str, seconds: float, **ends: str) -> Signal:
    """What a device says of the cable in a switch's port."""
    entity = Entity(CLUSTER, switch=switch, port=name)
    return _signal("fabric.neighbour", entity, seconds, dict(ends), severity=Severity.INFO)


def test_a_storm_at_a_port_is_that_of_the_host_that_lldp_names() -> None:
    world = World(FACTS)
    world.see(heard("leaf-1", "Ethernet12", -600, node="n2.example.internal", nic="mlx5_3"))
    world.see(storm("leaf-1", "Ethernet12", 0))
    world.pass_to(60)
    assert (world.only().root.node, world.only().family) == ("n2", "pfc_storm")


def test_the_cabling_may_be_heard_of_after_the_storm_and_the_order_makes_no_difference() -> None:
    signals = [
        heard("leaf-1", "Ethernet12", -900, node="n3"),
        heard("leaf-1", "Ethernet12", -600, node="n2", nic="mlx5_3"),
        storm("leaf-1", "Ethernet12", 0),
        *timeouts("llama", range(32), 500),
    ]
    expected = outcome(on_time(FACTS, signals))
    assert {incident.root.node for incident in expected} == {"n2"}
    for seed in range(4):
        arrivals = on_time(FACTS, signals)
        chance = random.Random(seed)
        late = [(when + chance.uniform(0, 700), what) for when, what in arrivals]
        again = outcome(late, restarts=0.3, seed=seed)
        assert list(map(essence, again)) == list(map(essence, expected))


def test_what_is_configured_counts_before_what_is_heard() -> None:
    world = World([*FACTS, link("leaf-1", "Ethernet12", "n4", "mlx5_1")])
    world.see(heard("leaf-1", "Ethernet12", 10, node="n2"))
    world.see(storm("leaf-1", "Ethernet12", 20))
    world.pass_to(80)
    assert world.only().root.node == "n4"
    other = World(FACTS)
    other.see(heard("leaf-1", "Ethernet12", 10, node="n2"))
    other.tell(link("leaf-1", "Ethernet12", "n4", "mlx5_1"))
    other.see(storm("leaf-1", "Ethernet12", 20))
    other.pass_to(80)
    assert other.only().root.node == "n4"


def test_a_cable_of_which_nothing_is_heard_for_days_is_none() -> None:
    world = World(FACTS)
    world.see(heard("leaf-1", "Ethernet12", 0, node="n2"))
    world.pass_to(50 * 3600, step=3600)
    world.restart()
    world.see(storm("leaf-1", "Ethernet12", 50 * 3600 + 10))
    world.pass_to(50 * 3600 + 100)
    assert [i.root.node for i in world.incidents()] in ([], [None])


def test_three_hosts_that_lose_a_leaf_which_only_lldp_knows_accuse_the_leaf() -> None:
    world = World(FACTS)
    world.see(*(heard("leaf-1", f"Ethernet{n}", -60, node=f"n{n}", nic="mlx5_0") for n in (1, 2, 3, 4)))
    world.see(*(port("leaf-1", f"Ethernet{n}", n / 10) for n in (1, 2, 3, 4)))
    world.pass_to(120)
    assert [(i.root.switch, i.root.node) for i in world.incidents()] == [("leaf-1", None)]


def test_hearing_the_same_again_touches_nothing() -> None:
    world = World(FACTS)
    world.see(heard("leaf-1", "Ethernet12", 0, node="n2"))
    world.see(storm("leaf-1", "Ethernet12", 20))
    world.pass_to(80)
    before = len(world.revisions)
    world.see(heard("leaf-1", "Ethernet12", 100, node="n2"))
    assert len(world.revisions) == before


def managed(seconds: float, *, cleared: bool = False) -> Signal:
    """A subnet's manager on a link, by both of its ends."""
    ends = {"node": "ib-leaf-3", "port": "9", "peer_node": "gpu-12", "peer_nic": "mlx5_2"}
    place = Entity(CLUSTER, node="ib-leaf-3")
    return _signal("fabric.link", place, seconds, {"subtype": "link_down", **ends}, cleared=cleared)


def test_a_link_of_which_the_subnets_manager_names_both_ends_is_the_hosts_without_any_inventory() -> None:
    for late in (False, True):
        signals = [managed(0), managed(6, cleared=True), managed(10)]
        world = World()
        for signal in reversed(signals) if late else signals:
            world.see(signal)
        world.pass_to(140)
        assert (world.only().family, world.only().root.node, world.only().root.nic) == (
            "nic_link",
            "gpu-12",
            "mlx5_2",
        )


def test_a_link_that_comes_back_at_once_is_told_of_by_nobody() -> None:
    world = World()
    world.see(managed(0))
    world.see(managed(4, cleared=True))
    world.pass_to(300, step=5)
    assert world.incidents() == []


def test_cabling_with_node_descriptions_is_that_of_the_switches_they_name() -> None:
    described = "MF0;leaf-1:MQM9700/U1"
    world = World([*FACTS, link(described, "12", "n2", "mlx5_3")])
    world.see(storm("leaf-1", "12", 0))
    world.pass_to(60)
    assert (world.only().root.node, world.only().family) == ("n2", "pfc_storm")
