"""A switch that takes its links along: told from the cables of single hosts, of racks without power and of other switches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streams.model.facts import NodeFact
from streams.model.incident import Certainty, Incident, IncidentState
from tests.streams.correlate.link_stories import (
    MANY,
    all_lose,
    closes_a_node,
    counted,
    failing,
    rack,
    ranks_beside,
    story,
    suffering,
)
from tests.streams.correlate.world import (
    FOUR,
    World,
    at,
    cluster,
    job,
    link,
    nic,
    node_fact,
    not_ready,
    port,
    timeouts,
)


def outage(world: World) -> Incident:
    world.see(*all_lose(apart=3 / len(MANY)))
    world.pass_to(8)
    world.see(*suffering(8, 9))
    world.pass_to(200)
    return world.only()


def test_a_leaf_that_dies_is_one_incident_at_the_leaf_with_all_its_jobs() -> None:
    world = World(rack())
    incident = outage(world)
    assert (incident.family, incident.root.switch, incident.root.node) == ("fabric_fault", "leaf-1", None)
    assert len(incident.jobs) == 8
    assert len(incident.nodes) == 64
    assert not closes_a_node(incident)
    assert len(world.published) == 1


def test_many_hosts_without_any_topology_are_still_one_fault_of_the_fabric() -> None:
    world = World(rack(labels=False))
    incident = outage(world)
    assert (incident.family, incident.root.kind, len(incident.jobs)) == ("fabric_fault", "cluster", 8)
    assert not closes_a_node(incident)


def test_hosts_that_are_lost_with_their_leaf_are_part_of_it() -> None:
    world = World(rack())
    world.see(*all_lose(apart=0.1))
    world.see(*(not_ready(node, 45 + 0.1 * i) for i, node in enumerate(MANY)))
    world.pass_to(300)
    assert (world.only().family, world.only().root.switch) == ("fabric_fault", "leaf-1")


def test_a_leaf_that_comes_back_ends_its_incident() -> None:
    world = World(rack())
    world.see(*all_lose(apart=0.1))
    world.pass_to(60)
    world.see(*all_lose(90, 0.1, cleared=True))
    world.pass_to(300)
    assert world.only().state is IncidentState.RESOLVED


@pytest.mark.parametrize(("again", "incarnations"), [(1200, [1]), (5400, [1, 2])])
def test_a_leaf_that_fails_again_within_the_hour_is_one_incident_though_some_links_never_told_that_they_came_back(
    again: int, incarnations: list[int]
) -> None:
    world = World(rack())
    world.see(*all_lose(apart=0.1))
    world.pass_to(60)
    world.see(*(one for i, one in enumerate(all_lose(90, 0.1, cleared=True)) if i % 8))
    world.pass_to(again, step=10)
    assert world.only().state is IncidentState.RESOLVED
    world.see(*all_lose(again, 0.1))
    world.pass_to(again + 100)
    found = [(i.family, i.incarnation) for i in world.incidents()]
    assert found == [("fabric_fault", number) for number in incarnations]
    assert not world.incidents()[-1].state.is_over


def test_two_hosts_of_a_leaf_are_two_links() -> None:
    world = story(nic("n1", "eth2", 0), nic("n2", "eth2", 10))
    assert [(i.family, i.root.node) for i in world.incidents()] == [("nic_link", "n1"), ("nic_link", "n2")]


def test_three_hosts_of_different_leaves_are_three_links() -> None:
    facts = [link(f"leaf-{i}", "Ethernet0", node, "eth2") for i, node in enumerate(FOUR)]
    world = story(*(nic(n, "eth2", i) for i, n in enumerate(FOUR[:3])), facts=facts)
    assert [i.family for i in world.incidents()] == ["nic_link"] * 3


def test_links_of_one_leaf_that_fail_minutes_apart_are_links_of_their_own() -> None:
    world = story(*(nic(n, "eth2", 100 * i) for i, n in enumerate(FOUR[:3])), until=400)
    assert [i.family for i in world.incidents()] == ["nic_link"] * 3


def test_ports_of_one_switch_that_are_described_nowhere_are_the_switchs() -> None:
    world = World()
    world.see(*(port("leaf-9", f"Ethernet{4 * i}", i) for i in range(24)))
    world.pass_to(200)
    assert (world.only().family, world.only().root.key) == ("fabric_fault", "switch/leaf-9")
    assert world.only().certainty is Certainty.LIKELY


def test_as_many_ports_as_one_host_has_are_one_neighbour_of_the_switch() -> None:
    """A host that is rebooted takes all of its links down, and nothing tells that they were one host's."""
    world = World([node_fact(n, leaf="leaf-9") for n in FOUR])
    world.see(*(port("leaf-9", f"Ethernet{4 * i}", 0.1 * i) for i in range(8)))
    world.pass_to(200)
    assert not world.incidents()
    world.see(*(port("leaf-9", f"Ethernet{4 * i}", 201 + 0.1 * i) for i in range(8, 24)))
    world.pass_to(400)
    assert all(i.certainty is not Certainty.DECISIVE for i in world.incidents())


def test_hosts_of_a_rack_that_lost_their_power_are_not_the_switchs_fault() -> None:
    world = story(
        *(port("leaf-1", f"Ethernet{4 * i}", 0.1 * i) for i in range(4)),
        *(port("leaf-2", f"Ethernet{4 * i}", 0.1 * i) for i in range(4)),
        *(not_ready(n, 45 + i) for i, n in enumerate(FOUR)),
    )
    assert {i.family for i in world.incidents()} == {"nodes_not_ready"}


def test_a_rail_that_dies_is_the_leaf_of_that_rail() -> None:
    world = story(*(nic(n, "mlx5_1", 0.5 * i) for i, n in enumerate(FOUR)), *failing(20))
    assert (world.only().family, world.only().root.switch) == ("fabric_fault", "leaf-2")
    assert world.only().jobs == (job("llama"),)


def test_rails_of_a_cabling_file_name_the_leaf_without_a_cable_for_each_port() -> None:
    rails = {"mlx5_0": "leaf-a", "mlx5_1": "leaf-b"}
    facts = [
        replace(f, rails=rails, leaf="row-3") if isinstance(f, NodeFact) else f
        for f in cluster({"llama": FOUR})
    ]
    world = World(facts)
    world.see(*(nic(n, "mlx5_1", 0.5 * i) for i, n in enumerate(FOUR)))
    world.pass_to(200)
    assert (world.only().family, world.only().root.switch) == ("fabric_fault", "leaf-b")


def test_a_port_whose_cable_was_pulled_tells_of_its_host_no_more() -> None:
    cables = [link("leaf-1", f"Ethernet{4 * i}", n, "mlx5_0") for i, n in enumerate(FOUR)]
    world = World([*cluster({"llama": FOUR}), *cables])
    world.gone(cables[1], -30)
    world.see(port("leaf-1", "Ethernet4", 0))
    world.pass_to(200)
    assert world.incidents() == []
    world.tell(replace(cables[1], observed_at=at(201)))
    world.pass_to(260)
    assert world.only().root.node == "n2"


def test_a_cable_between_switches_is_one_fault_whichever_end_tells_it() -> None:
    world = story(port("spine-1", "Ethernet0", 0), port("leaf-1", "Ethernet120", 0.5))
    assert world.incidents() == []
    world.pass_to(1300, step=10)
    incident = world.only()
    assert (incident.family, incident.root.key) == ("fabric_fault", "port/leaf-1/Ethernet120")
    assert not closes_a_node(incident)


def test_a_cable_between_switches_that_is_moved_is_no_incident() -> None:
    down = [port("spine-1", "Ethernet0", 0), port("leaf-1", "Ethernet120", 0.5)]
    up = [
        port("spine-1", "Ethernet0", 700, cleared=True),
        port("leaf-1", "Ethernet120", 701, cleared=True),
    ]
    world = story(*down, *up, until=3000)
    assert world.incidents() == []


def test_the_switches_beyond_a_bundle_of_uplinks_are_not_at_fault_with_the_one_that_lost_all() -> None:
    spines = [f"spine-{i}" for i in range(4)]
    facts = [
        link("leaf-1", f"Ethernet{10 * i + n}", peer=spine, peer_port=f"Ethernet{n}")
        for i, spine in enumerate(spines)
        for n in range(4)
    ]
    lost = [port(fact.switch, fact.port, 0.1 * i) for i, fact in enumerate(facts)]
    world = story(*lost, until=1600, facts=facts)
    assert [i.root.switch for i in world.incidents()] == ["leaf-1"]


def test_jobs_that_fail_on_the_network_behind_an_uplink_are_its_victims() -> None:
    incident = story(port("leaf-1", "Ethernet120", 0), *failing(20)).only()
    assert (incident.family, incident.jobs) == ("fabric_fault", (job("llama"),))


def test_a_rank_that_hangs_far_later_is_not_the_uplinks_fault() -> None:
    world = story(port("leaf-1", "Ethernet120", 0), *timeouts("llama", ranks_beside("n3"), 1602), until=1700)
    assert [i.family for i in world.incidents()] == ["fabric_fault", "silent_node"]
    assert world.incidents()[0].jobs == ()


UPLINKS = [link(f"leaf-{i}", "Ethernet120", peer="spine-1", peer_port=f"Ethernet{i}") for i in range(6)]


def test_uplinks_of_many_leaves_to_one_spine_are_the_spine() -> None:
    world = story(*(port(f"leaf-{i}", "Ethernet120", 0.2 * i) for i in range(6)), facts=UPLINKS)
    assert world.incidents() == []
    world.pass_to(1230, step=10)
    assert (world.only().family, world.only().root.key) == ("fabric_fault", "switch/spine-1")


@pytest.mark.parametrize("both", [False, True], ids=["its ports are not known", "all of its ports are known"])
def test_a_spine_that_restarts_without_harm_is_no_incident(both: bool) -> None:
    ends = [link("spine-1", f"Ethernet{i}", peer=f"leaf-{i}", peer_port="Ethernet120") for i in range(6)]
    cables = [*UPLINKS, *ends] if both else UPLINKS
    world = story(*(port(f"leaf-{i}", "Ethernet120", 0.2 * i) for i in range(6)), facts=cables)
    world.pass_to(900, step=10)
    world.see(*(port(f"leaf-{i}", "Ethernet120", 900 + i, cleared=True) for i in range(6)))
    world.pass_to(2000, step=10)
    assert world.revisions == []


@pytest.mark.parametrize("before", [-1800, -540, -100])
def test_errors_of_some_links_before_their_switch_goes_down_keep_them_out_of_nothing(before: float) -> None:
    hosts = [f"n{i}" for i in range(1, 9)]
    cables = [link("leaf-1", f"Ethernet{8 * i}", host, "mlx5_2") for i, host in enumerate(hosts)]
    world = World([*cluster({"llama": hosts}), *cables])
    for i in (2, 5):
        world.see(port("leaf-1", f"Ethernet{8 * i}", before + i, subtype="symbol_errors"))
    world.see(*(port("leaf-1", f"Ethernet{8 * i}", 0.1 * i) for i in range(8)))
    world.see(*(nic(host, "mlx5_2", 0.5 + 0.1 * i) for i, host in enumerate(hosts)))
    world.pass_to(400)
    assert (world.only().family, world.only().root.switch) == ("fabric_fault", "leaf-1")


def test_an_interface_whose_counter_is_read_minutes_later_stays_its_switchs() -> None:
    """The kernel and the counters of a host call one port differently: its fall belongs to the switch under both names."""
    hosts = [f"n{i:02d}" for i in range(8)]
    cables = [
        link(f"leaf-{k}", f"e{i}", host, nic=f"mlx5_{k + 5}") for i, host in enumerate(hosts) for k in (1, 2)
    ]
    world = story(
        *(port("leaf-1", f"e{i}", 0.1 * i) for i in range(3, 8)),
        *(nic(host, "ibs5", 0.1 * i) for i, host in enumerate(hosts)),
        *(counted(host, "mlx5_6", 130 + i, 2, since=60) for i, host in enumerate(hosts[:3])),
        facts=[*cluster({"moe": hosts}), *cables],
        until=600,
    )
    assert (world.only().family, world.only().root.switch) == ("fabric_fault", "leaf-1")
