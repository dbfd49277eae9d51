"""Hosts that no object lists, as with Slurm: how many there are, and what they share, their metrics, names and cables tell."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta

import pytest

from streams.model.incident import Incident, IncidentState
from streams.model.signal import Severity, Signal
from tests.streams.correlate.test_slurm_jobs import says
from tests.streams.correlate.world import World, at, link, nic, node_fact, not_ready, port, sign, xid

RACK = [f"gb-r1-n{i:02d}" for i in range(1, 19)]
OTHERS = [f"gb-r{r}-n{i:02d}" for r in (2, 3, 4) for i in range(1, 19)]


def heard(names: Sequence[str], seconds: float = -600) -> list[Signal]:
    return [
        sign("node.gpus", name, seconds + 0.01 * i, severity=Severity.INFO) for i, name in enumerate(names)
    ]


def broken_links(names: Sequence[str], seconds: float) -> list[Signal]:
    return [xid(name, 149, seconds + 0.05 * i) for i, name in enumerate(names)]


def hot(names: Sequence[str], seconds: float, apart: float = 10) -> list[Signal]:
    return [
        sign(
            "gpu.thermal", name, seconds + apart * i, "thermal_slowdown", index=0, severity=Severity.CRITICAL
        )
        for i, name in enumerate(names)
    ]


def cdu(name: str, seconds: float, rack: str = "", serves: str = "") -> Signal:
    """What a coolant unit tells of itself."""
    if not serves:
        return sign("node.thermal", name, seconds, alert="CduFlowLow", severity=Severity.WARNING, rack=rack)
    return sign("node.thermal", name, seconds, "coolant", severity=Severity.WARNING, serves=serves)


def told(signals: Sequence[Signal], until: float, world: World | None = None) -> list[Incident]:
    world = world or World()
    for signal in sorted(signals, key=lambda s: s.observed_at):
        world.pass_to((signal.observed_at - at(0)).total_seconds(), step=5)
        world.see(signal)
    world.pass_to(until, step=5)
    return [incident for incident in world.incidents() if incident.merged_into is None]


def test_a_rack_of_hosts_that_only_metrics_tell_of_is_one_fault() -> None:
    (incident,) = told([*heard([*RACK, *OTHERS]), *broken_links(RACK, 0)], 120)
    assert (incident.family, incident.root.rack) == ("shared_fault", "r1")
    assert incident.facts["nodes_known"] == len(RACK)


def test_without_the_hosts_that_are_well_nothing_is_known_to_be_shared() -> None:
    assert not [i for i in told(broken_links(RACK[:4], 0), 120) if i.root.rack]


def test_hosts_of_the_rack_that_are_well_speak_against_it() -> None:
    found = told([*heard([*RACK, *OTHERS]), *broken_links(RACK[:4], 0)], 120)
    assert not [i for i in found if i.root.rack]


def test_lines_with_a_domain_and_metrics_without_mean_one_host() -> None:
    full = [f"{name}.cluster.example" for name in RACK]
    (incident,) = told([*heard([*RACK, *OTHERS]), *broken_links(full, 0)], 120)
    assert incident.root.rack == "r1"


def test_an_inventory_counts_before_what_metrics_tell() -> None:
    world = World(node_fact(name, since=-3500) for name in OTHERS)
    found = told([*heard(RACK), *broken_links(RACK, 0)], 120, world)
    assert not [i for i in found if i.root.rack == "r1"]


def test_hosts_whose_metrics_end_are_forgotten_after_a_day() -> None:
    world = World()
    told([*heard([*RACK, *OTHERS])], 60, world)
    world.now = at(timedelta(hours=25).total_seconds())
    late = timedelta(hours=25).total_seconds() + 60
    assert not [i for i in told(broken_links(RACK, late), late + 120, world) if i.root.rack]


@pytest.mark.parametrize("seed", range(8))
def test_the_order_in_which_hosts_are_heard_does_not_matter(seed: int) -> None:
    signals = [*heard([*RACK, *OTHERS]), *broken_links(RACK, 0), *hot(OTHERS[:9], 30), cdu("cdu-2", 20)]
    world, straight = World(), World()
    straight.see(*signals)
    straight.pass_to(900, step=5)
    random.Random(seed).shuffle(signals)
    for start in range(0, len(signals), 7):
        world.see(*signals[start : start + 7])
    world.restart()
    world.pass_to(900, step=5)
    assert _results(world) == _results(straight)


def _results(world: World) -> list[tuple[str, str, str | None]]:
    return sorted((i.id, str(i.root), i.merged_into) for i in world.incidents())


def test_the_rack_of_a_topology_file_counts_for_hosts_without_objects() -> None:
    names = [f"hx{i:02d}" for i in range(1, 25)]
    world = World(link("leaf-1", f"e{i}", name, rack=f"r{i // 8}") for i, name in enumerate(names))
    (incident,) = told(hot(names[:8], 0), 600, world)
    assert (incident.family, incident.root.rack) == ("power_cooling", "r0")
    assert "guess" not in incident.reason


def test_a_power_feed_that_says_where_it_stands_tells_of_its_rack() -> None:
    names = [f"hx{i:02d}" for i in range(1, 25)]
    world = World(link("leaf-1", f"e{i}", name, rack=f"r{i // 8}") for i, name in enumerate(names))
    feed = sign("node.power", "pdu-77-a", 0, "feed", rack="r1", alert="PduFeedLost")
    (incident,) = told([feed], 300, world)
    assert (incident.family, incident.root.rack) == ("power_cooling", "r1")


def test_the_one_coolant_unit_that_complains_is_why_a_row_of_nodes_is_hot() -> None:
    names = [f"lum{r}-c{i:02d}" for r in (1, 2) for i in range(1, 19)]
    (incident,) = told([*heard(names), cdu("cdu-1", 0), *hot(names[:18], 60)], 900)
    assert incident.root.part is not None
    assert (incident.root.part.kind, incident.root.part.name) == ("coolant-loop", "cdu-1")


@pytest.mark.parametrize("also", ["cdu-2", "cdu-9"])
def test_of_several_units_that_complain_none_is_named(also: str) -> None:
    names = [f"lum{r}-c{i:02d}" for r in (1, 2) for i in range(1, 19)]
    (incident,) = told([*heard(names), cdu("cdu-1", 0), cdu(also, 10), *hot(names[:18], 60)], 900)
    assert incident.root.part is not None
    assert incident.root.part.name == "lum1-"


def racks_of(incidents: Sequence[Incident]) -> list[str]:
    return sorted(i.root.part.name if i.root.part else str(i.root) for i in incidents)


HALL = [f"gb-k{r:02d}-n{i:02d}" for r in range(7, 13) for i in range(1, 13)]
KNOWN = [node_fact(name, since=-3500, rack=name[3:6].upper()) for name in HALL]


@pytest.mark.parametrize("serves", ["k07,k08", "K07 and K08", "k07-k08", "K7..K8", "k[07-08]"])
def test_of_several_units_that_complain_the_one_that_says_it_serves_the_hot_racks_is_why(serves: str) -> None:
    units = [cdu("cdu-1", 0, serves=serves), cdu("cdu-2", 10, serves="K11"), cdu("cdu-3", 20)]
    (incident,) = told([*units, *hot(HALL[:24], 60)], 900, World(KNOWN))
    assert racks_of([incident]) == ["cdu-1"]
    assert incident.facts["nodes_hit"] == 24


def test_racks_that_are_told_by_their_numbers_are_found() -> None:
    known = [node_fact(name, since=-3500, rack=f"rack-{int(name[4:6])}") for name in HALL]
    units = [cdu("cdu-1", 0, serves="07 to 08"), cdu("cdu-2", 10, serves="9..12")]
    assert racks_of(told([*units, *hot(HALL[:24], 60)], 900, World(known))) == ["cdu-1"]


def test_a_unit_that_serves_other_racks_is_not_why() -> None:
    (incident,) = told([cdu("cdu-2", 0, serves="k11,k12"), *hot(HALL[:12], 60)], 900, World(KNOWN))
    assert racks_of([incident]) == ["rack K07"]


def test_two_units_that_serve_the_same_hot_rack_name_none() -> None:
    units = [cdu("cdu-1", 0, serves="k07"), cdu("cdu-2", 0, serves="k07-k09")]
    (incident,) = told([*units, *hot(HALL[:12], 60)], 900, World(KNOWN))
    assert racks_of([incident]) == ["rack K07"]


def test_the_rack_in_a_units_name_tells_whom_it_serves() -> None:
    units = [cdu("cdu-k07", 0), cdu("cdu-k09", 0), cdu("cdu-4", 0)]
    (incident,) = told([*units, *hot(HALL[:12], 60)], 900, World(KNOWN))
    assert racks_of([incident]) == ["cdu-k07"]


def test_a_node_that_is_hot_in_a_served_rack_is_part_of_it_and_one_elsewhere_is_not() -> None:
    signals = [cdu("cdu-1", 0, serves="k07,k08"), *hot([*HALL[:12], HALL[14], HALL[40]], 60, apart=12)]
    found = told(signals, 1200, World(KNOWN))
    assert racks_of(found) == [f"GPU 0000:10:00 on {HALL[40]}", "cdu-1"]
    assert {i.facts.get("nodes_hit") for i in found} == {None, 13}


@pytest.mark.parametrize("seed", range(6))
def test_units_racks_and_what_they_serve_may_be_read_in_any_order(seed: int) -> None:
    signals = [cdu("cdu-1", 0, serves="k07,k08"), cdu("cdu-2", 5), *hot(HALL[:24], 60)]
    world, straight = World(), World(KNOWN)
    straight.see(*signals)
    straight.pass_to(900, step=5)
    chance = random.Random(seed)
    chance.shuffle(signals)
    told = chance.sample(KNOWN, len(KNOWN))
    for start in range(0, len(signals), 5):
        for fact in told[start * 3 : start * 3 + 15]:
            world.tell(fact)
        world.see(*signals[start : start + 5])
    for fact in told:
        world.tell(fact)
    world.restart()
    world.pass_to(900, step=5)
    standing = [[i.id for i in w.incidents() if i.state is IncidentState.OPEN] for w in (world, straight)]
    assert standing[0] == standing[1]
    assert len(standing[0]) == 1


def test_a_unit_that_was_well_again_for_long_is_not_why() -> None:
    names = [f"lum{r}-c{i:02d}" for r in (1, 2) for i in range(1, 19)]
    over = sign("node.thermal", "cdu-1", 600, severity=Severity.WARNING, cleared=True, alert="CduFlowLow")
    (incident,) = told([*heard(names, -600), cdu("cdu-1", 0), over, *hot(names[:18], 2400)], 3600)
    assert incident.root.part is not None
    assert incident.root.part.name == "lum1-"


def test_heat_joins_what_its_rack_tells_of_itself_as_long_as_that_lasts() -> None:
    first = cdu("cdu-r1", 0, rack="r1")
    found = told([*heard([*RACK, *OTHERS]), first, *hot(RACK[:6], 1800, apart=20)], 2700)
    (incident,) = found
    assert incident.root.rack == "r1"
    assert not [i for i in found if i.root.node]


def test_the_tray_is_named_where_links_led_to_memory_errors() -> None:
    said = sign("gpu.nvlink", "", 0, "switch_tray", tray="gb-r1-sw4")
    memory = [xid(name, 94, 0.4 + 0.05 * i) for i, name in enumerate(RACK[:12])]
    (incident,) = told([*heard([*RACK, *OTHERS]), *broken_links(RACK, 0.1), *memory, said], 120)
    assert incident.root.switch == "gb-r1-sw4"


def test_what_is_lost_on_one_host_beside_a_unit_that_complains_is_its_own() -> None:
    names = [f"lum{r}-c{i:02d}" for r in (1, 2) for i in range(1, 19)]
    found = told([*heard(names), cdu("cdu-1", 0), nic("lum1-c03", "mlx5_0", 60)], 600)
    assert not [i for i in found if i.root.part]


NIDS = [f"nid{i:04d}" for i in range(1, 37)]
"""Names that tell no rack."""


@pytest.mark.parametrize("hit", [3, 12])
def test_hosts_that_nobody_can_place_are_hot_for_the_one_unit_that_complains(hit: int) -> None:
    later = hot([NIDS[hit]], 1500)
    (incident,) = told([*heard(NIDS), cdu("cdu-r2", 0, rack="r2"), *hot(NIDS[:hit], 300, 6), *later], 1900)
    assert racks_of([incident]) == ["cdu-r2"]
    assert incident.facts["nodes_hit"] == hit + 1
    assert "a guess" in incident.reason


@pytest.mark.parametrize("units", [[], ["cdu-1", "cdu-2"]])
def test_hosts_that_nobody_can_place_are_hot_for_the_cooling_where_not_one_unit_complains(
    units: list[str],
) -> None:
    (incident,) = told([*heard(NIDS), *(cdu(unit, 0) for unit in units), *hot(NIDS[:4], 300, 6)], 700)
    assert (str(incident.root), set(incident.nodes)) == ("the cooling", set(NIDS[:4]))


def test_two_hot_hosts_that_nobody_can_place_are_not_taken_for_a_units() -> None:
    found = told([*heard(NIDS), cdu("cdu-r2", 0), *hot(NIDS[:2], 300)], 700)
    assert all(i.root.part is None for i in found)


def test_heat_from_before_a_unit_complained_is_its_hosts_own() -> None:
    signals = [*heard(NIDS), *hot([NIDS[30]], 0), cdu("cdu-r2", 900), *hot(NIDS[:4], 1200, 6)]
    assert len([i for i in told(signals, 1600) if i.root.part is None]) == 1


def feed_lost(name: str, seconds: float, rack: str = "") -> Signal:
    return sign("node.power", name, seconds, "feed", rack=rack, alert="PDUBreakerOpen")


def unpowered(names: Sequence[str], seconds: float) -> list[Signal]:
    """Their supplies on one feed have no input any more."""
    return [sign("node.power", name, seconds + 0.2 * i, "psu") for i, name in enumerate(names)]


PAIRS = {
    "by the rack in their names": (RACK, ["pdu-r1-a", "pdu-r1-b"], "", "pdu-r1-a"),
    "by the rack that their alerts tell": (RACK, ["pdu-17", "pdu-18"], "r1", "rack r1"),
    "by their names alone": (NIDS[:12], ["pdu-7a", "pdu-7b"], "", "pdu-7a"),
    "by their alerts, of hosts that nobody can place": (NIDS[:12], ["pdu-17", "pdu-18"], "k9", "pdu-17"),
}


@pytest.mark.parametrize("case", PAIRS)
@pytest.mark.parametrize("backwards", [False, True])
def test_the_two_feeds_of_a_rack_and_its_hosts_are_one_fault(case: str, *, backwards: bool) -> None:
    names, feeds, rack, root = PAIRS[case]
    known = [*heard([*RACK, *OTHERS] if names == RACK else NIDS)]
    signals = [feed_lost(feeds[0], 0, rack), *unpowered(names, 1), feed_lost(feeds[1], 94, rack)]
    signals += [not_ready(name, 95 + 0.1 * i) for i, name in enumerate(names)]
    world = World()
    world.see(*known)
    if backwards:
        world.see(*reversed(signals))
        found = told([], 600, world)
    else:
        found = told(signals, 600, world)
    assert racks_of(found) == [root]
    assert found[0].facts["not_ready"] == len(names)


def dark_leaf(switch: str, ports: int, seconds: float) -> list[Signal]:
    """A leaf tells of its ports; where these lead nobody knows."""
    return [port(switch, f"Ethernet{i}/1", seconds + 0.01 * i) for i in range(1, ports + 1)]


@pytest.mark.parametrize("order", ["as it was", "leaf first", "power last"])
def test_the_leaf_of_a_rack_without_power_is_part_of_that(order: str) -> None:
    power = [*unpowered(RACK, 0), feed_lost("pdu-r1-a", 0)]
    leaf = dark_leaf("lf-3", 64, 92)
    world = World()
    world.see(*heard([*RACK, *OTHERS]))
    if order == "as it was":
        found = told([*power, *leaf], 900, world)
    else:
        world.see(*leaf)
        world.pass_to(200 if order == "power last" else 92.5, step=5)
        world.see(*power)
        found = told([], 900, world)
    assert racks_of(found) == ["pdu-r1-a"]
    assert [i for i in world.incidents() if i.root.switch] == [] or order == "power last"
    world.restart()
    world.pass_to(960, step=5)
    assert racks_of([i for i in world.incidents() if i.merged_into is None]) == ["pdu-r1-a"]


APART = {
    "long after": dark_leaf("lf-3", 64, 900),
    "more links than the rack has": dark_leaf("lf-3", 190, 92),
    "hosts that have power": [nic(name, "eth2", 92 + 0.1 * i) for i, name in enumerate(OTHERS[:8])],
}


@pytest.mark.parametrize("case", APART)
def test_a_switch_that_loses_other_links_than_those_of_the_dark_rack_is_its_own_fault(case: str) -> None:
    cables = [link("lf-3", f"e{i}", name, "eth2") for i, name in enumerate(OTHERS[:8])]
    world = World(cables if "have power" in case else [])
    world.see(*heard([*RACK, *OTHERS]))
    found = told([*unpowered(RACK[:8], 0), *APART[case]], 1500, world)
    assert racks_of(found) == ["rack r1", "switch lf-3"]


def test_of_the_feeds_of_two_racks_neither_is_the_one_that_hosts_lost() -> None:
    signals = [*heard(NIDS), feed_lost("pdu-7a", 0), feed_lost("pdu-8a", 1), *unpowered(NIDS[:4], 2)]
    (incident,) = told(signals, 400)
    assert racks_of([incident]) == ["cluster"]
    assert "pdu-7a, pdu-8a report it as well" in incident.reason


def test_feeds_of_two_racks_are_not_one_where_no_host_lost_an_input() -> None:
    found = told([*heard(NIDS), feed_lost("pdu-7a", 0), feed_lost("pdu-8a", 1)], 400)
    assert set(racks_of(found)) == {"node pdu-7a", "node pdu-8a"}


SPOKEN_FOR = [
    "bmc-gb-r1-n03",
    "GB-R1-N03-IPMI",
    "gb-r1-n03-ilo.oob.example",
    "idrac-gb-r1-n03",
    "ipmi-gb-r1-n03.example",
]


def trip(name: str, seconds: float) -> Signal:
    return sign("node.thermal", name, seconds, "thermal_trip", severity=Severity.CRITICAL)


@pytest.mark.parametrize("controller", SPOKEN_FOR)
@pytest.mark.parametrize("late", [False, True])
def test_what_a_management_controller_says_is_said_of_its_host(controller: str, *, late: bool) -> None:
    metrics = heard(RACK, 30 if late else -600)
    (incident,) = told([*metrics, trip(controller, 0)], 300)
    assert incident.root.node == "gb-r1-n03"


def test_a_controller_speaks_of_the_host_that_slurm_gave_to_a_job() -> None:
    for late in (False, True):
        given = says("running", 30 if late else -60, "a[1-2]")
        (incident,) = told([given, trip("bmc-a1", 0)], 300)
        assert incident.root.node == "a1"


def test_a_controller_speaks_of_its_host_under_the_name_that_the_hosts_own_lines_have() -> None:
    full = "gb-r1-n03.hall.example"
    for first, second in (
        (xid(full, 48, 0), trip("bmc-gb-r1-n03", 5)),
        (trip("bmc-gb-r1-n03", 0), xid(full, 48, 5)),
    ):
        found = told([*heard(RACK), first, second], 300)
        assert {i.root.node for i in found} == {full}


@pytest.mark.parametrize("name", ["bmc-gb-r9-n03", "mgmt-07", "gb-r1-n03x-bmc"])
def test_a_controller_of_no_known_host_is_nobodys_but_its_own(name: str) -> None:
    (incident,) = told([*heard(RACK), xid("07", 48, -900), trip(name, 0)], 300)[1:]
    assert incident.root.node == name


def test_a_node_that_is_called_like_a_controller_is_itself() -> None:
    (incident,) = told([*heard(["gpu-7", "gpu-7-mgmt"]), trip("gpu-7-mgmt", 0)], 300)
    assert incident.root.node == "gpu-7-mgmt"


def test_of_a_controller_in_a_network_of_its_own_no_doubt_falls_on_its_host() -> None:
    found = told(
        [
            *heard(RACK),
            xid("gb-r1-n03", 48, 0),
            trip("bmc-gb-r1-n03.oob.example", 5),
            xid("gb-r1-n03.hall.example", 95, 9),
        ],
        300,
    )
    assert {i.root.node for i in found} == {"gb-r1-n03"}


def test_what_a_controller_says_of_a_node_that_is_away_is_no_sign_of_its_life() -> None:
    gone = [says("running", -900, "gb-r1-n[01-18]"), not_ready("gb-r1-n03", 0)]
    hot = "gb-r1-n03-bmc"
    for name, lives in ((hot, None), ("gb-r1-n03", True)):
        speaks = sign("node.thermal", name, 120, "temperature", severity=Severity.WARNING)
        down = next(i for i in told([*heard(RACK), *gone, speaks], 900) if i.family == "node_down")
        assert (down.root.node, down.facts.get("lives")) == ("gb-r1-n03", lives)


@pytest.mark.parametrize("seed", range(8))
def test_controllers_and_hosts_may_be_heard_in_any_order(seed: int) -> None:
    signals = [
        *heard([*RACK, *OTHERS]),
        *hot([f"{name}.hall.example" for name in RACK[:9]], 0),
        *[trip(f"bmc-{name}", 60 + i) for i, name in enumerate(RACK[:9])],
        trip("ipmi-gb-r2-n01.oob.example", 1200),
    ]
    world, straight = World(), World()
    straight.see(*signals)
    straight.pass_to(2000, step=5)
    assert sorted(filter(None, (i.root.node or i.root.rack for i in straight.incidents()))) == [
        "gb-r2-n01",
        "r1",
    ]
    random.Random(seed).shuffle(signals)
    for start in range(0, len(signals), 5):
        world.see(*signals[start : start + 5])
    world.restart()
    world.pass_to(2000, step=5)
    assert [i.id for i in world.incidents() if i.state is IncidentState.OPEN] == [
        i.id for i in straight.incidents()
    ]
