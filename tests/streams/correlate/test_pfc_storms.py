"""PFC storms: the host that pauses told from those that are paused, and both from a fabric that waits for itself."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from streams.model.facts import Fact
from streams.model.incident import Certainty, Incident, IncidentState
from streams.model.signal import Signal
from tests.streams.correlate.deliveries import Arrival, essence, on_time, outcome
from tests.streams.correlate.test_slow_jobs import slow
from tests.streams.correlate.world import (
    FOUR,
    World,
    at,
    cluster,
    job,
    link,
    nccl_error,
    nic,
    pause,
    port,
    sign,
    storm,
    xid,
)

JOBS: dict[str, Sequence[str]] = {"llama": ["n1", "n2"], "gemma": ["n3", "n4"]}
CABLES: list[Fact] = [
    *(link("leaf-1", f"Ethernet{4 * i}", n, "mlx5_0") for i, n in enumerate(["n1", "n2"])),
    *(link("leaf-2", f"Ethernet{4 * i}", n, "mlx5_0") for i, n in enumerate(["n3", "n4"])),
    link("leaf-1", "Ethernet120", peer="spine-1", peer_port="Ethernet0"),
    link("leaf-2", "Ethernet120", peer="spine-1", peer_port="Ethernet4"),
    link("leaf-3", "Ethernet120", peer="spine-1", peer_port="Ethernet8"),
    link("leaf-4", "Ethernet120", peer="spine-2", peer_port="Ethernet0"),
]


def story(*signals: Signal, facts: Sequence[Fact] = tuple(CABLES), until: float = 240) -> World:
    world = World([*cluster(JOBS), *facts])
    for signal in sorted(signals, key=lambda s: s.observed_at):
        world.pass_to((signal.observed_at - at(0)).total_seconds())
        world.see(signal)
    world.pass_to(until)
    return world


def closes_a_node(incident: Incident) -> bool:
    return incident.certainty is Certainty.DECISIVE and incident.root.node is not None


def failing(name: str, seconds: float, ranks: Sequence[int] = range(8)) -> list[Signal]:
    return [nccl_error(name, r, seconds + 0.1 * r) for r in ranks]


def test_an_access_port_and_the_hosts_own_counters_are_one_storm_with_what_they_measured() -> None:
    incident = story(
        storm("leaf-1", "Ethernet4", 0, action="drop"),
        pause("n2", "mlx5_0", "sent", 20, fraction=0.97),
        *(pause(n, "mlx5_0", "received", 21) for n in ("n1", "n3")),
        *failing("llama", 31),
    ).only()
    assert (incident.family, incident.root.node, incident.certainty) == (
        "pfc_storm",
        "n2",
        Certainty.DECISIVE,
    )
    assert (incident.facts["both_ends"], incident.facts["priority"], incident.facts["watchdog"]) == (
        True,
        3,
        "drop",
    )
    assert incident.facts["fraction"] == 0.97
    assert incident.jobs == (job("llama"),)


def test_a_watchdog_that_counted_no_dropped_packets_forwards() -> None:
    world = story(storm("leaf-1", "Ethernet4", 0, status="stormed", tx_dropped=0, rx_dropped=0))
    assert world.only().facts["watchdog"] == "forward"
    world = story(storm("leaf-1", "Ethernet4", 0, status="stormed", tx_dropped=17, rx_dropped=0))
    assert world.only().facts["watchdog"] == "drop"


def test_a_watchdog_that_spoke_once_closes_nobody_until_it_speaks_again_or_a_job_suffers() -> None:
    once = story(storm("leaf-2", "Ethernet0", 0))
    assert once.only().certainty is Certainty.LIKELY
    again = story(storm("leaf-2", "Ethernet0", 0), storm("leaf-2", "Ethernet0", 20))
    assert again.only().certainty is Certainty.DECISIVE
    suffering = story(storm("leaf-2", "Ethernet0", 0), *failing("llama", 31))
    assert suffering.only().certainty is Certainty.DECISIVE


def test_the_pause_is_followed_over_the_spine_to_the_host_that_sends_it() -> None:
    world = story(
        storm("leaf-1", "Ethernet120", 0.4),
        storm("spine-1", "Ethernet4", 0.2),
        storm("leaf-2", "Ethernet0", 0),
        *failing("llama", 31),
    )
    incident = world.only()
    assert (incident.root.node, incident.root.port, incident.certainty) == (
        "n3",
        "Ethernet0",
        Certainty.DECISIVE,
    )
    assert incident.jobs == (job("gemma"), job("llama"))


def test_of_two_storms_the_one_the_way_leads_to_takes_the_uplink() -> None:
    world = story(
        storm("leaf-2", "Ethernet0", 0),
        storm("spine-1", "Ethernet4", 0.2),
        storm("leaf-1", "Ethernet120", 0.4),
        storm("leaf-9", "Ethernet0", -1),
        facts=[*CABLES, link("leaf-9", "Ethernet0", "n9", "mlx5_0")],
    )
    assert {i.root.node: len(i.proofs) for i in world.incidents()} == {"n3": 1, "n9": 1}
    uplinks = [i for i in world.published.values() if i.root.node is None]
    n3 = next(i for i in world.incidents() if i.root.node == "n3")
    assert all(i.merged_into == n3.id for i in uplinks)


def test_a_mute_access_switch_leaves_one_storm_at_the_last_port_that_speaks() -> None:
    incident = story(storm("spine-1", "Ethernet4", 0), storm("leaf-1", "Ethernet120", 0.2)).only()
    assert (incident.family, incident.root.key) == ("pfc_storm", "port/spine-1/Ethernet4")
    assert not closes_a_node(incident)
    assert "cycle" not in incident.facts


RING: list[Fact] = [
    link("a", "Ethernet0", peer="b", peer_port="Ethernet4"),
    link("b", "Ethernet0", peer="c", peer_port="Ethernet4"),
    link("c", "Ethernet0", peer="a", peer_port="Ethernet4"),
]


def ring(turns: int = 1) -> list[Signal]:
    return [storm(s, "Ethernet0", 25 * turn + 0.3 * i) for turn in range(turns) for i, s in enumerate("abc")]


def test_a_circle_of_uplinks_without_a_host_is_one_deadlock_and_closes_nothing() -> None:
    incident = story(*ring(), facts=RING).only()
    assert (incident.family, incident.root.kind, incident.facts["cycle"]) == (
        "pfc_storm",
        "port",
        ("a", "b", "c"),
    )
    assert "deadlock" in incident.reason
    assert not closes_a_node(incident)


def test_a_circle_is_a_circle_though_a_host_far_away_storms_as_well() -> None:
    facts = [*RING, link("leaf-9", "Ethernet0", "n9", "mlx5_0")]
    world = story(*ring(), storm("leaf-9", "Ethernet0", 5), facts=facts)
    assert {(i.root.node, "cycle" in i.facts) for i in world.incidents()} == {("n9", False), (None, True)}


def test_uplinks_that_storm_one_after_the_other_without_a_way_between_are_one_fault_of_the_fabric() -> None:
    world = story(*(storm(f"leaf-{i}", "Ethernet120", 0.3 * i) for i in (1, 2, 4)))
    assert (world.only().family, len(world.only().facts["ports"])) == ("pfc_storm", 3)  # type: ignore[arg-type]
    assert not closes_a_node(world.only())


def test_an_uplink_whose_cable_makes_errors_is_the_cables_fault() -> None:
    world = story(port("leaf-1", "Ethernet120", -5, subtype="errors"), storm("leaf-1", "Ethernet120", 0))
    assert (world.only().family, world.only().root.key) == ("fabric_fault", "port/leaf-1/Ethernet120")


def test_a_storm_on_a_bad_cable_is_one_incident_that_says_so() -> None:
    incident = story(
        nic("n2", "mlx5_0", -30, subtype="symbol_errors"),
        storm("leaf-1", "Ethernet4", 0),
        *failing("llama", 31),
    ).only()
    assert (incident.family, incident.root.node, incident.facts["link_errors"]) == ("pfc_storm", "n2", True)
    assert "cable" in incident.reason


def test_what_killed_processes_leave_before_the_counter_is_scraped_is_the_storms() -> None:
    world = story(
        *(xid(n, 43, 6 + 0.2 * i) for i, n in enumerate(["n1", "n2"])), pause("n2", "mlx5_0", "sent", 45)
    )
    assert [(i.family, i.root.node) for i in world.incidents()] == [("pfc_storm", "n2")]


def test_what_a_jobs_code_did_before_the_counter_is_scraped_is_its_own() -> None:
    world = story(
        *(xid(n, 31, 6 + 0.2 * i) for i, n in enumerate(["n1", "n2"])), pause("n2", "mlx5_0", "sent", 45)
    )
    assert {i.family for i in world.incidents()} == {"application", "pfc_storm"}


VICTIMS: dict[str, list[Signal]] = {
    "hosts that are told to pause": [pause(n, "mlx5_0", "received", i) for i, n in enumerate(FOUR)],
    "an access port that is quiet again at once": [
        storm("leaf-1", "Ethernet4", 0),
        storm("leaf-1", "Ethernet4", 0.6, cleared=True),
    ],
    "one that a switch with whole seconds in its log saw": [
        storm("leaf-1", "Ethernet4", 0),
        storm("leaf-1", "Ethernet4", 1, cleared=True),
    ],
    "an uplink that is quiet again at once": [
        storm("leaf-1", "Ethernet120", 0),
        storm("leaf-1", "Ethernet120", 0.6, cleared=True),
    ],
}


@pytest.mark.parametrize("name", VICTIMS)
def test_victims_and_bursts_open_nothing(name: str) -> None:
    assert story(*VICTIMS[name]).incidents() == []


def test_a_host_that_pauses_while_it_is_paused_may_be_congested_and_is_not_closed() -> None:
    incident = story(
        pause("n2", "mlx5_0", "sent", 0), pause("n2", "mlx5_0", "received", 1), *failing("llama", 31)
    ).only()
    assert (incident.family, incident.certainty) == ("pfc_storm", Certainty.WEAK)
    assert "congested" in incident.reason


def test_a_host_that_a_switch_sees_pausing_is_the_source_though_it_is_paused_as_well() -> None:
    incident = story(
        storm("leaf-1", "Ethernet4", 0),
        pause("n2", "mlx5_0", "sent", 1),
        pause("n2", "mlx5_0", "received", 1),
    ).only()
    assert (incident.root.node, incident.certainty) == ("n2", Certainty.DECISIVE)


def test_two_nics_one_paused_and_one_pausing_do_not_excuse_each_other() -> None:
    incident = story(
        pause("n2", "mlx5_0", "sent", 0), pause("n2", "mlx5_1", "received", 1), *failing("llama", 31)
    ).only()
    assert (incident.root.node, incident.certainty) == ("n2", Certainty.DECISIVE)


MANY = [f"g{i:02}" for i in range(12)]


@pytest.mark.parametrize("labels", [True, False])
def test_many_hosts_that_pause_together_share_a_cause_and_none_is_closed(labels: bool) -> None:
    facts = [
        replace(f, leaf="leaf-1") if labels and f.kind == "node" else f for f in cluster({"llama": MANY})
    ]
    world = World(facts)
    world.see(*(pause(n, "mlx5_0", "sent", 5 * i) for i, n in enumerate(MANY)))
    world.see(*(nccl_error("llama", r, 70 + 0.1 * r) for r in range(8)))
    world.pass_to(240)
    incident = world.only()
    assert incident.root.kind == ("switch" if labels else "cluster")
    assert (incident.family, incident.jobs) == ("pfc_storm", (job("llama"),))
    assert not closes_a_node(incident)


def test_hosts_of_different_leaves_that_pause_are_storms_of_their_own() -> None:
    facts = [link(f"leaf-{i}", "Ethernet0", n, "mlx5_0") for i, n in enumerate(FOUR)]
    world = story(*(pause(n, "mlx5_0", "sent", i) for i, n in enumerate(FOUR)), facts=facts)
    assert [i.root.node for i in world.incidents()] == FOUR
    assert not any(closes_a_node(i) for i in world.incidents())


def test_one_host_seen_from_both_ends_stands_out_of_many_that_pause() -> None:
    cables = [link("leaf-1", f"Ethernet{i}", n, "mlx5_0") for i, n in enumerate(MANY)]
    world = World([*cluster({"llama": MANY}), *cables])
    world.see(*(pause(n, "mlx5_0", "sent", 5) for n in MANY), storm("leaf-1", "Ethernet3", 0))
    world.pass_to(240)
    assert {(i.root.node, i.certainty) for i in world.incidents()} == {
        ("g03", Certainty.DECISIVE),
        (None, Certainty.LIKELY),
    }


def test_without_any_cabling_ports_that_storm_together_are_one_weak_storm() -> None:
    world = story(*(storm("leaf-1", f"Ethernet{4 * i}", 0.2 * i) for i in range(3)), facts=[])
    assert (world.only().family, world.only().certainty) == ("pfc_storm", Certainty.WEAK)


def test_a_storm_of_which_nobody_can_be_named_waits_for_its_end_that_is_read_late() -> None:
    over = replace(storm("leaf-1", "Ethernet4", 0.4, cleared=True), observed_at=at(70))
    world = story(storm("leaf-1", "Ethernet4", 0), over, facts=[])
    assert world.published == {}
    brief = story(storm("leaf-1", "Ethernet4", 0), storm("leaf-1", "Ethernet4", 40, cleared=True), facts=[])
    assert brief.published == {}, "it was over before anybody could look"


def test_a_storm_of_which_nobody_can_be_named_is_told_when_it_lasts_or_a_job_suffers() -> None:
    lasts = story(storm("leaf-1", "Ethernet4", 0), facts=[], until=110)
    assert lasts.published == {}
    lasts.pass_to(125)
    assert (lasts.only().family, lasts.only().certainty) == ("pfc_storm", Certainty.WEAK)
    suffers = story(storm("leaf-1", "Ethernet4", 0), *failing("llama", 31), facts=[], until=95)
    assert "pfc_storm" in {i.family for i in suffers.incidents()}


def test_a_storm_of_which_nobody_can_be_named_is_not_told_before_its_host_can_say_so_itself() -> None:
    world = story(
        storm("leaf-1", "Ethernet4", 0), *failing("llama", 20), pause("n2", "mlx5_0", "sent", 75), facts=[]
    )
    assert [i.root.node for i in world.published.values()] == ["n2"]


def test_without_any_cabling_a_host_that_says_so_itself_takes_the_ports_that_storm_with_it() -> None:
    world = story(
        storm("leaf-1", "Ethernet4", 0), pause("n2", "mlx5_0", "sent", 15), *failing("llama", 31), facts=[]
    )
    assert (world.only().root.node, world.only().certainty) == ("n2", Certainty.DECISIVE)


@pytest.mark.parametrize("counted", [True, False])
def test_while_a_host_is_measured_to_pause_a_port_of_unknown_end_is_paused_by_it(counted: bool) -> None:
    """A switch's log tells of each storm anew, a host's counter once until it is over."""
    host = pause("n2", "mlx5_0", "sent", 0)
    if counted:
        host = pause("n2", "mlx5_0", "sent", 0, series="0a1b2c3d4e5f", since_ms=0)
    world = story(host, storm("spine-9", "Ethernet8", 600), facts=[], until=900)
    assert [i.root.node for i in world.published.values()] == (["n2"] if counted else ["n2", None])


def test_a_counter_that_is_never_over_takes_no_port_hours_later() -> None:
    """Its exporter may be gone, or its host."""
    host = pause("n2", "mlx5_0", "sent", 0, series="0a1b2c3d4e5f", since_ms=0)
    late = 3 * 3600
    world = story(host, storm("spine-9", "Ethernet8", late), facts=[], until=late + 300)
    assert [i.root.node for i in world.published.values()] == ["n2", None]


def test_a_storm_that_is_found_and_restored_for_an_hour_is_one() -> None:
    signals = [
        s
        for i in range(90)
        for s in (
            storm("leaf-1", "Ethernet4", 40 * i),
            storm("leaf-1", "Ethernet4", 40 * i + 0.4, cleared=True),
        )
    ]
    world = story(*signals, until=3605)
    assert (len(world.published), world.only().root.node) == (1, "n2")
    assert world.only().flaps > 2
    world.pass_to(4300)
    assert world.only().state is IncidentState.RESOLVED


def test_a_storm_that_is_found_again_after_long_is_a_new_one_though_its_end_was_lost() -> None:
    world = story(storm("leaf-1", "Ethernet4", 0), storm("leaf-1", "Ethernet4", 1200), until=1300)
    assert [(i.incarnation, i.state) for i in world.incidents()] == [
        (1, IncidentState.RESOLVED),
        (2, IncidentState.OPEN),
    ]


STORIES: dict[str, tuple[list[Fact], list[Signal]]] = {
    "over the spine": (
        [*cluster(JOBS), *CABLES],
        [
            storm("leaf-1", "Ethernet120", 0.4),
            storm("spine-1", "Ethernet4", 0.2),
            storm("leaf-2", "Ethernet0", 0),
            *failing("llama", 31),
        ],
    ),
    "a circle": ([*cluster(JOBS), *RING], ring(2)),
    "many hosts": (
        [replace(f, leaf="leaf-1") if f.kind == "node" else f for f in cluster({"llama": MANY})],
        [
            *(pause(n, "mlx5_0", "sent", 5 * i) for i, n in enumerate(MANY)),
            *(nccl_error("llama", r, 70 + 0.1 * r) for r in range(8)),
        ],
    ),
    "without cabling": (
        cluster(JOBS),
        [storm("leaf-1", "Ethernet4", 0), pause("n2", "mlx5_0", "sent", 15), *failing("llama", 31)],
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_whatever_the_order_the_same_storm_stands_in_the_end(name: str) -> None:
    facts, signals = STORIES[name]
    expected = list(map(essence, outcome(on_time(facts, signals), until=900)))
    assert len(expected) == 1
    for seed in range(6):
        chance = random.Random(seed)
        arrivals: list[Arrival] = [(-50.0 + chance.choice([0, 0, 40, 200]), fact) for fact in facts]
        for signal in signals:
            seen = (signal.observed_at - at(0)).total_seconds()
            arrivals += [
                (seen + chance.choice([0, 1, 30, 300]), signal) for _ in range(chance.choice([1, 2]))
            ]
        assert list(map(essence, outcome(arrivals, restarts=0.05, seed=seed, until=900))) == expected


def test_firmware_that_asserts_before_its_port_pauses_is_told_as_the_storm_alone() -> None:
    world = World(cluster({"llama": ["n1", "n2", "n3", "n4"]}))
    world.see(nic("n2", "mlx5_3", -6, subtype="health"))
    world.pass_to(-1)
    assert world.revisions == []
    world.see(pause("n2", "mlx5_3", "sent", 0))
    world.pass_to(120)
    assert {i.family for i in world.revisions} == {"pfc_storm"}


def test_firmware_that_asserts_without_a_storm_is_told_by_itself() -> None:
    world = World(cluster({"llama": ["n1", "n2", "n3", "n4"]}))
    world.see(nic("n2", "mlx5_3", 0, subtype="health"))
    world.pass_to(40)
    assert (world.only().family, world.only().root.nic) == ("nic_link", "mlx5_3")


@pytest.mark.parametrize("pci", ["0000:5e:00", "0000:af:00"])
def test_a_narrow_pcie_link_is_why_its_nic_pauses_and_no_incident_beside_the_storm(pci: str) -> None:
    """A NIC that got a few lanes is a slow receiver; another device of the host is a matter of its own."""
    named = nic("n2", "mlx5_0", 0, subtype="query_failed", pci="0000:5e:00")
    narrow = sign("node.pcie", "n2", 100, "link_downgraded", pci=pci, width="2", capable_width="16")
    storms = [storm("leaf-1", "Ethernet4", 1200), pause("n2", "mlx5_0", "sent", 1215)]
    world = story(named, narrow, slow(900), *storms, until=1500)
    pausing = next(i for i in world.incidents() if i.family == "pfc_storm")
    standing = {i.family for i in world.incidents() if i.state is IncidentState.OPEN}
    is_why = pci == "0000:5e:00"
    assert "2 of 16 lanes" in pausing.reason or not is_why
    assert standing == ({"pfc_storm"} if is_why else {"pfc_storm", "straggler"})
