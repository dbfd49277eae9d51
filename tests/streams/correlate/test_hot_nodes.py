"""Nodes of several racks that grow hot in the same minute have one thing in common: what cools them."""

from __future__ import annotations

from collections.abc import Sequence

from streams.model.incident import Incident
from streams.model.signal import Signal
from tests.streams.correlate.test_hosts_without_objects import cdu, hot
from tests.streams.correlate.world import World, in_racks

HOSTS = [f"bx{i:03d}" for i in range(1, 65)]


def opened(signals: Sequence[Signal], until: float = 600) -> list[Incident]:
    w = World()
    for signal in sorted(signals, key=lambda s: s.observed_at):
        w.see(signal)
    w.pass_to(until, step=5)
    return w.incidents()


def test_the_rack_in_the_labels_of_metrics_is_what_hot_hosts_share() -> None:
    (incident,) = opened([*in_racks(HOSTS), *hot(HOSTS[:4], 0)])
    assert incident.root.rack == "R00"


def test_heat_in_several_racks_at_once_is_one_fault_of_their_cooling() -> None:
    (incident,) = opened([*in_racks(HOSTS), *hot(HOSTS[:16], 0, apart=5)])
    assert (incident.family, str(incident.root)) == ("power_cooling", "the cooling")
    assert set(incident.nodes) == set(HOSTS[:16])
    assert "16 of 64 nodes (rack R00, rack R01, rack R02, rack R03)" in incident.reason


def test_without_any_rack_it_is_the_cooling_too() -> None:
    (incident,) = opened(hot(HOSTS[:6], 0, apart=8))
    assert str(incident.root) == "the cooling"
    assert set(incident.nodes) == set(HOSTS[:6])


def test_the_one_coolant_unit_that_complains_is_the_culprit() -> None:
    (incident,) = opened([*in_racks(HOSTS), cdu("cdu-4", -60), *hot(HOSTS[:16], 0, apart=5)])
    assert incident.root.part is not None
    assert incident.root.part.name == "cdu-4"


def test_heat_that_comes_one_node_after_the_other_has_reasons_of_its_own() -> None:
    found = opened([*in_racks(HOSTS), *hot(HOSTS[:40:8], 0, apart=400)], until=3000)
    assert sorted(i.root.node or "" for i in found) == HOSTS[:40:8]


def test_three_hot_nodes_of_a_large_cluster_are_three() -> None:
    found = opened([*in_racks(HOSTS), *hot([HOSTS[0], HOSTS[20], HOSTS[40]], 0)])
    assert len(found) == 3
