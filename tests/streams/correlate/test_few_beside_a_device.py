"""A PDU that reports that it failed, and a few hosts only: what little they show is its doing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from streams.model.facts import Fact
from streams.model.signal import Severity, Signal
from tests.streams.correlate.world import World, at, node_fact, sign

RACKS = {f"gx{i:02d}": f"w{i // 6:02d}" for i in range(48)}
"""48 nodes, six in each rack."""
MINE = [name for name, rack in RACKS.items() if rack == "w02"]
PDU, ROOT = "pdu-w02-a", "part/power-feed/pdu-w02-a"


def hosts() -> list[Fact]:
    return [node_fact(name, since=-3500, rack=rack) for name, rack in RACKS.items()]


def fails(seconds: float = 0, device: str = PDU, *, back: bool = False) -> Signal:
    return sign("node.power", device, seconds, "pdu", cleared=back)


def lost(name: str, seconds: float) -> Signal:
    return sign("node.power", name, seconds, "psu")


def braked(name: str, seconds: float) -> list[Signal]:
    return [sign("gpu.power", name, seconds, "power_brake", index=i) for i in (2, 5)]


def played(signals: Sequence[Signal], order: str = "as it was", until: float = 4500) -> World:
    world = World(hosts())
    ordered = sorted(signals, key=lambda s: s.observed_at)
    for signal in reversed(ordered) if order == "backwards" else ordered:
        if order != "backwards":
            world.pass_to((signal.observed_at - at(0)).total_seconds(), step=10)
        world.see(signal)
        if order == "restarted":
            world.restart()
    world.pass_to(until, step=10)
    return world


UNKNOWN = ["bmc-8816ab20", "bmc-8816ab7f"]
STORY = [*braked(MINE[3], 1700), *braked(MINE[1], 2900)]


@pytest.mark.parametrize("order", ["as it was", "backwards", "restarted"])
@pytest.mark.parametrize("speakers", [MINE[:2], MINE[:1], UNKNOWN, UNKNOWN[:1]], ids=lambda s: ",".join(s))
def test_what_few_hosts_of_its_rack_suffer_is_the_doing_of_the_pdu_that_failed(
    speakers: list[str], order: str
) -> None:
    """Those of which the inventory knows neither name nor place as well; brakes for as long as it lasts."""
    world = played([fails(), *(lost(name, 6 + i) for i, name in enumerate(speakers)), *STORY], order)
    incident = world.only()
    assert (incident.family, incident.root.key) == ("power_cooling", ROOT)
    assert set(incident.nodes) == {*speakers, MINE[3], MINE[1]}
    assert "power feed pdu-w02-a tells of itself" in incident.reason


def test_brakes_alone_are_its_doing_too() -> None:
    assert played([fails(), *STORY]).only().root.key == ROOT


def test_two_hosts_that_nobody_knows_are_of_a_pdu_whose_name_tells_nothing() -> None:
    signals = [fails(device="pdu-a"), *(lost(name, 6) for name in UNKNOWN)]
    assert played(signals, until=1500).only().root.key == "part/power-feed/pdu-a"


def test_where_pdus_of_several_places_fail_it_is_the_power_of_the_cluster() -> None:
    signals = [fails(device="pdu-q1"), fails(2, "pdu-q2"), *(lost(name, 6) for name in UNKNOWN)]
    assert played(signals, until=1500).only().root.key == "cluster"


def test_both_feeds_of_its_rack_are_one() -> None:
    signals = [fails(), fails(3, "pdu-w02-b"), lost(MINE[0], 6)]
    assert played(signals, until=1500).only().root.key == ROOT


APART: dict[str, list[Signal]] = {
    "a node of another rack": [lost("gx40", 6)],
    "a node of it an hour later": [lost(MINE[0], 3600)],
    "a brake in another rack": braked("gx40", 1700),
    "a brake when it is well again": [fails(900, back=True), *braked(MINE[0], 1700)],
    "a host that nobody knows, by itself": [lost(UNKNOWN[0], 6)],
    "hosts that nobody knows, minutes later": [lost(name, 240) for name in UNKNOWN],
    "hosts whose names tell of other racks": [lost("nas-w04-1", 6), lost("nas-w05-1", 6)],
    "heat": [sign("node.thermal", MINE[0], 6, "cooling", severity=Severity.CRITICAL)],
}


@pytest.mark.parametrize("name", APART)
def test_what_it_does_not_explain_is_not_its_doing(name: str) -> None:
    world = played([fails(), *APART[name]], until=6000)
    roots = {i.root.key for i in world.incidents()}
    hit = {f"node/{s.entity.node}" for s in APART[name] if s.entity.node != PDU}
    assert roots == {f"node/{PDU}", *hit}


CDU, LOOP = "CDU-W02", "part/coolant-loop/CDU-W02"


def flows_low(
    seconds: float = 0, device: str = CDU, subtype: str = "coolant", *, back: bool = False
) -> Signal:
    return sign("node.thermal", device, seconds, subtype, severity=Severity.WARNING, cleared=back)


@pytest.mark.parametrize("order", ["as it was", "backwards", "restarted"])
def test_a_single_hot_node_of_its_rack_is_the_doing_of_the_coolant_unit(order: str) -> None:
    hot = sign("gpu.thermal", MINE[2], 1500, "thermal_slowdown", index=1)
    incident = played([flows_low(), hot], order).only()
    assert (incident.root.key, incident.nodes) == (LOOP, (MINE[2],))


def test_a_loop_that_no_longer_flows_is_an_event_when_it_lasts_though_no_node_is_hot() -> None:
    world = played([flows_low()], until=840)
    assert not world.published
    world.pass_to(1200, step=10)
    assert (world.only().root.key, world.only().nodes) == (LOOP, ())


UNFELT: dict[str, list[Signal]] = {
    "a quarter of an hour is not over": [flows_low(), flows_low(700, back=True)],
    "a unit that is at no known rack": [flows_low(device="cdu-9")],
    "what is no matter of its flow": [flows_low(subtype="temperature")],
}


@pytest.mark.parametrize("name", UNFELT)
def test_what_a_coolant_unit_reports_while_all_nodes_are_well_is_else_no_event(name: str) -> None:
    assert not played(UNFELT[name], until=3000).published
