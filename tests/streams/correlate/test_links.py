"""Links: one host's cable told from the switch it hangs on, a bounce from a fault, a victim from a cause."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from streams.model.clock import to_millis
from streams.model.entity import Entity
from streams.model.facts import Fact, NodeFact
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.signal import Severity, Signal, signal
from tests.streams.correlate.deliveries import Arrival, essence, on_time, outcome
from tests.streams.correlate.world import (
    CLUSTER,
    FOUR,
    World,
    at,
    cluster,
    job,
    link,
    nccl_error,
    nic,
    node_fact,
    not_ready,
    port,
    run,
    sign,
    timeouts,
    xid,
)

CABLES = [
    *(link("leaf-1", f"Ethernet{4 * i}", node, "mlx5_0") for i, node in enumerate(FOUR)),
    *(link("leaf-2", f"Ethernet{4 * i}", node, "mlx5_1") for i, node in enumerate(FOUR)),
    link("leaf-1", "Ethernet120", peer="spine-1", peer_port="Ethernet0"),
    link("leaf-2", "Ethernet120", peer="spine-1", peer_port="Ethernet4"),
]


def story(*signals: Signal, facts: Sequence[Fact] = (), until: float = 300) -> World:
    world = World([*cluster({"llama": FOUR}), *(facts or CABLES)])
    for one in sorted(signals, key=lambda s: s.observed_at):
        world.pass_to((one.observed_at - at(0)).total_seconds())
        world.see(one)
    world.pass_to(until)
    return world


def closes_a_node(incident: Incident) -> bool:
    return incident.certainty is Certainty.DECISIVE and incident.root.node is not None


def failing(seconds: float, ranks: Sequence[int] = range(8)) -> list[Signal]:
    return [nccl_error("llama", r, seconds + 0.1 * r) for r in ranks]


def test_links_that_only_switches_miss_wait_for_their_host_to_be_missed() -> None:
    cables = [link("leaf-1", f"Ethernet{i}", "n2", f"eth{i}") for i in range(4)]
    gone = [port("leaf-1", f"Ethernet{i}", 0.1 * i) for i in range(4)]
    world = story(*gone, *failing(5, range(8, 24)), facts=cables, until=50)
    assert not world.published
    world.see(not_ready("n2", 52))
    world.pass_to(600, step=5)
    assert [(i.family, i.root.node) for i in world.published.values()] == [("node_down", "n2")]


def test_a_dead_link_that_the_host_and_the_switch_tell_of_is_one_incident() -> None:
    world = story(nic("n2", "eth2", 0), port("leaf-1", "Ethernet4", 0.3), *failing(31))
    incident = world.only()
    assert (incident.family, incident.root.node, incident.root.nic) == ("nic_link", "n2", "eth2")
    assert (incident.root.switch, incident.root.port) == ("leaf-1", "Ethernet4")
    assert incident.certainty is Certainty.DECISIVE
    assert incident.jobs == (job("llama"),)
    assert incident.fault_at == at(0)
    assert len(world.published) == 1


def test_a_job_that_does_not_suffer_closes_no_node_for_a_dead_link() -> None:
    incident = story(nic("n2", "eth2", 0), port("leaf-1", "Ethernet4", 0.3)).only()
    assert (incident.family, incident.certainty) == ("nic_link", Certainty.LIKELY)


def test_without_any_cabling_a_dead_link_is_still_the_hosts() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(nic("n2", "eth2", 0))
    world.see(*failing(31))
    world.pass_to(200)
    incident = world.only()
    assert (incident.family, incident.root.node, incident.certainty) == ("nic_link", "n2", Certainty.DECISIVE)


def test_timeouts_of_ranks_that_wait_since_the_link_was_lost_follow_from_it() -> None:
    world = story(nic("n3", "eth2", 0), *timeouts("llama", range(32), 602, waited=600), until=700)
    incident = world.only()
    assert (incident.family, incident.root.node, incident.certainty) == ("nic_link", "n3", Certainty.DECISIVE)


def test_a_hang_long_after_an_unused_port_went_down_is_not_its_fault() -> None:
    silent = [r for r in range(32) if r // 8 != 2]
    world = story(nic("n1", "eth5", 0), *timeouts("llama", silent, 2000, waited=600), until=2100)
    link_fault, hang = world.incidents()
    assert (link_fault.family, link_fault.jobs, link_fault.certainty) == (
        "nic_link",
        (job("llama"),),
        Certainty.LIKELY,
    )
    assert (hang.family, hang.root.node) == ("silent_node", "n3")


def test_a_card_that_goes_by_its_address_and_its_interface_is_one() -> None:
    world = story(
        nic("n2", "eth2", 0, pci="0000:3b:00"),
        nic("n2", "0000:3b:00.0", 400, subtype="module_error", pci="0000:3b:00"),
        until=600,
    )
    assert (world.only().root.nic, len(world.published)) == ("eth2", 1)


def test_optics_that_fail_and_take_their_link_along_are_one_fault_under_the_best_name() -> None:
    world = story(
        nic("n2", "0000:3b:00.0", 0, subtype="module_error", pci="0000:3b:00"),
        nic("n2", "mlx5_2", 12),
        port("leaf-1", "Ethernet4", 12.3),
        *failing(40),
    )
    incident = world.only()
    assert (incident.root.nic, incident.root.port, incident.certainty) == (
        "mlx5_2",
        "Ethernet4",
        Certainty.DECISIVE,
    )
    assert incident.fault_at == at(0)
    assert len(world.published) == 1


def test_a_link_that_is_up_again_is_well_though_nobody_takes_an_error_of_its_optics_back() -> None:
    signals = [nic("n2", "eth2", 0, subtype="module_error"), nic("n2", "eth2", 1)]
    world = story(*signals, nic("n2", "eth2", 300, cleared=True), until=900)
    assert world.only().state is IncidentState.OPEN
    world.pass_to(4000, step=30)
    assert world.only().state is IncidentState.RESOLVED


@pytest.mark.parametrize("skew", [-2.0, 0.3])
def test_a_link_that_makes_errors_for_minutes_and_goes_down_at_both_ends_is_one_fault(skew: float) -> None:
    signals = [
        nic("n2", "rail5", 0, subtype="symbol_errors"),
        nic("n2", "0000:6e:00.0", 38, subtype="module_error", pci="0000:6e:00"),
    ]
    for begin in (240.0, 275.0, 1400.0, 1410.0):
        for over in (False, True):
            signals.append(nic("n2", "rail5", begin + 3 * over, cleared=over, pci="0000:6e:00"))
            signals.append(port("leaf-1", "Ethernet4", begin + skew + 3 * over, cleared=over))
    world = story(*signals, *failing(246), until=1500)
    assert [(i.root.node, i.root.nic) for i in world.incidents()] == [("n2", "rail5")]
    assert len(world.published) == 1


def test_of_two_interfaces_of_which_one_makes_errors_the_one_that_is_down_is_told() -> None:
    world = story(nic("n2", "eth2", 0, subtype="symbol_errors"), nic("n2", "eth7", 20))
    assert [(i.root.nic, i.certainty) for i in world.incidents()] == [("eth7", Certainty.LIKELY)]


NO_INCIDENT: dict[str, list[Signal]] = {
    "a link that came back": [nic("n2", "eth2", 0), nic("n2", "eth2", 4, cleared=True)],
    "one that a switch saw come back": [
        port("leaf-1", "Ethernet4", 0),
        port("leaf-1", "Ethernet4", 4, cleared=True),
    ],
    "one whose return only the switch told": [
        nic("n2", "eth2", 0),
        port("leaf-1", "Ethernet4", 0.3),
        port("leaf-1", "Ethernet4", 4, cleared=True),
    ],
    "a counter that rose by one": [nic("n2", "mlx5_0", 0, subtype="link_downed")],
    "a warm card": [nic("n2", "eth2", 0, subtype="temperature")],
    "a port without a cable in a list of all ports": [nic("n2", "mlx5_3", 0, status="down", standing=True)],
    "a port that somebody shut": [port("leaf-1", "Ethernet4", 0, reason="Administratively down")],
    "a port whose shutdown by somebody its switch logs first": [
        port("leaf-1", "Ethernet4", 0, subtype="admin_down"),
        port("leaf-1", "Ethernet4", 2),
        nic("n2", "mlx5_0", 2.5),
    ],
    "a port whose shutdown somebody enters first and applies later": [
        port("leaf-1", "Ethernet4", 0, subtype="admin_down"),
        port("leaf-1", "Ethernet4", 70),
    ],
    "an uplink that somebody shut at its other end, whose switch logs it last": [
        port("leaf-1", "Ethernet120", 0),
        port("spine-1", "Ethernet0", 0.4),
        port("spine-1", "Ethernet0", 3, subtype="admin_down"),
    ],
    "a device that was reset and works": [
        nic("n2", "eth2", 0, subtype="driver_error"),
        nic("n2", "eth2", 1, subtype="tx_timeout"),
        nic("n2", "eth2", 2, subtype="driver_error", cleared=True),
    ],
    "a port of which nobody knows what hangs on it": [port("leaf-1", "Ethernet99", 0)],
    "an uplink that came back": [
        port("leaf-1", "Ethernet120", 0),
        port("leaf-1", "Ethernet120", 3, cleared=True),
    ],
}


@pytest.mark.parametrize("name", NO_INCIDENT)
def test_what_healthy_fabrics_say_opens_nothing(name: str) -> None:
    assert story(*NO_INCIDENT[name]).incidents() == []


def test_a_bounce_that_cost_a_job_its_connections_explains_them_and_closes_nothing() -> None:
    world = story(nic("n2", "eth2", 0), nic("n2", "eth2", 4, cleared=True), *failing(8))
    incident = world.only()
    assert (incident.family, incident.root.node, incident.jobs) == ("nic_link", "n2", (job("llama"),))
    assert not closes_a_node(incident)


@pytest.mark.parametrize(
    "beside",
    [
        [xid("n1", 13, 40, index=2), xid("n1", 45, 41, index=2)],
        [replace(nccl_error("llama", 3, 31), attributes={"subtype": "async_event", "reason": "port error"})],
    ],
    ids=["codes of a program", "the library saw the port bounce"],
)
def test_a_bounce_that_a_job_does_not_feel_is_no_incident(beside: list[Signal]) -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(nic("n1", "eth0", 30), nic("n1", "eth0", 32, cleared=True), *beside)
    world.pass_to(600)
    assert world.incidents() == []


def test_a_hang_that_begins_minutes_after_a_bounce_has_another_reason() -> None:
    silent = [r for r in range(32) if r // 8 != 1]
    world = story(
        nic("n2", "eth2", 0),
        nic("n2", "eth2", 2, cleared=True),
        *timeouts("llama", silent, 815, waited=600),
        until=900,
    )
    assert [(i.family, i.root.node) for i in world.incidents()] == [("silent_node", "n2")]


def flapping(times: int, every: float = 40) -> list[Signal]:
    return [
        one
        for i in range(times)
        for one in (nic("n2", "eth2", every * i), nic("n2", "eth2", every * i + 6, cleared=True))
    ]


@pytest.mark.parametrize(("bounced", "explains"), [(440, False), (130, False), (30, True)])
def test_a_bounce_minutes_after_a_hang_began_is_not_its_reason(bounced: float, explains: bool) -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(nic("n2", "mlx5_0", bounced), nic("n2", "mlx5_0", bounced + 1, cleared=True))
    world.see(*timeouts("llama", range(32), 600, waited=600))
    world.pass_to(900)
    assert (world.only().family == "nic_link") is explains


def test_a_flapping_link_is_one_incident_with_a_count() -> None:
    world = story(*flapping(5), until=260)
    incident = world.only()
    assert (incident.family, incident.flaps, incident.facts["link"]) == ("nic_link", 4, "link flaps")
    assert len(world.published) == 1


@pytest.mark.parametrize("counted", [135, 150])
def test_a_link_that_flaps_and_then_stays_down_is_one_incident_whatever_a_counter_calls_it(
    counted: float,
) -> None:
    world = World(cluster({"llama": FOUR}))
    for begin in (0, 41, 82):
        world.see(nic("n2", "ens3np0", begin), nic("n2", "ens3np0", begin + 2, cleared=True))
    for one in sorted(
        [nic("n2", "mlx5_3", counted, subtype="link_downed"), nic("n2", "ens3np0", 143)],
        key=lambda s: s.occurred_at,
    ):
        world.pass_to(one.occurred_at.timestamp() - at(0).timestamp())
        world.see(one)
    world.pass_to(400)
    assert (world.only().root.nic, world.only().flaps) == ("ens3np0", 4)


def test_a_link_that_flaps_for_long_stays_one_incident_and_ends_when_it_is_quiet() -> None:
    world = story(*flapping(60, every=50), until=3100)
    assert (world.only().incarnation, len(world.published)) == (1, 1)
    assert world.only().state is IncidentState.OPEN
    world.pass_to(4000, step=10)
    assert world.only().state is IncidentState.RESOLVED


def test_a_link_that_is_up_again_ends_its_incident() -> None:
    incident = story(nic("n2", "eth2", 0), nic("n2", "eth2", 150, cleared=True)).only()
    assert (incident.state, incident.closed_at) == (IncidentState.RESOLVED, at(150))


@pytest.mark.parametrize("backwards", [False, True])
def test_a_link_whose_return_is_shipped_half_a_minute_late_is_no_incident(backwards: bool) -> None:
    lines = [nic("n2", "eth2", 0), nic("n2", "eth2", 2, cleared=True)]
    world = World([*cluster({"llama": FOUR}), *CABLES])
    for moment, line in zip((0, 30), reversed(lines) if backwards else lines, strict=True):
        world.pass_to(moment)
        world.see(line)
    world.pass_to(300)
    assert not world.published


def test_a_link_that_is_down_for_a_minute_is_told_only_where_a_job_suffers() -> None:
    minute = [nic("n2", "eth2", 0), nic("n2", "eth2", 60, cleared=True)]
    assert story(*minute).incidents() == []
    incident = story(*minute, *failing(31)).only()
    assert (incident.family, incident.root.node, incident.jobs) == ("nic_link", "n2", (job("llama"),))


def test_a_link_that_fails_again_after_a_person_closed_it_is_a_new_incarnation() -> None:
    world = story(nic("n2", "eth2", 0), until=130)
    world.see(run("resolved", world.only().id, 140))
    world.see(nic("n2", "eth2", 400))
    world.pass_to(530)
    assert [i.incarnation for i in world.incidents()] == [1, 2]


def test_links_of_a_host_that_went_away_are_its_end_and_not_its_fault() -> None:
    world = story(
        *(port(leaf, "Ethernet4", 0.2) for leaf in ("leaf-1", "leaf-2")),
        not_ready("n2", 45),
        *failing(20),
    )
    assert [(i.family, i.root.node) for i in world.incidents()] == [("node_down", "n2")]


def test_a_host_whose_links_all_go_down_is_not_closed_for_a_nic() -> None:
    incident = story(nic("n2", "eth2", 0), nic("n2", "eth3", 1), *failing(20)).only()
    assert (incident.family, incident.facts["links_failed"]) == ("nic_link", 2)
    assert not closes_a_node(incident)


def test_a_port_whose_only_host_may_have_lost_its_power_closes_nothing() -> None:
    cables = [link("leaf-1", "Ethernet4", "n2", "mlx5_0")]
    incident = story(port("leaf-1", "Ethernet4", 0), *failing(20), facts=cables).only()
    assert (incident.root.node, incident.certainty) == ("n2", Certainty.LIKELY)


def test_a_port_is_believed_when_another_cable_of_the_same_host_is_up() -> None:
    incident = story(port("leaf-1", "Ethernet4", 0), *failing(20)).only()
    assert (incident.root.node, incident.root.nic, incident.certainty) == ("n2", "mlx5_0", Certainty.DECISIVE)


def test_a_link_that_goes_down_in_planned_maintenance_is_told_to_nobody() -> None:
    world = World([*cluster({"llama": FOUR}), node_fact("n2", since=-10, maintenance=True)])
    world.see(nic("n2", "eth2", 0))
    world.see(*failing(31))
    world.pass_to(200)
    incident = next(i for i in world.incidents() if i.family == "nic_link")
    assert incident.state is IncidentState.SUPPRESSED
    assert not closes_a_node(incident)


def test_a_rebooted_host_has_no_broken_link() -> None:
    reboot = replace(xid("n2", 79, 0), kind="node.condition")
    reboot = replace(reboot, attributes={"subtype": "rebooted"}, entity=replace(reboot.entity, gpu=None))
    world = story(nic("n2", "eth2", 1), reboot)
    assert world.incidents() == []


@pytest.mark.parametrize("told_up", [True, False])
def test_a_reboot_in_order_is_no_flap_of_the_hosts_links(told_up: bool) -> None:
    """Two bounces around a reboot that takes all links down: a switch's manager may not tell that they came back."""
    signals = [sign("node.maintenance", "n2", 100, "reboot")]
    for begin in (0.0, 1200.0):
        signals += [nic("n2", "mlx5_0", begin), nic("n2", "mlx5_0", begin + 1, cleared=True)]
    for name in ("leaf-1", "leaf-2"):
        signals.append(port(name, "Ethernet4", 101))
        signals += [port(name, "Ethernet4", 540, cleared=True)] if told_up else []
    signals.append(nic("n2", "mlx5_0", 540, cleared=True))
    assert story(*signals, until=2400).incidents() == []


def test_error_counters_of_a_host_alone_are_no_incident_and_explain_no_hang() -> None:
    silent = [r for r in range(32) if r // 8 != 2]
    world = story(nic("n1", "mlx5_0", 0, subtype="symbol_errors"), *timeouts("llama", silent, 602), until=700)
    hang = world.only()
    assert (hang.family, hang.root.node) == ("silent_node", "n3")


# What managers of a subnet say of other places.


def managed(seconds: float, **attributes: str) -> Signal:
    """A line of the subnet's manager, which runs on n4."""
    return signal(
        "fabric.link",
        Entity(CLUSTER, node=attributes.get("node", "n4")),
        severity=Severity.ERROR,
        occurred_at=at(seconds),
        observed_at=at(seconds + 0.5),
        attributes={"subtype": "link_down", **attributes},
    )


def test_the_host_on_which_the_subnet_manager_runs_is_not_blamed_for_what_it_says() -> None:
    world = story(managed(0, lid="1"), managed(1, port="12", guid="0xb8599f0300ab12cd"), *failing(20))
    assert [i.family for i in world.incidents()] == ["hang"]


def test_a_port_that_the_subnet_manager_names_is_joined_with_the_host_behind_it() -> None:
    cables = [link("ib-leaf-3", "17", "n2", "mlx5_0"), link("ib-leaf-3", "18", "n2", "mlx5_1")]
    signals = [managed(0, node="ib-leaf-3", port="17", guid="0xb8599f0300ab12cd"), *failing(20)]
    incident = story(*signals, facts=cables).only()
    assert (incident.root.node, incident.root.nic, incident.certainty) == ("n2", "mlx5_0", Certainty.DECISIVE)


def test_a_switch_that_the_subnet_manager_names_without_cabling_is_no_node() -> None:
    world = story(managed(0, node="ib-leaf-3", port="17"), managed(1, node="ib-leaf-3"), facts=[*CABLES])
    assert world.incidents() == []


@pytest.mark.parametrize("known_late", [False, True])
def test_a_hosts_own_port_as_the_subnet_manager_names_it_is_the_hosts(known_late: bool) -> None:
    world = World([] if known_late else cluster({"llama": FOUR}))
    world.see(managed(0, node="n2", port="1"))
    for fact in cluster({"llama": FOUR}) if known_late else []:
        world.tell(fact)
    world.pass_to(130)
    assert (world.only().family, world.only().root.node) == ("nic_link", "n2")
    assert not closes_a_node(world.only())


# A switch.

MANY = [f"g{i:02}" for i in range(64)]


def rack(*, labels: bool = True, jobs: int = 8) -> list[Fact]:
    size = len(MANY) // jobs
    facts = cluster({f"job{j}": MANY[j * size : (j + 1) * size] for j in range(jobs)})
    return [replace(f, leaf="leaf-1") if labels and f.kind == "node" else f for f in facts]


def suffering(jobs: int, seconds: float) -> list[Signal]:
    return [nccl_error(f"job{j}", r, seconds + 0.1 * r) for j in range(jobs) for r in range(4)]


def outage(world: World, *, spread: float = 3) -> Incident:
    world.see(*(nic(node, "eth2", spread * i / len(MANY)) for i, node in enumerate(MANY)))
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


def test_links_that_bounce_all_over_a_large_cluster_are_no_fault_of_the_fabric() -> None:
    world = World(rack(labels=False))
    for i, node in enumerate(MANY):
        world.see(nic(node, "eth2", 2 * i), nic(node, "eth2", 2 * i + 1.5, cleared=True))
    world.pass_to(300)
    assert world.incidents() == []


def test_hosts_that_are_lost_with_their_leaf_are_part_of_it() -> None:
    world = World(rack())
    world.see(*(nic(node, "eth2", 0.1 * i) for i, node in enumerate(MANY)))
    world.see(*(not_ready(node, 45 + 0.1 * i) for i, node in enumerate(MANY)))
    world.pass_to(300)
    assert (world.only().family, world.only().root.switch) == ("fabric_fault", "leaf-1")


def test_a_leaf_that_comes_back_ends_its_incident() -> None:
    world = World(rack())
    world.see(*(nic(node, "eth2", 0.1 * i) for i, node in enumerate(MANY)))
    world.pass_to(60)
    world.see(*(nic(node, "eth2", 90 + 0.1 * i, cleared=True) for i, node in enumerate(MANY)))
    world.pass_to(300)
    assert world.only().state is IncidentState.RESOLVED


@pytest.mark.parametrize(("again", "incarnations"), [(1200, [1]), (5400, [1, 2])])
def test_a_leaf_that_fails_again_within_the_hour_is_one_incident_though_some_links_never_told_that_they_came_back(
    again: int, incarnations: list[int]
) -> None:
    world = World(rack())
    world.see(*(nic(node, "eth2", 0.1 * i) for i, node in enumerate(MANY)))
    world.pass_to(60)
    world.see(*(nic(node, "eth2", 90 + 0.1 * i, cleared=True) for i, node in enumerate(MANY) if i % 8))
    world.pass_to(again, step=10)
    assert world.only().state is IncidentState.RESOLVED
    world.see(*(nic(node, "eth2", again + 0.1 * i) for i, node in enumerate(MANY)))
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
    silent = [r for r in range(32) if r // 8 != 2]
    world = story(port("leaf-1", "Ethernet120", 0), *timeouts("llama", silent, 1602), until=1700)
    assert [i.family for i in world.incidents()] == ["fabric_fault", "silent_node"]
    assert world.incidents()[0].jobs == ()


def test_uplinks_of_many_leaves_to_one_spine_are_the_spine() -> None:
    cables = [link(f"leaf-{i}", "Ethernet120", peer="spine-1", peer_port=f"Ethernet{i}") for i in range(6)]
    world = story(*(port(f"leaf-{i}", "Ethernet120", 0.2 * i) for i in range(6)), facts=cables)
    assert world.incidents() == []
    world.pass_to(1230, step=10)
    assert (world.only().family, world.only().root.key) == ("fabric_fault", "switch/spine-1")


@pytest.mark.parametrize("both", [False, True], ids=["its ports are not known", "all of its ports are known"])
def test_a_spine_that_restarts_without_harm_is_no_incident(both: bool) -> None:
    cables = [link(f"leaf-{i}", "Ethernet120", peer="spine-1", peer_port=f"Ethernet{i}") for i in range(6)]
    if both:
        cables += [
            link("spine-1", f"Ethernet{i}", peer=f"leaf-{i}", peer_port="Ethernet120") for i in range(6)
        ]
    world = story(*(port(f"leaf-{i}", "Ethernet120", 0.2 * i) for i in range(6)), facts=cables)
    world.pass_to(900, step=10)
    world.see(*(port(f"leaf-{i}", "Ethernet120", 900 + i, cleared=True) for i in range(6)))
    world.pass_to(2000, step=10)
    assert world.revisions == []


STORIES: dict[str, tuple[list[Fact], list[Signal]]] = {
    "a dead link": (
        [*cluster({"llama": FOUR}), *CABLES],
        [nic("n2", "eth2", 0), port("leaf-1", "Ethernet4", -0.3), *failing(31)],
    ),
    "a flapping link": ([*cluster({"llama": FOUR}), *CABLES], [*flapping(5), *failing(90)]),
    "a bounce that costs a job": (
        [*cluster({"llama": FOUR}), *CABLES],
        [nic("n2", "eth2", 0), nic("n2", "eth2", 4, cleared=True), *failing(8)],
    ),
    "a leaf": (
        rack(),
        [*(nic(n, "eth2", 0.05 * i) for i, n in enumerate(MANY[:24])), *suffering(3, 9)],
    ),
    "an uplink": (
        [*cluster({"llama": FOUR}), *CABLES],
        [port("leaf-1", "Ethernet120", 0), port("spine-1", "Ethernet0", 0.5), *failing(20)],
    ),
    "a rail": (
        [*cluster({"llama": FOUR}), *CABLES],
        [*(nic(n, "mlx5_1", 0.5 * i) for i, n in enumerate(FOUR)), *failing(20), not_ready("n1", 50)],
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_whatever_the_order_the_same_fault_stands_in_the_end(name: str) -> None:
    facts, signals = STORIES[name]
    expected = list(map(essence, outcome(on_time(facts, signals), until=900)))
    assert len(expected) == 1
    for seed in range(6):
        chance = random.Random(seed)
        arrivals: list[Arrival] = [(-50.0 + chance.choice([0, 0, 40, 200]), fact) for fact in facts]
        for one in signals:
            seen = (one.observed_at - at(0)).total_seconds()
            arrivals += [(seen + chance.choice([0, 1, 30, 300]), one) for _ in range(chance.choice([1, 2]))]
        assert list(map(essence, outcome(arrivals, restarts=0.05, seed=seed, until=900))) == expected


def test_links_that_bounce_at_one_moment_and_cost_a_job_its_connections_are_the_fabrics() -> None:
    world = World(rack(labels=False))
    world.see(*(nic(node, "eth2", 0.05 * i) for i, node in enumerate(MANY)))
    world.see(*(nic(node, "eth2", 18 + 0.05 * i, cleared=True) for i, node in enumerate(MANY)))
    world.see(*suffering(8, 9))
    world.pass_to(400)
    incident = world.only()
    assert (incident.family, incident.root.kind, len(incident.jobs)) == ("fabric_fault", "cluster", 8)
    assert not closes_a_node(incident)


def test_links_that_bounce_at_one_moment_are_no_incident_while_nobody_suffers() -> None:
    world = World(rack(labels=False))
    world.see(*(nic(node, "eth2", 0.05 * i) for i, node in enumerate(MANY)))
    world.see(*(nic(node, "eth2", 18 + 0.05 * i, cleared=True) for i, node in enumerate(MANY)))
    world.pass_to(400)
    assert world.incidents() == []


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


def test_links_of_which_only_the_switch_tells_go_down_with_a_host_that_loses_power() -> None:
    cables = [link("leaf-1", f"Ethernet{4 * i}", "n3", f"mlx5_{i}") for i in range(8)]
    world = World([*cluster({"llama": FOUR}), *cables])
    world.see(port("leaf-1", "Ethernet4", -420, subtype="symbol_errors"))
    world.see(sign("node.power", "n3", -10, "psu"), sign("node.power", "n3", -9, "psu"))
    world.see(*(port("leaf-1", f"Ethernet{4 * i}", 0.1 * i) for i in range(8)), not_ready("n3", 60))
    world.see(*(nccl_error("llama", rank, 9 + 0.1 * rank) for rank in range(8)))
    world.pass_to(1200)
    assert [(i.family, i.root.node) for i in world.incidents() if i.merged_into is None] == [
        ("power_cooling", "n3")
    ]


def test_a_link_of_a_host_that_lacks_one_power_input_goes_down_for_itself() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(sign("node.power", "n3", -54, "psu"), sign("node.power", "n3", -53, "psu_redundancy"))
    world.see(nic("n3", "mlx5_2", 0), *(nccl_error("llama", rank, 9 + 0.1 * rank) for rank in range(16, 24)))
    world.pass_to(400)
    assert (world.only().family, world.only().root.node, world.only().jobs) == (
        "nic_link",
        "n3",
        (job("llama"),),
    )


def test_a_link_that_flaps_stays_its_hosts_when_it_once_bounced_with_all_the_others() -> None:
    world = World(rack(labels=False))
    world.see(*(nic(node, "eth2", 0.05 * i) for i, node in enumerate(MANY)))
    world.see(*(nic(node, "eth2", 18 + 0.05 * i, cleared=True) for i, node in enumerate(MANY)))
    for again in (60, 100, 140):
        world.see(nic(MANY[0], "eth2", again), nic(MANY[0], "eth2", again + 5, cleared=True))
    world.pass_to(400)
    assert [(i.family, i.root.node) for i in world.incidents()] == [("nic_link", MANY[0])]


def test_a_link_that_flaps_is_not_hard_and_soft_in_turns() -> None:
    """The runbook is chosen by it: each turn would be another run."""
    ports = [link("leaf-1", "Ethernet8", "n1", "mlx5_2"), link("leaf-2", "Ethernet8", "n1", "mlx5_3")]
    world = World([*cluster({"llama": FOUR}), *ports])
    for i in range(12):
        world.see(nic("n1", "mlx5_2", 20.0 * i))
        world.see(nic("n1", "mlx5_2", 20.0 * i + 8, cleared=True))
    world.pass_to(400)
    assert world.only().facts["link"] == "link flaps"
    assert {i.facts["hard"] for i in world.revisions} == {False}


def test_a_link_that_flapped_and_stays_down_is_hard_when_it_is_told_again() -> None:
    ports = [link("leaf-1", "Ethernet8", "n1", "mlx5_2"), link("leaf-2", "Ethernet8", "n1", "mlx5_3")]
    world = World([*cluster({"llama": FOUR}), *ports])
    for i in range(4):
        world.see(nic("n1", "mlx5_2", 20.0 * i))
        world.see(nic("n1", "mlx5_2", 20.0 * i + 8, cleared=True))
    world.see(nic("n1", "mlx5_2", 100), nic("n1", "mlx5_2", 140))
    assert world.only().facts["hard"] is True


@pytest.mark.parametrize(("downs", "incidents"), [(4, 1), (1, 2)])
def test_a_link_that_flapped_is_the_same_fault_for_an_hour(downs: int, incidents: int) -> None:
    world = World(cluster({"llama": FOUR}))
    for start in (0, 2400):
        for i in range(downs):
            world.see(
                nic("n2", "mlx5_1", start + 60 * i), *([] if i else [nccl_error("llama", 9, start + 5)])
            )
            world.see(nic("n2", "mlx5_1", start + 60 * i + 30, cleared=True))
        world.pass_to(start + 2300, step=20)
    assert len([i for i in world.incidents() if i.root.nic]) == incidents


def counted(device: str, seconds: float, count: int) -> Signal:
    """A counter of falls as it is read a minute after them, under the RDMA device's name."""
    more: dict[str, Any] = {
        "series": "s1",
        "since_ms": to_millis(at(seconds - 60)),
        "reached": count,
        "count": 1,
    }
    return nic("gpu-1", device, seconds, subtype="link_downed", **more)


def test_falls_that_counters_tell_again_later_are_counted_once() -> None:
    bounces = [
        s for t in (0, 200) for s in (nic("gpu-1", "ens6", t), nic("gpu-1", "ens6", t + 3, cleared=True))
    ]
    world = story(*bounces[:2], counted("mlx5_5", 50, 1), *bounces[2:], counted("mlx5_5", 250, 2), until=900)
    assert not [i for i in world.incidents() if i.facts.get("link") == "link flaps"]


def test_falls_that_only_counters_tell_are_falls() -> None:
    rises = [counted("mlx5_5", 50 + 90 * i, 1 + i) for i in range(4)]
    assert story(*rises, until=900).only().facts["link"] == "link flaps"


def test_an_interface_whose_counter_is_read_minutes_later_stays_its_switchs() -> None:
    """The kernel and the counters of a host call one port differently: its fall belongs to the switch under both names."""
    hosts = [f"n{i:02d}" for i in range(8)]
    cables = [
        link(f"leaf-{k}", f"e{i}", host, nic=f"mlx5_{k + 5}") for i, host in enumerate(hosts) for k in (1, 2)
    ]
    more: dict[str, Any] = {"series": "s1", "since_ms": to_millis(at(60)), "reached": 2, "count": 1}
    late = [nic(host, "mlx5_6", 130 + i, subtype="link_downed", **more) for i, host in enumerate(hosts[:3])]
    told = [
        *(port("leaf-1", f"e{i}", 0.1 * i) for i in range(3, 8)),
        *(nic(host, "ibs5", 0.1 * i) for i, host in enumerate(hosts)),
        *late,
    ]
    world = story(*told, facts=[*cluster({"moe": hosts}), *cables], until=600)
    (incident,) = [i for i in world.incidents() if i.merged_into is None]
    assert (incident.family, incident.root.switch) == ("fabric_fault", "leaf-1")
