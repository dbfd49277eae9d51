"""One NIC has several names: the kernel's, the RDMA stack's, its address, its switch port. One fault of it is one incident."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.correlate.state.nic_names import MAX_NAMINGS, NicNames, merged, nic_names
from streams.correlate.state.rows import Naming
from streams.model.facts import Fact, NodeFact
from streams.model.incident import Certainty, IncidentState
from streams.model.nics import nic_address, nic_name_kind
from streams.model.signal import SPEAKER, Signal
from tests.streams.correlate import world
from tests.streams.correlate.deliveries import Arrival, essence, on_time, outcome
from tests.streams.correlate.world import FOUR, World, at, cluster, cut_off, job, link, nic, pause, port

HOUR = 3600.0
JOINED = (world.nic_names("n2", -50, "mlx5_1", netdev="eth3"),)
"""`ibdev2netdev` of a health check."""
ADDRESSED = (
    world.nic_names("n2", -50, "eth3", pci="0000:5e:00"),
    world.nic_names("n2", -49, "mlx5_1", pci="0000:5e:00"),
)
"""The same by way of the address that two other lines hold."""
APART = (
    world.nic_names("n2", -50, "eth3", pci="0000:5e:00"),
    world.nic_names("n2", -49, "mlx5_1", pci="0000:9e:00"),
)
# Both ends of three connections: they meet at this device of n2.
UNREACHED = (
    *cut_off("llama", (8, 9, 10), 31, "n1", "mlx5_1"),
    *cut_off("llama", (0, 16, 24), 31.1, "n2", "mlx5_1"),
)


def story(*signals: Signal, facts: Sequence[Fact] = (), until: float = 900) -> World:
    w = World([*cluster({"llama": FOUR}), *facts])
    for one in sorted(signals, key=lambda s: s.observed_at):
        w.pass_to((one.observed_at - at(0)).total_seconds(), step=5)
        w.see(one)
    w.pass_to(until, step=5)
    return w


def roots(w: World) -> list[tuple[str, str | None]]:
    return sorted((i.family, i.root.nic) for i in w.incidents())


# Stories.


@pytest.mark.parametrize("joined", [JOINED, ADDRESSED])
def test_a_link_that_the_kernel_and_the_rdma_stack_report_long_apart_is_one_where_a_line_joins_them(
    joined: tuple[Signal, ...],
) -> None:
    incident = story(*joined, nic("n2", "eth3", 0), nic("n2", "mlx5_1", 400)).only()
    assert (incident.family, incident.root.nic, incident.facts["links_failed"]) == ("nic_link", "eth3", 1)
    assert {"eth3", "mlx5_1"} <= set(incident.facts["nics"])  # type: ignore[arg-type]


def test_what_joins_them_may_have_been_read_hours_before_and_survives_a_restart() -> None:
    w = World(cluster({"llama": FOUR}))
    w.see(*JOINED)
    w.pass_to(5 * HOUR, step=60)
    w.restart()
    w.see(nic("n2", "eth3", 5 * HOUR))
    w.pass_to(5 * HOUR + 400, step=5)
    w.see(nic("n2", "mlx5_1", 5 * HOUR + 400))
    w.pass_to(5 * HOUR + 900, step=5)
    assert w.only().root.nic == "eth3"


def test_a_host_in_no_inventory_keeps_its_nics_names_too() -> None:
    w = World()
    w.see(world.nic_names("gpu-9", -50, "mlx5_1", netdev="eth3"))
    w.pass_to(5 * HOUR, step=60)
    w.see(nic("gpu-9", "eth3", 5 * HOUR))
    w.pass_to(5 * HOUR + 400, step=5)
    w.see(nic("gpu-9", "mlx5_1", 5 * HOUR + 400))
    w.pass_to(5 * HOUR + 900, step=5)
    assert w.only().root.nic == "eth3"


def test_what_joins_them_only_afterwards_makes_two_incidents_one() -> None:
    w = story(nic("n2", "eth3", 0), nic("n2", "mlx5_1", 400), until=800)
    assert roots(w) == [("nic_link", "eth3"), ("nic_link", "mlx5_1")]
    w.see(world.nic_names("n2", 801, "mlx5_1", netdev="eth3"))
    w.pass_to(900)
    assert w.only().root.nic == "eth3"
    assert [i.root.nic for i in w.published.values() if i.state is IncidentState.MERGED] == ["mlx5_1"]


def test_kernel_rdma_stack_and_switch_report_one_link() -> None:
    cable = link("leaf-1", "Ethernet12", "n2", "eth3")
    reports = (nic("n2", "mlx5_1", 200), nic("n2", "eth3", 0), port("leaf-1", "Ethernet12", 0.3))
    incident = story(*JOINED, *reports, facts=[cable]).only()
    assert (incident.root.nic, incident.root.switch, incident.root.port) == ("eth3", "leaf-1", "Ethernet12")


def test_a_cable_that_names_the_interface_joins_its_port_with_the_rdma_device() -> None:
    cable = link("leaf-1", "Ethernet12", "n2", "eth3")
    w = story(*JOINED, port("leaf-1", "Ethernet12", 0), nic("n2", "mlx5_1", 300), facts=[cable])
    assert len(w.published) == 1


@pytest.mark.parametrize("joined", [(), JOINED, ADDRESSED])
def test_a_pause_storm_that_is_counted_after_the_hang_that_it_makes_is_one_incident_with_it(
    joined: tuple[Signal, ...],
) -> None:
    w = story(*joined, *UNREACHED, pause("n2", "eth3", "sent", 231))
    incident = w.only()
    assert (incident.family, incident.root.nic, incident.jobs) == ("pfc_storm", "eth3", (job("llama"),))
    assert [i.family for i in w.published.values() if i.state is IncidentState.MERGED] == ["silent_node"]


def test_a_storm_that_only_the_switch_reports_is_of_the_nic_at_which_connections_fail() -> None:
    for name in ("eth3", "mlx5_1", "rail-1"):
        cable = link("leaf-1", "Ethernet12", "n2", name)
        w = story(*JOINED, *UNREACHED, world.storm("leaf-1", "Ethernet12", 200), facts=[cable])
        assert [i.family for i in w.incidents()] == ["pfc_storm"]


def test_a_link_that_the_kernel_reports_after_its_connections_fail_is_one_incident_with_them() -> None:
    incident = story(*UNREACHED, nic("n2", "eth3", 100)).only()
    assert (incident.family, incident.root.nic) == ("nic_link", "eth3")


def test_a_storm_of_another_nic_is_not_why_connections_fail_at_this_one() -> None:
    w = story(*APART, *UNREACHED, pause("n2", "eth3", "sent", 231))
    assert roots(w) == [("pfc_storm", "eth3"), ("silent_node", "mlx5_1")]


def test_with_two_nics_in_trouble_nothing_tells_which_one_the_connections_fail_at() -> None:
    w = story(*UNREACHED, pause("n2", "eth3", "sent", 231), nic("n2", "eth4", 200), until=1200)
    assert roots(w) == [("nic_link", "eth4"), ("pfc_storm", "eth3"), ("silent_node", "mlx5_1")]


def test_a_link_that_bounced_takes_no_suspicion_away() -> None:
    up = nic("n2", "eth3", 140, cleared=True)
    assert roots(story(*UNREACHED, nic("n2", "eth3", 100), up)) == [("silent_node", "mlx5_1")]


def test_a_storm_of_one_nic_and_a_dead_link_of_another_are_two() -> None:
    w = story(pause("n2", "eth3", "sent", 0), nic("n2", "eth4", 30))
    assert roots(w) == [("nic_link", "eth4"), ("pfc_storm", "eth3")]


def test_a_storm_and_a_dead_link_of_one_nic_are_one_by_whatever_names() -> None:
    for joined in ((), JOINED):
        assert roots(story(*joined, pause("n2", "eth3", "sent", 0), nic("n2", "mlx5_1", 30))) == [
            ("pfc_storm", "eth3")
        ]


def test_a_storm_names_all_names_of_its_nic() -> None:
    facts = story(*JOINED, pause("n2", "eth3", "sent", 0)).only().facts
    assert facts["nics"] == ("eth3", "mlx5_1")


def test_pause_that_the_same_nic_receives_under_its_other_name_makes_it_no_source() -> None:
    both = (pause("n2", "eth3", "sent", 0), pause("n2", "mlx5_1", "received", 5))
    assert story(*both).only().certainty is Certainty.LIKELY
    assert story(*JOINED, *both).only().certainty is Certainty.WEAK


def test_two_addresses_are_two_nics_and_close_no_node() -> None:
    both = (nic("n2", "eth3", 0, pci="0000:5e:00"), nic("n2", "mlx5_4", 5, pci="0000:9e:00"))
    facts = story(*both, *world.timeouts("llama", range(32), 602)).only().facts
    assert (facts["links_failed"], facts["hard"]) == (2, False)


def test_the_ports_of_one_card_are_two_nics() -> None:
    both = (nic("n2", "eth3", 0, pci="0000:5e:00"), nic("n2", "eth4", 5, pci="0000:5e:00", pci_function=1))
    facts = story(*both).only().facts
    assert (facts["links_failed"], facts["hard"]) == (2, False)


def test_a_bond_and_a_link_in_it_may_be_one() -> None:
    names = world.nic_names("n2", -50, "mlx5_bond_0", netdev="bond0", pci="0000:5e:00")
    facts = story(names, nic("n2", "eth3", 0, pci="0000:5e:00"), nic("n2", "mlx5_bond_0", 5)).only().facts
    assert facts["links_failed"] == 1


def test_one_fall_that_is_reported_again_under_another_name_is_no_flap() -> None:
    seen = [nic("n2", "eth3", 0), *(nic("n2", "mlx5_1", t) for t in (30, 60, 90))]
    assert story(*JOINED, *seen).only().facts["link"] == "link down"


def test_falls_that_are_reported_under_different_names_are_a_flap_together() -> None:
    falls = [("eth3", 0), ("mlx5_1", 200), ("eth3", 400)]
    seen = [s for n, t in falls for s in (nic("n2", n, t), nic("n2", n, t + 20, cleared=True))]
    assert story(*seen).incidents() == []
    assert story(*JOINED, *seen).only().facts["link"] == "link flaps"


def test_names_that_a_boot_gave_to_another_nic_no_longer_join() -> None:
    boot = world.nic_names("n2", HOUR, "mlx5_4", netdev="eth3")
    w = World(cluster({"llama": FOUR}))
    w.see(*JOINED)
    w.see(boot)
    w.pass_to(2 * HOUR, step=60)
    w.see(nic("n2", "eth3", 2 * HOUR))
    w.pass_to(2 * HOUR + 400, step=5)
    w.see(nic("n2", "mlx5_1", 2 * HOUR + 400))
    w.pass_to(2 * HOUR + 900, step=5)
    assert roots(w) == [("nic_link", "eth3"), ("nic_link", "mlx5_1")]


def test_what_a_job_prints_joins_no_names() -> None:
    printed = replace(JOINED[0], attributes={"netdev": "eth3", SPEAKER: "train/llama-worker-1"})
    assert len(story(printed, nic("n2", "eth3", 0), nic("n2", "mlx5_1", 400)).incidents()) == 2


FACTS: list[Fact] = [*cluster({"llama": FOUR}), link("leaf-1", "Ethernet12", "n2", "eth3")]
STORIES = {
    "link": (*JOINED, nic("n2", "eth3", 0), port("leaf-1", "Ethernet12", 0.3), nic("n2", "mlx5_1", 400)),
    "storm": (*ADDRESSED, *UNREACHED, pause("n2", "eth3", "sent", 231)),
    "late": (
        nic("n2", "eth3", 0),
        nic("n2", "mlx5_1", 400),
        world.nic_names("n2", 500, "eth3", rdma_device="mlx5_1"),
    ),
    "boot": (*JOINED, nic("n2", "eth3", 0), world.nic_names("n2", 700, "mlx5_4", netdev="eth3")),
}


@pytest.mark.parametrize("name", STORIES)
def test_whatever_the_order_the_same_fault_stands_in_the_end(name: str) -> None:
    signals = STORIES[name]
    expected = list(map(essence, outcome(on_time(FACTS, signals), until=900)))
    assert len(expected) == 1
    for seed in range(6):
        chance = random.Random(seed)
        arrivals: list[Arrival] = [(-50.0 + chance.choice([0, 0, 40, 200]), fact) for fact in FACTS]
        for one in signals:
            seen = (one.observed_at - at(0)).total_seconds()
            arrivals += [(seen + chance.choice([0, 1, 30, 300]), one) for _ in range(chance.choice([1, 2]))]
        assert list(map(essence, outcome(arrivals, restarts=0.05, seed=seed, until=900))) == expected


def test_names_that_were_reported_of_a_host_before_its_object_was_known_are_the_nodes() -> None:
    node = NodeFact("east", "node-2", "uid-node-2", at(-3600), ready=True, addresses=("n2.site",))
    w = World([NodeFact("east", "other", "uid-other", at(-3600), ready=True)])
    w.see(world.nic_names("n2.site", -50, "mlx5_1", netdev="eth3"))
    w.tell(node)
    w.see(nic("n2.site", "eth3", 0))
    w.pass_to(400, step=5)
    w.see(nic("n2.site", "mlx5_1", 400))
    w.pass_to(900, step=5)
    assert (w.only().root.node, w.only().root.nic) == ("node-2", "eth3")


# Names by themselves.


def reported(minutes: float, *names: str, until: float | None = None) -> Naming:
    first, last = (at(60 * m) for m in (minutes, until if until is not None else minutes))
    return Naming(tuple(sorted(names)), first, last)


def known(*namings: Naming) -> NicNames:
    return nic_names(merged(*namings))


def minute(number: float) -> datetime:
    return at(60 * number)


def test_names_are_joined_over_others() -> None:
    names = known(reported(0, "0000:5e:00", "eth3"), reported(9, "0000:5e:00", "mlx5_1"))
    assert names.of("0000:5E:00.0", minute(3)) == {"0000:5e:00", "eth3", "mlx5_1"}
    assert names.relation(["eth3"], ["mlx5_1"], minute(-100)) == "same", (
        "as long as nothing else was reported"
    )


def test_kinds_of_names_part_nics() -> None:
    names = known(reported(0, "0000:5e:00", "eth3"), reported(0, "0000:9e:00", "mlx5_4"))
    now = minute(1)
    assert names.relation(["eth3"], ["mlx5_4"], now) == "different"
    assert names.relation(["eth3"], ["eth9"], now) == "different"
    assert names.relation(["eth3"], ["mlx5_1"], now) == "open"
    assert names.relation(["eth3"], ["bond0"], now) == "open"


def test_a_name_that_joins_two_devices_means_neither() -> None:
    names = known(reported(0, "0000:5e:00", "eth3", until=50), reported(9, "0000:9e:00", "eth3", until=60))
    assert names.of("eth3", minute(20)) == {"eth3"}


@pytest.mark.parametrize("until", [90, 0])
def test_an_interface_may_have_two_names_at_once_or_one_after_the_other(until: float) -> None:
    names = known(
        reported(0, "0000:5e:00", "eth3", until=until),
        reported(1, "0000:5e:00", "ens3f0np0", until=90),
        reported(2, "eth3", "mlx5_1"),
    )
    assert names.of("mlx5_1", minute(50)) == {"0000:5e:00", "eth3", "ens3f0np0", "mlx5_1"}


def test_each_boot_has_its_own_names() -> None:
    before = (reported(0, "eth3", "mlx5_1", until=100), reported(0, "eth4", "mlx5_2", until=100))
    after = (reported(200, "eth3", "mlx5_2", until=300), reported(201, "eth4", "mlx5_1", until=300))
    names = known(*before, *after)
    assert names.of("eth3", minute(150)) == {"eth3", "mlx5_1"}
    assert names.of("eth3", minute(250)) == {"eth3", "mlx5_2"}
    assert not set(names.keys(["eth3"], minute(150))) & set(names.keys(["eth3"], minute(250)))


def test_what_is_not_reported_since_names_changed_holds_no_longer() -> None:
    names = known(
        reported(0, "0000:5e:00", "eth3"), reported(1, "eth3", "mlx5_1"), reported(200, "0000:9e:00", "eth3")
    )
    assert names.of("mlx5_1", minute(100)) == {"0000:5e:00", "eth3", "mlx5_1"}
    assert names.of("mlx5_1", minute(300)) == {"mlx5_1"}


NAMINGS = st.builds(
    lambda start, lasts, names: reported(start, *names, until=start + lasts),
    st.integers(0, 300),
    st.integers(0, 100),
    st.sets(
        st.sampled_from(["0000:5e:00", "0000:9e:00", "eth3", "eth4", "mlx5_1", "mlx5_4"]),
        min_size=2,
        max_size=3,
    ),
)


@given(st.lists(NAMINGS, max_size=8), st.randoms(), st.integers(0, 400))
def test_the_order_of_reports_does_not_matter_and_no_nic_has_two_addresses(
    namings: list[Naming], chance: random.Random, moment: int
) -> None:
    expected = merged(*namings)
    shuffled = [*namings, *namings[:2]]
    chance.shuffle(shuffled)
    kept: tuple[Naming, ...] = ()
    for one in shuffled:
        kept = merged(*kept, one)
    assert kept == expected
    names = nic_names(expected)
    for name in ("eth3", "mlx5_4"):
        found = [nic_name_kind(n) for n in names.of(name, minute(moment))]
        assert found.count("address") <= 1
        assert found.count("rdma") <= 1
        assert name in names.of(name, minute(moment))


def test_only_so_many_are_kept_the_latest() -> None:
    many = [reported(i, f"eth{i}", f"mlx5_{i}") for i in range(3 * MAX_NAMINGS)]
    assert merged(*reversed(many)) == tuple(many[-MAX_NAMINGS:])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("mlx5_1", "rdma"),
        ("rocep94s0", "rdma"),
        ("bnxt_re0", "rdma"),
        ("irdma0", "rdma"),
        ("mlx5_bond_0", "bond"),
        ("bond0", "bond"),
        ("eth3", "interface"),
        ("ens3f0np0", "interface"),
        ("rdma3", "interface"),
        ("ib0", "interface"),
        ("0000:5e:00.1", "address"),
    ],
)
def test_what_kind_of_a_name_it_is(name: str, kind: str) -> None:
    assert nic_name_kind(name) == kind


def test_an_address_keeps_the_function_that_parts_the_ports_of_a_card() -> None:
    assert (nic_address("0000:5E:00.0"), nic_address("00000000:5e:00.1")) == ("0000:5e:00", "0000:5e:00.1")
    assert nic_address("eth3.100") is None
