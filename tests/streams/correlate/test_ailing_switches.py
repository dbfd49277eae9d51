"""Hosts lose their links at once and nobody knows which switch they hang on: the one that tells of itself meanwhile is why."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from streams.model.entity import Entity
from streams.model.facts import Fact
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.signal import Signal
from tests.streams.correlate.test_switch_orders import NAMES, RACK, facts, lose, ordered
from tests.streams.correlate.world import CLUSTER, World, at, link, sign


def tells(switch: str, seconds: float, subtype: str = "switch_failing") -> Signal:
    kind = "fabric.link" if subtype in ("switch_failing", "switch_chip") else "node.thermal"
    return replace(sign(kind, "", seconds, subtype), entity=Entity(CLUSTER, switch=switch))


def told(*signals: Signal, until: float = 300, world: World | None = None) -> Incident:
    world = world or World(facts(cabled=False))
    for signal in sorted(signals, key=lambda s: s.observed_at):
        world.pass_to((signal.observed_at - at(0)).total_seconds(), step=5)
        world.see(signal)
    world.pass_to(until, step=5)
    return world.only()


@pytest.mark.parametrize(
    "subtype", ["switch_fan", "switch_temperature", "switch_psu", "switch_chip", "switch_failing"]
)
@pytest.mark.parametrize("seconds", [-400.0, 15.0])
def test_the_one_switch_that_tells_of_itself_is_why(subtype: str, seconds: float) -> None:
    incident = told(*lose(RACK, 0), tells("leaf-x", seconds, subtype))
    assert (incident.family, incident.root.switch) == ("fabric_fault", "leaf-x")
    assert incident.certainty is Certainty.LIKELY
    assert "leaf-x alone was told to fail" in incident.reason


@pytest.mark.parametrize(
    "also",
    [
        [tells("leaf-y", -30, "switch_fan")],
        [tells("leaf-x", -1200, "switch_fan")],
        [tells("leaf-x", -7000, "switch_temperature")],
        [ordered("leaf-x", -60, "jdoe"), tells("leaf-y", 10), tells("leaf-z", 20)],
    ],
    ids=["two", "long before", "hours before", "two others"],
)
def test_nobody_is_named_where_several_fail_or_one_has_for_long(also: Sequence[Signal]) -> None:
    incident = told(*lose(RACK, 0), tells("leaf-x", 5), *also, until=2400)
    assert incident.root.switch is None


def test_a_switch_that_is_reloaded_on_purpose_is_not_the_one_that_fails() -> None:
    incident = told(
        *lose(RACK, 0),
        ordered("spine-1", -600, "jdoe"),
        tells("spine-1", -590),
        tells("leaf-x", 5),
        until=2400,
    )
    assert incident.root.switch == "leaf-x"


def test_a_switch_is_one_with_its_domain_and_without() -> None:
    incident = told(*lose(RACK, 0), tells("leaf-x.fabric.example", -200, "switch_fan"), tells("leaf-x", 5))
    assert incident.root.switch == "leaf-x"


def test_a_node_that_speaks_like_a_switch_is_none() -> None:
    assert told(*lose(RACK, 0), tells(NAMES[20], -60, "switch_fan")).root.switch is None


def test_a_switch_whose_hosts_are_known_and_well_is_not_why() -> None:
    known: list[Fact] = [
        replace(f, leaf="leaf-x") if f.kind == "node" and f.name in NAMES[20:] else f
        for f in facts(cabled=False)
    ]
    incident = told(*lose(RACK, 0), tells("leaf-x", -60, "switch_fan"), world=World(known))
    assert incident.root.switch is None


def test_of_two_leaves_of_the_same_hosts_the_one_that_tells_of_itself_is_why() -> None:
    """Their cables are known by another name of the NIC than the kernel has for it."""
    rails = [
        link(leaf, f"Ethernet{i}", node, rail)
        for leaf, rail in (("leaf-x", "mlx5_0"), ("leaf-y", "mlx5_1"))
        for i, node in enumerate(RACK)
    ]
    world = World([*facts(cabled=False), *rails])
    assert told(*lose(RACK, 0), tells("leaf-x", 5, "switch_chip"), world=world).root.switch == "leaf-x"


def test_what_a_switch_says_of_itself_is_nothing_while_no_host_loses_a_link() -> None:
    world = World(facts(cabled=False))
    world.see(tells("leaf-x", 0), tells("leaf-x", 5, "switch_fan"), *lose(RACK[:2], 10))
    world.pass_to(1200, step=5)
    assert not [i for i in world.incidents() if i.root.switch]


def test_two_switches_that_fail_one_after_the_other_are_two_faults() -> None:
    world = World(facts(cabled=False))
    first = [tells("leaf-x", -60, "switch_fan"), *lose(RACK, 0)]
    back = lose(RACK, 300, back=True)
    second = [tells("leaf-y", 1140, "switch_fan"), *lose(RACK, 1200)]
    for signal in [*first, *back, *second]:
        world.pass_to((signal.observed_at - at(0)).total_seconds(), step=5)
        world.see(signal)
    world.pass_to(1500, step=5)
    assert [i.root.switch for i in world.incidents()] == ["leaf-x", "leaf-y"]


def test_a_fault_that_was_told_of_the_cluster_is_merged_into_its_switchs() -> None:
    world = World(facts(cabled=False))
    world.see(*lose(RACK, 0))
    world.pass_to(100, step=5)
    assert world.only().root.switch is None
    world.see(tells("leaf-x", 110))
    world.pass_to(300, step=5)
    assert world.only().root.switch == "leaf-x"


@pytest.mark.parametrize("seed", range(8))
def test_the_order_in_which_it_is_read_changes_nothing(seed: int) -> None:
    signals = [
        *lose(RACK, 0),
        tells("leaf-x", -200, "switch_fan"),
        tells("leaf-x", 8),
        ordered("spine-1", -300),
        tells("spine-1", -290),
    ]
    straight = told(*signals, until=2400)
    random.Random(seed).shuffle(signals)
    world = World(facts(cabled=False))
    for start in range(0, len(signals), 3):
        world.see(*signals[start : start + 3])
    world.restart()
    world.pass_to(2400, step=5)
    standing = [i for i in world.incidents() if i.state is IncidentState.OPEN]
    assert [(i.id, i.root) for i in standing] == [(straight.id, straight.root)]
