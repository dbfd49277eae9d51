"""Links: one host's cable, whoever tells of it, from its fault to its end; and what healthy fabrics say."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from streams.model.entity import Entity
from streams.model.facts import Fact
from streams.model.incident import Certainty, IncidentState
from streams.model.signal import Severity, Signal, signal
from tests.streams.correlate.deliveries import Arrival, essence, on_time, outcome
from tests.streams.correlate.link_stories import (
    CABLED,
    all_lose,
    bounce,
    closes_a_node,
    failing,
    flapping,
    rack,
    ranks_beside,
    story,
    suffering,
)
from tests.streams.correlate.world import (
    CLUSTER,
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
    run,
    sign,
    timeouts,
    xid,
)


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
    world = story(nic("n1", "eth5", 0), *timeouts("llama", ranks_beside("n3"), 2000, waited=600), until=2100)
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
    "a link that came back": bounce("n2", "eth2", 0, 4),
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


def test_a_link_that_is_up_again_ends_its_incident() -> None:
    incident = story(*bounce("n2", "eth2", 0, 150)).only()
    assert (incident.state, incident.closed_at) == (IncidentState.RESOLVED, at(150))


@pytest.mark.parametrize("backwards", [False, True])
def test_a_link_whose_return_is_shipped_half_a_minute_late_is_no_incident(backwards: bool) -> None:
    lines = bounce("n2", "eth2", 0, 2)
    world = World(CABLED)
    for moment, line in zip((0, 30), reversed(lines) if backwards else lines, strict=True):
        world.pass_to(moment)
        world.see(line)
    world.pass_to(300)
    assert not world.published


def test_a_link_that_is_down_for_a_minute_is_told_only_where_a_job_suffers() -> None:
    minute = bounce("n2", "eth2", 0, 60)
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


def test_error_counters_of_a_host_alone_are_no_incident_and_explain_no_hang() -> None:
    errors = nic("n1", "mlx5_0", 0, subtype="symbol_errors")
    hang = story(errors, *timeouts("llama", ranks_beside("n3"), 602), until=700).only()
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
    world = story(managed(0, node="ib-leaf-3", port="17"), managed(1, node="ib-leaf-3"))
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


STORIES: dict[str, tuple[list[Fact], list[Signal]]] = {
    "a dead link": (CABLED, [nic("n2", "eth2", 0), port("leaf-1", "Ethernet4", -0.3), *failing(31)]),
    "a flapping link": (CABLED, [*flapping(5), *failing(90)]),
    "a bounce that costs a job": (CABLED, [*bounce("n2", "eth2", 0, 4), *failing(8)]),
    "a leaf": (rack(), [*all_lose()[:24], *suffering(3, 9)]),
    "an uplink": (
        CABLED,
        [port("leaf-1", "Ethernet120", 0), port("spine-1", "Ethernet0", 0.5), *failing(20)],
    ),
    "a rail": (
        CABLED,
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


def test_links_of_which_only_the_switch_tells_go_down_with_a_host_that_loses_power() -> None:
    cables = [link("leaf-1", f"Ethernet{4 * i}", "n3", f"mlx5_{i}") for i in range(8)]
    world = World([*cluster({"llama": FOUR}), *cables])
    world.see(port("leaf-1", "Ethernet4", -420, subtype="symbol_errors"))
    world.see(sign("node.power", "n3", -10, "psu"), sign("node.power", "n3", -9, "psu"))
    world.see(*(port("leaf-1", f"Ethernet{4 * i}", 0.1 * i) for i in range(8)), not_ready("n3", 60))
    world.see(*failing(9))
    world.pass_to(1200)
    assert (world.only().family, world.only().root.node) == ("power_cooling", "n3")


def test_a_link_of_a_host_that_lacks_one_power_input_goes_down_for_itself() -> None:
    world = World(cluster({"llama": FOUR}))
    world.see(sign("node.power", "n3", -54, "psu"), sign("node.power", "n3", -53, "psu_redundancy"))
    world.see(nic("n3", "mlx5_2", 0), *failing(9, range(16, 24)))
    world.pass_to(400)
    assert (world.only().family, world.only().root.node, world.only().jobs) == (
        "nic_link",
        "n3",
        (job("llama"),),
    )
